// Training: populations under a controller, PPO, multi-stream networks.
#pragma once

#include "espalier/ranks/world.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/control/ppo_trainer.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard_setup.h"
#include "espalier/train/population/trainer.h"
#include "espalier/train/step/step.h"
