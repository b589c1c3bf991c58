#include "espalier/linet/linet_file.h"

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
  write_checkpoint(path, net, {{"monitor.weight", at::ones({2, 3})}}, {{"epoch", "4"}});
  const lanes::TensorFile file = lanes::read_tensors(path);
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
  load_stream_weights(lanes::read_tensors(folder / "a.safetensors"), per_stream);
  write_checkpoint(folder / "b.safetensors", per_stream, {}, {});
  load_checkpoint(lanes::read_tensors(folder / "b.safetensors"), stacked);
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
  const lanes::TensorFile file = lanes::read_tensors(folder / "a.safetensors");
  EXPECT_ERROR(load_stream_weights(file, wide), Error, "a.safetensors", "layer2.0", "[8, 4, 3, 3]",
               "[6, 4, 3, 3]");
  EXPECT_ERROR(load_stream_weights(file, deep), Error, "a.safetensors", "no tensor", "layer2.1");
  lanes::write_tensors(folder / "b.safetensors", {{"x", at::ones({1})}}, {{"block", "basic"}});
  EXPECT_ERROR(shape_of(lanes::read_tensors(folder / "b.safetensors")), Error, "b.safetensors", "'streams'");
}

}  // namespace
}  // namespace espalier::linet
