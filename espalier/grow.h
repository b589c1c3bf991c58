// Networks that grow: hosts, kinds of seeds, stacks of networks, and the lifecycle of seeds.
#pragma once

#include "espalier/grow/host/cnn.h"
#include "espalier/grow/host/interface.h"
#include "espalier/grow/host/registry.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/grow/seeds/branch.h"
