#include "espalier/run/files/packed_metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// More than one piece of the compressor's.
std::string many_lines() {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "{\"kind\":\"epoch\",\"epoch\":" + std::to_string(i) + "}\n";
  return text;
}

TEST(PackedMetrics, ComeBackByteForByte) {
  const support::TemporaryFolder run;
  for (const std::string& text : {std::string(), std::string("{}\n"), many_lines()}) {
    run.write("metrics.jsonl", text);
    EXPECT_FALSE(is_packed(run.path()));
    const int64_t saved = pack_metrics(run.path());
    EXPECT_TRUE(is_packed(run.path()));
    EXPECT_FALSE(fs::exists(run.path() / "metrics.jsonl"));
    EXPECT_EQ(saved, std::ssize(text) - static_cast<int64_t>(fs::file_size(run.path() / kPackedMetrics)));
    std::string read;
    read_packed(run.path(), [&](std::string_view piece) { read += piece; });
    EXPECT_EQ(read, text);
    unpack_metrics(run.path());
    EXPECT_EQ(text_in(run.path() / "metrics.jsonl"), text);
    EXPECT_FALSE(fs::exists(run.path() / kPackedMetrics));
  }
  EXPECT_GT(many_lines().size(), size_t{1} << 20);
}

TEST(PackedMetrics, OfADamagedFileAreRefusedAndLeaveItThere) {
  const support::TemporaryFolder run;
  run.write("metrics.jsonl", many_lines());
  pack_metrics(run.path());
  const std::string whole = text_in(run.path() / kPackedMetrics);
  for (const std::string& damaged :
       {whole.substr(0, whole.size() / 2), whole + "more", std::string("no gzip")}) {
    run.write(kPackedMetrics, damaged);
    EXPECT_ERROR(unpack_metrics(run.path()), Error, "metrics.jsonl.gz", "damaged");
    EXPECT_TRUE(is_packed(run.path()));
    read_packed(run.path(), [](std::string_view) {});  // ends
  }
}

TEST(PackedMetrics, DoNotCountWherePlainOnesAreBesideThem) {
  const support::TemporaryFolder run;
  run.write("metrics.jsonl", "one\n");
  run.write(kPackedMetrics, "left by a crash");
  EXPECT_FALSE(is_packed(run.path()));
  unpack_metrics(run.path());
  EXPECT_EQ(text_in(run.path() / "metrics.jsonl"), "one\n");
}

}  // namespace
}  // namespace espalier::run
