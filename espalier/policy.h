// The controller that learns: its actions, network, rewards and update.
#pragma once

#include "espalier/policy/acting.h"
#include "espalier/policy/action/space.h"
#include "espalier/policy/checkpoint.h"
#include "espalier/policy/learn/ppo.h"
#include "espalier/policy/network.h"
#include "espalier/policy/observe/observation.h"
#include "espalier/policy/reward/account.h"
#include "espalier/policy/reward/rule.h"
