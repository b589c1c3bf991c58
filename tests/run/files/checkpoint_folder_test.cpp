#include "espalier/run/files/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <thread>

#include "espalier/core/error.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class CheckpointFolderTest : public testing::Test {
 protected:
  ~CheckpointFolderTest() override { fs::remove_all(path_); }

  void write(const std::string& name, int first) {
    values_ = {first, 2, 3};
    folder_.write(
        name,
        {{{"numbers", StoredType::kI32, {3}}, std::as_bytes(std::span(values_))},
         {{"nothing", StoredType::kF32, {0}}, {}}},
        {{"version", 1}, {"share", 0.1}, {"not a number", std::numeric_limits<double>::quiet_NaN()}});
  }

  std::string error_of_reading(const std::string& name) {
    try {
      read_checkpoint(path_ / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  const fs::path path_ = fs::path(testing::TempDir()) / ("espalier_checkpoints_" + std::to_string(getpid()));
  const CheckpointFolder folder_{path_};
  std::vector<int32_t> values_;
};

TEST_F(CheckpointFolderTest, GivesBackWhatWasWritten) {
  write("000002", 7);
  write("000001", 5);
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"000001", "000002"}));
  const Checkpoint read = read_checkpoint(path_ / "000002");
  EXPECT_EQ(read.manifest["version"], 1);
  EXPECT_EQ(read.manifest["share"], 0.1);
  ASSERT_EQ(read.header.tensors.size(), 2u);
  EXPECT_EQ(read.header.tensors[0].name, "numbers");
  int32_t first = 0;
  std::memcpy(&first, read.bytes_of(read.header.tensors[0]).data(), sizeof(first));
  EXPECT_EQ(first, 7);
}

TEST_F(CheckpointFolderTest, ReplacesOneOfTheSameName) {
  write("a", 1);
  write("a", 9);
  const Checkpoint read = read_checkpoint(path_ / "a");
  int32_t first = 0;
  std::memcpy(&first, read.bytes_of(read.header.tensors[0]).data(), sizeof(first));
  EXPECT_EQ(first, 9);
  EXPECT_EQ(folder_.names().size(), 1u);
}

// A process may be killed at any moment: there is none at which a name that was there is not.
TEST_F(CheckpointFolderTest, ReplacesWithoutAMomentInWhichThereIsNone) {
  write("a", 1);
  std::atomic<bool> is_over{false};
  int64_t missing = 0;
  std::thread looking([&] {
    while (!is_over) missing += access((path_ / "a" / kManifestFile).c_str(), F_OK) == 0 ? 0 : 1;
  });
  for (int i = 0; i < 20; ++i) write("a", i);
  is_over = true;
  looking.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 1) << "the old ones are gone";
}

TEST_F(CheckpointFolderTest, NamesTheOldestOfTheBestAndLeavesOutThoseWithoutAScore) {
  EXPECT_EQ(folder_.best(), std::nullopt);
  const auto score = [&](const std::string& name, const Json& value) {
    folder_.write(name, {}, {{"version", 1}, {"score", value}});
  };
  score("1", nullptr);
  write("2", 1);
  EXPECT_EQ(folder_.best(), std::nullopt);
  score("3", -5);
  EXPECT_EQ(folder_.best(), "3");
  score("4", 0.5);
  score("5", 0.5);
  score("6", 0.25);
  EXPECT_EQ(folder_.best(), "4");
  EXPECT_EQ(folder_.score_of("4"), 0.5);
  EXPECT_EQ(folder_.score_of("1"), std::nullopt);
  std::ofstream(path_ / "4" / kManifestFile) << "damaged";
  EXPECT_EQ(folder_.best(), "5");
}

TEST_F(CheckpointFolderTest, RefusesEveryFlippedBitAndEveryCut) {
  write("a", 1);
  for (const char* name : {kStateFile, kManifestFile}) {
    const fs::path file = path_ / "a" / name;
    std::ifstream in(file, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    ASSERT_FALSE(whole.empty());
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const bool cuts : {false, true}) {
        std::string damaged = whole;
        if (cuts)
          damaged.resize(at);
        else
          damaged[at] = static_cast<char>(damaged[at] ^ 4);
        std::ofstream(file, std::ios::binary) << damaged;
        const std::string error = error_of_reading("a");
        // Blanks between the tokens of the manifest mean nothing, nor do the padding's in the header.
        if (error == "none") {
          EXPECT_TRUE(cuts ? at + 1 == whole.size() : std::isspace(whole[at])) << name << " at " << at;
        } else {
          EXPECT_NE(error.find(name), std::string::npos) << error;
        }
      }
    }
    std::ofstream(file, std::ios::binary) << whole;
    EXPECT_EQ(error_of_reading("a"), "none");
  }
}

TEST_F(CheckpointFolderTest, NeverShowsAnUnfinishedOne) {
  write("a", 1);
  fs::create_directories(path_ / ".unfinished-b-1");
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"a"});
  folder_.sweep();
  EXPECT_FALSE(fs::exists(path_ / ".unfinished-b-1"));
  EXPECT_TRUE(fs::exists(path_ / "a"));
  folder_.remove("a");
  EXPECT_TRUE(folder_.names().empty());
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(CheckpointFolderTest, RefusesAManifestThatIsNone) {
  EXPECT_THROW(parse_manifest("", "m"), Error);
  EXPECT_THROW(parse_manifest("[]", "m"), Error);
  EXPECT_THROW(parse_manifest("{}", "m"), Error);
  EXPECT_THROW(parse_manifest(std::string(100000, '['), "m"), Error);
}

// Found by fuzzing: a number beyond double's range is another kind of error to the JSON library.
TEST_F(CheckpointFolderTest, RefusesANumberThatNoDoubleHolds) {
  try {
    parse_manifest(R"({"share": 1e999})", "m.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "'m.json': is not JSON: it is damaged");
  }
}

// Found by fuzzing: the message held the name as it was.
TEST_F(CheckpointFolderTest, ShowsANameFromAFileOnOneLine) {
  folder_.write("a", {{{"one\nline", StoredType::kU8, {1}}, std::as_bytes(std::span("x", 1))}},
                {{"version", 1}});
  folder_.write("b", {{{"one\nline", StoredType::kU8, {1}}, std::as_bytes(std::span("y", 1))}},
                {{"version", 1}});
  fs::copy_file(path_ / "b" / kStateFile, path_ / "a" / kStateFile, fs::copy_options::overwrite_existing);
  EXPECT_NE(error_of_reading("a").find(R"(tensor "one\x0aline": its checksum)"), std::string::npos);
}

}  // namespace
}  // namespace espalier::run
