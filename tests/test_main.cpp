// The test program of every folder that uses torch: as GoogleTest's own, and the cache emptied before exit.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
