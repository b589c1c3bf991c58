#include "espalier/core/text/metadata_numbers.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

constexpr NumberRange kRange{1, 1000};

TEST(MetadataNumbers, AreReadWhereTheyAreWholeAndInRange) {
  EXPECT_EQ(metadata_number({{"n", "1"}}, "n", kRange, "f"), 1);
  EXPECT_EQ(metadata_number({{"n", "1000"}}, "n", kRange, "f"), 1000);
  EXPECT_EQ(metadata_numbers({{"n", "3,1,2"}}, "n", kRange, "f"), (std::vector<int64_t>{3, 1, 2}));
}

TEST(MetadataNumbers, AreRefusedNamingFileKeyAndText) {
  for (const char* text : {"", "x", "0", "1001", "-3", "1.5", " 1", "1 ", "0x10", "99999999999999999999"}) {
    EXPECT_ERROR(metadata_number({{"n", text}}, "n", kRange, "a.file"), Error, "'a.file'", "'n'", "1 to 1000",
                 fmt::format("'{}'", text));
    EXPECT_ERROR(metadata_numbers({{"n", std::string("2,") + text}}, "n", kRange, "a.file"), Error,
                 "'a.file'", "'n'", "1 to 1000", fmt::format("'2,{}'", text));
  }
  EXPECT_ERROR(metadata_numbers({{"n", ""}}, "n", kRange, "a.file"), Error, "'n'", "''");
  EXPECT_ERROR(metadata_number({}, "n", kRange, "a.file"), Error, "'a.file'", "no 'n'");
}

TEST(MetadataNumbers, ShowAHostileTextOnOneShortLine) {
  try {
    metadata_number({{"n", "\x1b\n" + std::string(100000, '9')}}, "n", kRange, "f");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find_first_of("\x1b\n"), std::string::npos);
    EXPECT_LT(message.size(), 1000u);
  }
}

}  // namespace
}  // namespace espalier
