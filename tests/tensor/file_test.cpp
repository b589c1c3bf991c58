#include "espalier/tensor/file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/tensor/layout.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier {
namespace {

TEST(TensorFile, GivesBackWhatWasWrittenWhateverItsStrides) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const at::Tensor filters = empty_stacked({2, 3, 4, 3, 3}, MemoryFormat::kChannelsLast, at::kFloat)
                                 .copy_(at::randn({2, 3, 4, 3, 3}));
  const std::vector<std::pair<std::string, at::Tensor>> written{
      {"flag", at::rand({3}) < 0.5},       {"filter", filters.select(0, 1)},
      {"steps", at::tensor(7, at::kLong)}, {"narrow", at::randn({5}).to(at::kBFloat16)},
      {"none", at::empty({0, 4})},         {"wide", at::randn({2, 3}, at::kDouble).t()}};
  write_tensors(path, written, {{"kind", "test"}});
  const TensorFile read = read_tensors(path);
  EXPECT_EQ(read.metadata.at("kind"), "test");
  ASSERT_EQ(read.tensors.size(), written.size());
  for (const auto& [name, tensor] : written) {
    EXPECT_EQ(read.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
  }
}

TEST(TensorFile, NamesTheTensorThatIsNotThere) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_tensors(path, {{"a", at::ones({2})}}, {});
  EXPECT_ERROR(read_tensors(path).at("b"), Error, "a.safetensors", "'b'");
}

}  // namespace
}  // namespace espalier
