#include "espalier/jobs/export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/grow/host/registry.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
namespace {

grow::GrownNetwork network_of_lane(int64_t lane, std::optional<double> validation_accuracy) {
  grow::NetworkDescription description{.host = "tiny",
                                       .field = "image",
                                       .channels = 3,
                                       .height = 8,
                                       .width = 8,
                                       .full_scale = 255,
                                       .mean = {0, 0, 0},
                                       .deviation = {1, 1, 1},
                                       .classes = {"a", "b"}};
  description.origin = {.run = "a test", .validation_accuracy = validation_accuracy};
  grow::NetworkStack population(grow::hosts().at("tiny").make, grow::frame_of(description, 1), {}, at::kCPU,
                                at::kFloat);
  grow::GrownNetwork network = grow::network_of(population, 0, description);
  network.description.origin.lane = lane;
  return network;
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// As evaluate --keep leaves them: the same lane may have won more than once.
class ExportTest : public ::testing::Test {
 protected:
  ExportTest() {
    std::filesystem::create_directory(kept_);
    const std::vector<std::pair<std::string, int64_t>> networks{
        {"c1_none_episode1_lane0", 0}, {"c1_none_episode2_lane0", 0}, {"c2_random_episode1_lane1", 1}};
    for (const auto& [name, lane] : networks)
      export_network(network_of_lane(lane, 0.5), (std::filesystem::path(kept_) / name).string());
  }

  support::TemporaryFolder folder_;
  std::string kept_ = folder_ / "kept";
  std::string out_ = folder_ / "out";
};

TEST_F(ExportTest, WritesEveryNetworkOfAFolderUnderItsOwnName) {
  const ExportConfig config{.from = kept_, .out = out_, .lane = {.which = LaneChoice::Which::kAll}};
  EXPECT_EQ(export_networks(config).size(), 3u);
  EXPECT_EQ(names_in(out_), names_in(kept_));
}

TEST_F(ExportTest, WritesNothingWhereTheNameOfOneCannotBeImported) {
  std::filesystem::rename(kept_ + "/c2_random_episode1_lane1.safetensors", kept_ + "/2-random.safetensors");
  const ExportConfig config{.from = kept_, .out = out_, .lane = {.which = LaneChoice::Which::kAll}};
  EXPECT_ERROR(export_networks(config), UsageError, "2-random", "name that Python can import");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(ExportTest, RefusesANumberThatSeveralNetworksHave) {
  ExportConfig config{.from = kept_, .out = out_, .lane = {.which = LaneChoice::Which::kOne, .lane = 0}};
  EXPECT_ERROR(export_networks(config), UsageError,
               "--lane 0: 2 networks of this folder are lane 0: name a file");
  config.lane.lane = 1;
  EXPECT_EQ(export_networks(config).front().description.origin.lane, 1);
  config.lane.lane = 2;
  config.overwrite = true;
  EXPECT_ERROR(export_networks(config), UsageError, "--lane 2: there is no such lane");
}

TEST_F(ExportTest, RefusesNamesThatPythonCannotImport) {
  const grow::GrownNetwork network = network_of_lane(0, {});
  for (const char* name :
       {"class", "None", "lambda", "yield", "torch", "safetensors", "pathlib", "7", "a-b"}) {
    EXPECT_ERROR(export_network(network, folder_ / name), UsageError, fmt::format("'{}'", name),
                 "name that Python can import");
    EXPECT_FALSE(std::filesystem::exists(folder_ / fmt::format("{}.py", name)));
  }
  EXPECT_NO_THROW(export_network(network, folder_ / "Class"));
}

TEST(BestNetworks, AreThoseThatWereValidated) {
  const std::vector<grow::GrownNetwork> none{network_of_lane(0, {}), network_of_lane(1, {})};
  EXPECT_ERROR(chosen_networks(none, {}), UsageError, "--lane best: none was validated; give a number");
  EXPECT_ERROR(best_networks(none, 1), UsageError, "--ensemble 1: none was validated; give --ensemble 2");
  EXPECT_EQ(best_networks(none, 2).size(), 2u);  // all there are
  EXPECT_EQ(chosen_networks({none[1]}, {}).front().description.origin.lane, 1);
  const std::vector<grow::GrownNetwork> one{none[0], network_of_lane(1, 0.0)};
  EXPECT_EQ(chosen_networks(one, {}).front().description.origin.lane, 1);
}

}  // namespace
}  // namespace espalier::jobs
