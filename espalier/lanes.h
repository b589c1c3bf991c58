// Stacked layers and optimisers.
#pragma once

#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/init.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/lanes/optim/optimizer.h"
#include "espalier/lanes/parameter.h"
#include "espalier/lanes/stack.h"
