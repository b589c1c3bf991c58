// What the commands of the program do, without flags.
#pragma once

#include "espalier/jobs/evaluate.h"
#include "espalier/jobs/linet.h"
#include "espalier/jobs/population.h"
#include "espalier/jobs/ppo.h"
#include "espalier/jobs/reward_ab.h"
