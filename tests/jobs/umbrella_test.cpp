// One header per room: what a program includes.
#include <gtest/gtest.h>

#include "espalier/data.h"
#include "espalier/grow.h"
#include "espalier/jobs.h"
#include "espalier/lanes.h"
#include "espalier/linet.h"
#include "espalier/policy.h"
#include "espalier/ranks.h"
#include "espalier/run.h"
#include "espalier/train.h"

namespace espalier {
namespace {

TEST(UmbrellaHeaders, NameWhatAProgramBeginsWith) {
  EXPECT_GT(jobs::PopulationJob{}.population.lanes, 0);
  EXPECT_GT(train::PopulationConfig{}.batch, 0);
  EXPECT_FALSE(grow::hosts().names().empty());
  EXPECT_FALSE(policy::rewards().names().empty());
  EXPECT_EQ(ranks::World::alone().size(), 1);
  EXPECT_EQ(run::RunConfig{}.restart, run::Restart::kAuto);
}

}  // namespace
}  // namespace espalier
