// The network against plain PyTorch: fixtures that bench/peers/linet_torch.py wrote (`--fixtures`), with
// weights, inputs, outputs, all gradients and the statistics after the step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/linet/network.h"
#include "espalier/tensor/file.h"
#include "tests/support/cuda.h"

namespace espalier::linet {
namespace {

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> all;
  std::stringstream stream(text);
  for (std::string each; std::getline(stream, each, ',');) all.push_back(std::stoll(each));
  return all;
}

LinetShape shape_of(const TensorFile& file, MemoryFormat format) {
  return {.in_channels = numbers(file.metadata.at("streams")),
          .block = file.metadata.at("block") == "basic" ? BlockKind::kBasic : BlockKind::kBottleneck,
          .stages = numbers(file.metadata.at("stages")),
          .widths = numbers(file.metadata.at("widths")),
          .num_classes = std::stoll(file.metadata.at("classes")),
          .memory_format = format};
}

struct Step {
  std::map<std::string, at::Tensor> tensors;  // by the names of the file
};

// The file's step, made here in a type; results are on the CPU.
Step run(const TensorFile& file, at::ScalarType type, MemoryFormat format, at::Device device) {
  Linet net(shape_of(file, format), at::TensorOptions(type).device(device), type);
  for (const StreamTensor& tensor : net.stream_tensors())
    tensor.value().copy_(file.at("state." + tensor.name));
  for (const lanes::NamedParameter& named : net.parameters()) named.parameter->refresh();

  const bool trains = file.metadata.at("mode") == "train";
  std::vector<at::Tensor> inputs;
  for (int64_t i = 0; i < net.num_streams(); ++i)
    inputs.push_back(
        file.at("input." + std::to_string(i)).to(device, type).unsqueeze(0).clone().set_requires_grad(true));
  LinetContext context{.mode = trains ? lanes::Mode::kTrain : lanes::Mode::kEvaluate};
  if (file.tensors.contains("keep")) context.keep = file.at("keep").to(device, at::kBool);
  const LinetOutput out = net.forward(inputs, context);
  const at::Tensor losses =
      lanes::lane_cross_entropy(out.logits, file.at("labels").to(device).unsqueeze(0), {},
                                at::full({1}, std::stod(file.metadata.at("label_smoothing")),
                                         at::TensorOptions(at::kDouble).device(device)));

  torch::autograd::variable_list leaves(inputs.begin(), inputs.end());
  const auto grad_inputs = torch::autograd::grad({losses}, leaves, {at::ones_like(losses)},
                                                 /*retain_graph=*/true);
  std::vector<lanes::LaneParameter*> parameters = lanes::without_names(net.parameters());
  lanes::lane_backward(losses, parameters);

  Step step;
  step.tensors["logits"] = out.logits.detach()[0];
  step.tensors["loss"] = losses.detach()[0];
  for (size_t i = 0; i < grad_inputs.size(); ++i)
    step.tensors["grad.input." + std::to_string(i)] = grad_inputs[i][0];
  for (const StreamTensor& tensor : net.stream_tensors())
    step.tensors[(tensor.parameter ? "grad." : "after.") + tensor.name] =
        tensor.parameter ? tensor.gradient() : tensor.value();
  for (auto& [name, tensor] : step.tensors) tensor = tensor.to(at::kCPU);
  return step;
}

std::vector<std::filesystem::path> fixtures() {
  std::vector<std::filesystem::path> all;
  // Where it was built, or, for a program that was taken elsewhere, in the checkout that it runs in.
  std::filesystem::path folder =
#include "linet_fixtures.inc"
      ;
  if (!std::filesystem::exists(folder)) folder = "tests/linet/fixtures";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) all.push_back(entry.path());
  std::ranges::sort(all);
  return all;
}

bool is_result(const std::string& name) {
  return name.starts_with("grad.") || name.starts_with("after.") || name == "logits" || name == "loss";
}

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

// What rounding leaves of a value that is zero by itself: a bias just before a norm has such a gradient.
double rounding_of(const TensorFile& file, double epsilon) {
  double most = 0;
  for (const auto& [name, tensor] : file.tensors)
    if (name.starts_with("grad.")) most = std::max(most, largest(tensor));
  return epsilon * most;
}

void expect_step(const TensorFile& file, MemoryFormat format, at::Device device = at::kCPU) {
  const Step step = run(file, at::kDouble, format, device);
  const double rounding = rounding_of(file, 1e-15);
  int64_t compared = 0;
  for (const auto& [name, expected] : file.tensors) {
    if (!is_result(name)) continue;
    ASSERT_TRUE(step.tensors.contains(name)) << name;
    const at::Tensor& got = step.tensors.at(name);
    ASSERT_EQ(got.sizes(), expected.sizes()) << name;
    EXPECT_LE(largest(got.to(at::kDouble) - expected), 1e-9 * largest(expected) + rounding) << name;
    compared += 1;
  }
  EXPECT_EQ(compared, std::ssize(step.tensors));
}

TEST(LinetParity, GivesEveryOutputGradientAndStatisticThatPyTorchDoes) {
  ASSERT_GE(fixtures().size(), 8u);
  for (const auto& path : fixtures()) {
    SCOPED_TRACE(path.filename());
    expect_step(read_tensors(path.string()), MemoryFormat::kChannelsLast);
  }
}

TEST(LinetParity, GivesTheSameInContiguousMemory) {
  for (const auto& path : fixtures()) {
    SCOPED_TRACE(path.filename());
    expect_step(read_tensors(path.string()), MemoryFormat::kContiguous);
  }
}

TEST(LinetParityCuda, GivesEveryOutputGradientAndStatisticThatPyTorchDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const auto& path : fixtures()) {
    SCOPED_TRACE(path.filename());
    expect_step(read_tensors(path.string()), MemoryFormat::kChannelsLast, at::Device(at::kCUDA, 0));
  }
}

// The geometric mean of errors here by errors there.
struct Ratio {
  void add(double own, double theirs) {
    log_sum += std::log(own / theirs);
    count += 1;
  }
  double mean() const { return std::exp(log_sum / count); }

  double log_sum = 0, count = 0;
};

// Whole networks, too large to keep: parity_test.py has PyTorch write each in both types and names the
// folder.
TEST(LinetReference, IsAsExactAsPyTorchInBothTypes) {
  const char* const folder = std::getenv("ESPALIER_LINET_REFERENCES");
  if (folder == nullptr) GTEST_SKIP() << "no ESPALIER_LINET_REFERENCES: run tests/linet/parity_test.py";
  int64_t compared = 0;
  Ratio results, gradients;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string(), ending = ".float64.safetensors";
    if (!path.ends_with(ending)) continue;
    SCOPED_TRACE(path);
    const TensorFile exact = read_tensors(path);
    const TensorFile narrow =
        read_tensors(path.substr(0, path.size() - ending.size()) + ".float32.safetensors");
    expect_step(exact, MemoryFormat::kChannelsLast);
    const Step step = run(exact, at::kFloat, MemoryFormat::kChannelsLast, at::kCPU);
    const double rounding = rounding_of(exact, 1e-6);
    for (const auto& [name, expected] : exact.tensors) {
      if (!is_result(name)) continue;
      const auto error = [&](const at::Tensor& got) {
        return (got.to(at::kDouble) - expected).norm().item<double>();
      };
      Ratio& ratio = name.starts_with("grad.") ? gradients : results;
      const double least = name.starts_with("grad.") ? rounding : 1e-7 * largest(expected) + 1e-30;
      ratio.add(error(step.tensors.at(name)) + least, error(narrow.at(name)) + least);
    }
    compared += 1;
  }
  EXPECT_GT(compared, 0);
  EXPECT_LE(results.mean(), 2);
  EXPECT_LE(gradients.mean(), 2);
}

}  // namespace
}  // namespace espalier::linet
