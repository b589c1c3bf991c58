// A source that a program adds by name: loaded, told apart, helped with and refused as those of the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/data/sources/source.h"
#include "tests/support/message.h"

namespace espalier::cli {
namespace {

data::HostSplit grey_split(int64_t samples, unsigned char grey) {
  const data::NewField made = data::allocate_field(
      {.name = "image", .type = data::SampleType::kU8, .height = 2, .width = 3, .channels = 1}, samples);
  std::memset(made.values.get(), grey, static_cast<size_t>(made.field.size_bytes));
  return {.fields = {made.field}, .labels = std::vector<int64_t>(static_cast<size_t>(samples), 0)};
}

data::HostDataset greys(const std::string& place, const data::SourceConfig& options, const Progress&) {
  data::HostDataset dataset{.class_names = {place, "nothing"},
                            .train = grey_split(options.synthetic_train, 7),
                            .test = grey_split(2, 9)};
  dataset.statistics = {data::compute_statistics(dataset.train.fields.front(), options.synthetic_train)};
  return dataset;
}

data::HostDataset too_few_labels(const std::string& place, const data::SourceConfig& options,
                                 const Progress& progress) {
  data::HostDataset dataset = greys(place, options, progress);
  dataset.train.labels.pop_back();
  return dataset;
}

std::string greys_key(const data::SourceConfig& options) {
  return "train=" + std::to_string(options.synthetic_train);
}

// Before anything asks for help, as a program does.
const bool kIsRegistered = [] {
  data::sources().add({.name = "greys", .placeholder = "FILE", .key = greys_key, .load = greys});
  data::sources().add({.name = "named", .places = {"dark", "light"}, .load = greys});
  data::sources().add({.name = "broken", .placeholder = "FILE", .load = too_few_labels});
  return true;
}();

data::SourceConfig from(const std::string& data) {
  data::SourceConfig options;
  options.data = data;
  options.synthetic_train = 5;
  return options;
}

TEST(RegisteredSource, IsLoadedByItsName) {
  ASSERT_TRUE(kIsRegistered);
  const data::HostDataset dataset = data::load_source(from("greys:/some/file"), {});
  EXPECT_EQ(dataset.origin, "greys:/some/file?train=5");
  EXPECT_EQ(dataset.class_names.front(), "/some/file") << "the place is what follows the colon";
  EXPECT_EQ(dataset.train.num_samples(), 5);
  EXPECT_EQ(std::to_integer<int>(*dataset.train.fields.front().values), 7);
  EXPECT_EQ(data::load_source(from("named:light"), {}).class_names.front(), "light");
}

TEST(RegisteredSource, HasOneNameForEverySpelling) {
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(data::canonical_source(from("greys:data/../mine")),
            "greys:" + (here / "mine").string() + "?train=5");
  EXPECT_EQ(data::canonical_source(from("named:dark")), "named:dark") << "no path, and nothing it depends on";
  data::SourceConfig larger = from("greys:/a");
  larger.synthetic_train = 6;
  EXPECT_NE(data::canonical_source(larger), data::canonical_source(from("greys:/a")));
  larger.classes = {0};
  EXPECT_EQ(data::canonical_source(larger), "greys[0]:/a?train=6");
}

TEST(RegisteredSource, IsInTheHelpOfData) {
  PopulationFlags flags;
  const OptionList options = list_options(flags);
  const auto found =
      std::ranges::find_if(options, [](const OptionRef& option) { return option.info.name == "data"; });
  ASSERT_NE(found, options.end());
  testing::expect_parts(std::string(found->info.help),
                        {"cifar10:DIR", "greys:FILE, named:dark, named:light or broken:FILE"});
}

TEST(RegisteredSource, IsAmongWhatARefusalNames) {
  EXPECT_ERROR(data::load_source(from("gray:/a"), {}), UsageError,
               "unknown kind 'gray', did you mean 'greys'?", "greys:FILE");
  EXPECT_ERROR(data::load_source(from("named:lihgt"), {}), UsageError, "unknown named data 'lihgt'",
               "did you mean 'light'", "dark or light");
  EXPECT_ERROR(data::load_source(from("greys"), {}), UsageError, "the place is missing", "write greys:FILE");
  EXPECT_ERROR(data::load_source(from("greys:"), {}), UsageError, "the place is missing");
  EXPECT_ERROR(data::sources().add({.name = "greys", .load = greys}), UsageError, "greys", "taken");
}

// As check_dataset() says it, not later and not as damage to memory.
TEST(RegisteredSource, IsRefusedWhereItsSamplesDoNotAddUp) {
  EXPECT_ERROR(data::load_source(from("broken:/a"), {}), Error, "label");
}

}  // namespace
}  // namespace espalier::cli
