#include "espalier/linet/file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::linet {
namespace {

LinetShape small_shape(uint64_t seed) {
  return {.in_channels = {3, 1}, .stages = {1, 1}, .widths = {4, 6}, .num_classes = 3, .seed = seed};
}

void expect_equal(Linet& first, Linet& second) {
  const auto a = first.stream_tensors(), b = second.stream_tensors();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].value(), b[i].value())) << a[i].name;
}

// A network that differs from a fresh one everywhere, statistics included.
void scramble(Linet& net) {
  for (const StreamTensor& tensor : net.stream_tensors())
    if (tensor.value().is_floating_point()) tensor.value().uniform_(0.5, 1.5);
  for (const auto& [name, tensor] : net.named_buffers())
    if (name == "num_batches") tensor.fill_(12);
}

TEST(LinetFile, GivesBackACheckpoint) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "best.safetensors";
  Linet net(small_shape(1), at::kFloat, at::kFloat);
  scramble(net);
  NamedTensors tensors = stacked_tensors(net);
  tensors.emplace_back("monitor.weight", at::ones({2, 3}));
  write_checkpoint(path, net.shape(), tensors, {{"epoch", "4"}});
  const TensorFile file = read_tensors(path);
  EXPECT_EQ(file.metadata.at("epoch"), "4");
  Linet again(shape_of(file), at::kFloat, at::kFloat);
  load_checkpoint(file, again);
  expect_equal(net, again);
}

TEST(LinetFile, ConvertsBothWaysBetweenStackedAndPerStream) {
  const support::TemporaryFolder folder;
  Linet net(small_shape(1), at::kFloat, at::kFloat), per_stream(small_shape(2), at::kFloat, at::kFloat),
      stacked(small_shape(3), at::kFloat, at::kFloat);
  scramble(net);
  write_stream_weights(folder / "a.safetensors", net, {});
  load_stream_weights(read_tensors(folder / "a.safetensors"), per_stream);
  write_checkpoint(folder / "b.safetensors", per_stream.shape(), stacked_tensors(per_stream), {});
  load_checkpoint(read_tensors(folder / "b.safetensors"), stacked);
  expect_equal(net, stacked);
}

TEST(LinetFile, SaysWhatDiffers) {
  const support::TemporaryFolder folder;
  Linet net(small_shape(1), at::kFloat, at::kFloat);
  LinetShape wider = small_shape(1), deeper = small_shape(1);
  wider.widths = {4, 8};
  deeper.stages = {1, 2};
  Linet wide(wider, at::kFloat, at::kFloat), deep(deeper, at::kFloat, at::kFloat);
  write_stream_weights(folder / "a.safetensors", net, {});
  const TensorFile file = read_tensors(folder / "a.safetensors");
  EXPECT_ERROR(load_stream_weights(file, wide), Error, "a.safetensors", "layer2.0", "[8, 4, 3, 3]",
               "[6, 4, 3, 3]");
  EXPECT_ERROR(load_stream_weights(file, deep), Error, "a.safetensors", "no tensor", "layer2.1");
  write_tensors(folder / "b.safetensors", {{"x", at::ones({1})}}, {{"block", "basic"}});
  EXPECT_ERROR(shape_of(read_tensors(folder / "b.safetensors")), Error, "b.safetensors", "'streams'");
}

TEST(LinetFile, RefusesADamagedHeaderNamingFileAndKey) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  Linet net(small_shape(1), at::kFloat, at::kFloat);
  write_stream_weights(path, net, {});
  const TensorFile whole = read_tensors(path);
  for (const char* key : {"streams", "stages", "widths", "classes"}) {
    for (const char* text : {"", ",", "x", "0", "-1", "4,x", "99999999999999999999", "1000001", "4 "}) {
      TensorFile file = whole;
      file.metadata[key] = text;
      EXPECT_ERROR(shape_of(file), Error, path, fmt::format("'{}'", key), fmt::format("'{}'", text));
    }
  }
  // A damaged number must not be what a network is allocated by.
  for (const auto& [key, text] : {std::pair("streams", "3,900000"),
                                  {"stages", "1,900000"},
                                  {"widths", "4,900000"},
                                  {"classes", "900000"}}) {
    TensorFile file = whole;
    file.metadata[key] = text;
    EXPECT_ERROR(shape_of(file), Error, path, "at least", "the file is damaged");
  }
  TensorFile file = whole;
  file.metadata["stages"] = "1";
  EXPECT_ERROR(shape_of(file), Error, path, "'stages'", "1, 2");
}

TEST(LinetFile, RefusesTensorsThatHoldNoWeights) {
  const support::TemporaryFolder folder;
  Linet net(small_shape(1), at::kFloat, at::kFloat);
  write_stream_weights(folder / "a.safetensors", net, {});
  TensorFile file = read_tensors(folder / "a.safetensors");
  auto& [name, tensor] = *std::ranges::find_if(
      file.tensors, [](const auto& named) { return named.first.ends_with("conv1.streams.0.weight"); });
  tensor = tensor.to(at::kLong);
  EXPECT_ERROR(load_stream_weights(file, net), Error, "a.safetensors", name, "Float", "Long");
  tensor = tensor.to(at::kDouble);
  load_stream_weights(file, net);  // any kind of float will do
}

}  // namespace
}  // namespace espalier::linet
