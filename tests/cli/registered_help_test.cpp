// What a program adds to a registry is in the help of the flags that offer it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "espalier/cli/flags/jobs.h"

namespace espalier::cli {
namespace {

// Before anything asks for help, as a program does.
const bool kIsRegistered = [] {
  policy::rewards().add({.name = "fees", .summary = "every seed costs", .make = nullptr});
  policy::rewards().add({.name = "untold", .make = nullptr});
  train::controllers().add({.name = "gardener", .make = nullptr});
  return true;
}();

template <class Flags>
std::string help_of(std::string_view name) {
  Flags flags;
  const OptionList options = list_options(flags);
  const auto found =
      std::ranges::find_if(options, [&](const OptionRef& option) { return option.info.name == name; });
  return found == options.end() ? "no such flag" : std::string(found->info.help);
}

TEST(RegisteredHelp, OfRewardsNamesEveryRuleAndWhatItIs) {
  EXPECT_TRUE(kIsRegistered);
  const std::string help = help_of<PpoFlags>("reward");
  for (const std::string_view name : policy::rewards().names()) {
    EXPECT_NE(help.find(name), help.npos) << name << " is not in: " << help;
    EXPECT_NE(help.find(policy::rewards().at(name).summary), help.npos) << help;
  }
  EXPECT_NE(help.find("sparse: the end alone; "), help.npos) << help;
  EXPECT_NE(help.find("fees: every seed costs; untold"), help.npos) << help;
  EXPECT_FALSE(policy::rewards().at("shaped").summary.empty());
}

TEST(RegisteredHelp, OfControllersNamesEveryOne) {
  for (const std::string& help :
       {help_of<EvaluateFlags>("controllers"), help_of<PopulationFlags>("controller")})
    for (const std::string_view name : train::controllers().names())
      EXPECT_NE(help.find(name), help.npos) << name << " is not in: " << help;
}

}  // namespace
}  // namespace espalier::cli
