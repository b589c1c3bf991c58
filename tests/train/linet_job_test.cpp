#include "espalier/train/linet_job.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/linet/linet_file.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

LinetOptions small_job(const std::string& run) {
  LinetOptions options;
  options.device = "cpu";
  options.source.synthetic_train = 80;
  options.source.synthetic_test = 27;
  options.batch = 16;
  options.epochs = 2;
  options.width = 0.0625;
  options.run_dir = run;
  return options;
}

std::vector<nlohmann::json> metrics(const std::string& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(fs::path(run) / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(LinetJob, WritesALineAnEpochTheTestResultAndTheBestNetwork) {
  const support::TemporaryFolder folder;
  const std::string run = folder / "run";
  const LinetResult result = run_linet_job(small_job(run), {});
  const auto lines = metrics(run);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["epoch"], 2);
  EXPECT_TRUE(lines[0]["best"].get<bool>());
  EXPECT_TRUE(lines[0]["streams"]["depth"].contains("validation_accuracy"));
  EXPECT_EQ(lines[2]["test_accuracy"].get<double>(), result.tested.whole.accuracy);
  EXPECT_EQ(lines[2]["confusion"].size(), 9u);
  EXPECT_EQ(lines[2]["streams"]["rgb"]["accuracy_without"].get<double>(), result.tested.accuracy_without[0]);
  const lanes::TensorFile best = lanes::read_tensors((fs::path(run) / kBestLinet).string());
  EXPECT_EQ(best.metadata.at("stream_names"), "rgb,depth,orth");
  EXPECT_EQ(best.metadata.at("epoch"), std::to_string(result.best_epoch));
  EXPECT_TRUE(best.tensors.contains("monitor.weight"));
}

TEST(LinetJob, ExportsTheNetworkWithoutItsMonitorsAndBeginsWithIt) {
  const support::TemporaryFolder folder;
  const std::string run = folder / "run", out = folder / "linet.safetensors";
  run_linet_job(small_job(run), {});
  export_linet(run, out);
  const lanes::TensorFile exported = lanes::read_tensors(out);
  EXPECT_TRUE(exported.tensors.contains("layer4.1.conv2.streams.2.weight"));
  EXPECT_EQ(exported.at("conv1.streams.1.weight").sizes(), (std::vector<int64_t>{4, 1, 7, 7}));
  for (const auto& [name, tensor] : exported.tensors)
    EXPECT_EQ(name.find("monitor"), std::string::npos) << name;

  LinetOptions again = small_job(folder / "again");
  again.weights = out;
  again.epochs = 1;
  again.learning_rate = 0;
  run_linet_job(again, {});
  const lanes::TensorFile first = lanes::read_tensors(run + "/best.safetensors"),
                          second = lanes::read_tensors(again.run_dir + "/best.safetensors");
  EXPECT_TRUE(at::equal(first.at("layer2.0.conv1.weight"), second.at("layer2.0.conv1.weight")));
  again.model = "li_resnet34";
  again.run_dir = folder / "other";
  EXPECT_ERROR(run_linet_job(again, {}), Error, "linet.safetensors", "no tensor");
}

// The point of integrating: the class needs both rgb and depth.
TEST(LinetJobSlow, LearnsFromStreamsTogetherWhatNoneKnowsAlone) {
  const support::TemporaryFolder folder;
  LinetOptions options;
  options.device = "cpu";
  options.run_dir = folder / "run";
  const LinetResult result = run_linet_job(options, {});
  EXPECT_GT(result.tested.whole.accuracy, 0.9);
  for (const double alone : result.tested.whole.stream_accuracies) EXPECT_LT(alone, 0.6);
  for (const size_t needed : {0u, 1u}) EXPECT_LT(result.tested.accuracy_without[needed], 0.6);
}

}  // namespace
}  // namespace espalier::train
