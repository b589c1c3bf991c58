// run/earlier.cpp names flags that a run may change when it goes on: were one renamed, a run that is gone on
// with would be refused, or found to be another.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "espalier/cli/flags/jobs.h"
#include "espalier/run/earlier.h"

namespace espalier::cli {
namespace {

template <class Flags>
void add_names(std::set<std::string>& names) {
  Flags flags;
  for (const OptionRef& option : list_options(flags)) names.emplace(option.info.name);
}

TEST(FreeKeys, AreOptionsOfJobs) {
  std::set<std::string> names;
  add_names<HostFlags>(names);
  add_names<PopulationFlags>(names);
  add_names<LinetFlags>(names);
  add_names<PpoFlags>(names);
  add_names<EvaluateFlags>(names);
  for (const std::string_view key : run::free_keys())
    EXPECT_TRUE(names.contains(std::string(key))) << "no job has --" << key;
  EXPECT_FALSE(run::free_keys().empty());
}

}  // namespace
}  // namespace espalier::cli
