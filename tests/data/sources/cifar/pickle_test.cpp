#include "espalier/data/sources/cifar/pickle.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/data/sources/cifar_files.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {

namespace {

using namespace testing;
using namespace std::string_literals;

PickledBatch read(const std::string& pickle, const std::string& key = "labels") {
  return read_pickled_batch(bytes_of_string(pickle), "data_batch_1", key);
}

std::string error_for(const std::string& pickle) {
  return error_of([&] { read(pickle); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A batch of one image as numpy under Python 3 writes it; `data` is the array's bytes as an instruction.
std::string python3_batch(const std::string& protocol, const std::string& data, const std::string& letter_b) {
  std::string pickle = "\x80" + protocol + "}(X\x04\0\0\0data"s;
  pickle += "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"s + letter_b +
            "\x87R(K\x01K\x01M\0\x0c\x86"s;
  pickle +=
      "cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"s;
  return pickle + data + "tbX\x06\0\0\0labels]K\x07"s + "au.";
}

const CifarFormat kFormat = tiny_format(10);

}  // namespace

TEST(CifarPickle, ReadsWhatPython2Wrote) {
  const std::string pickle = python_batch(kFormat, 1);
  const PickledBatch batch = read(pickle);
  EXPECT_EQ(batch.num_images, 2);
  EXPECT_FALSE(batch.is_column_major);
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{label_of(kFormat, 1, 0), label_of(kFormat, 1, 1)}));
  const std::string images = image_bytes(1, 0) + image_bytes(1, 1);
  ASSERT_EQ(batch.images.size(), images.size());
  EXPECT_EQ(std::memcmp(batch.images.data(), images.data(), images.size()), 0);
}

TEST(CifarPickle, ReadsFineLabelsOfCifar100) {
  const CifarFormat format = tiny_format(100);
  EXPECT_EQ(read(python_batch(format, 0), "fine_labels").labels, (std::vector<int64_t>{0, 1}));
  expect_contains(error_of([&] { read(python_batch(format, 0), "labels"); }), "no 'labels'");
}

TEST(CifarPickle, ReadsWhatPython3WritesAsBytes) {
  const std::string image = image_bytes(0, 0);
  const PickledBatch batch = read(python3_batch("\x03", "B\0\x0c\0\0"s + image, "C\x01"s + "b"));
  EXPECT_EQ(batch.labels, std::vector<int64_t>{7});
  EXPECT_EQ(batch.images.size(), 3072u);
}

TEST(CifarPickle, ReadsWhatPython3WritesAsLatin1Text) {
  std::string text;
  const std::string image = image_bytes(5, 0);  // has values on both sides of 128
  for (const char c : image) {
    const auto value = static_cast<unsigned char>(c);
    if (value >= 0x80) text += static_cast<char>(0xc0 | value >> 6);
    text += static_cast<char>(value >= 0x80 ? 0x80 | (value & 0x3f) : value);
  }
  const std::string encode = "c_codecs\nencode\n";
  const std::string latin1 = "X\x06\0\0\0latin1\x86R"s;
  const std::string data = encode + "X" + little_endian(text.size(), 4) + text + latin1;
  const std::string pickle = python3_batch("\x02", data, encode + "X\x01\0\0\0b"s + latin1);
  const PickledBatch batch = read(pickle);
  ASSERT_EQ(batch.images.size(), image.size());
  EXPECT_EQ(std::memcmp(batch.images.data(), image.data(), image.size()), 0);
}

TEST(CifarPickle, SaysWhenAnArrayIsColumnMajor) {
  EXPECT_TRUE(read(replaced(python_batch(kFormat, 0), "\x89T", "\x88T")).is_column_major);
}

TEST(CifarPickle, RefusesAnOpcodeThatCallsCode) {
  // What an attack looks like: os.system("true").
  expect_contains(error_for("\x80\x02"s + "cos\nsystem\nU\x04true\x85R."), "names 'os system'");
  expect_contains(error_for("\x80\x02"s + "(ios\nsystem\n."), "opcode 0x69 (INST) (byte 3 of 15)");
  expect_contains(error_for("\x80\x02"s + "cnumpy\nndarray\n)\x81."), "opcode 0x81 (NEWOBJ) (byte 18 of 20)");
  expect_contains(error_for("\x80\x04"s + "\x8c\x08" + "builtins\x8c\x04" + "eval\x93."),
                  "names 'builtins eval'");
}

TEST(CifarPickle, RefusesEveryOpcodeThatTheFilesDoNotUse) {
  const std::string used = "(.)]}NKMJUTCBXabceqrhjstuR\x80\x85\x86\x87\x88\x89\x8a\x8c\x8e\x93\x94\x95";
  for (int code = 0; code < 256; ++code) {
    if (used.find(static_cast<char>(code)) != std::string::npos) continue;
    const std::string error = error_for("\x80\x02"s + static_cast<char>(code) + std::string(64, '\0'));
    expect_contains(error, fmt::format("opcode {:#04x}", code));
    expect_contains(error, "byte 2 of 67");
  }
}

TEST(CifarPickle, RefusesOtherArrays) {
  const std::string pickle = python_batch(kFormat, 0);
  expect_contains(error_for(replaced(pickle, "U\x02u1", "U\x02i8")), "another type than uint8");
  expect_contains(error_for(replaced(pickle, "M\x00\x0c\x86"s, "M\x01\x0c\x86"s)), "expected [images, 3072]");
  expect_contains(error_for(replaced(pickle, "K\x02M"s, "K\x03M"s)), "6144 bytes, expected 3 images of 3072");
  expect_contains(error_for(replaced(pickle, "K\x02M"s, "J\xff\xff\xff\x7fM"s)),
                  "expected 2147483647 images");
  expect_contains(error_for(replaced(pickle, "K\x02M"s, "J\xff\xff\xff\xffM"s)), "expected [images, 3072]");
}

TEST(CifarPickle, RefusesLabelsThatDoNotFit) {
  const std::string pickle = python_batch(kFormat, 0);
  expect_contains(error_for(replaced(pickle, "K\x00K\x01"s, "K\x00"s)), "1 entries in 'labels' for 2 images");
  expect_contains(error_for(replaced(pickle, "K\x00K\x01"s, "K\x00N"s)),
                  "entry 1 of 'labels' is not an integer");
}

TEST(CifarPickle, RefusesAListThatClaimsMoreBytesThanThereAre) {
  expect_contains(error_for("\x80\x02T\xff\xff\xff\x7fx"s), "ends inside an instruction (byte 2 of 8)");
  expect_contains(error_for("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s), "ends inside an instruction");
}

TEST(CifarPickle, BoundsTheWorkASmallFileCanAskFor) {
  const std::string encode =
      "c_codecs\nencode\nq\x01X\xff\0\0\0"s + std::string(255, 'x') + "q\x02X\x06\0\0\0latin1q\x03\x86R"s;
  std::string again;
  for (int i = 0; i < 100; ++i) again += "h\x01h\x02h\x03\x86R"s;
  expect_contains(error_for("\x80\x02"s + encode + again + "."), "repeatedly");
  expect_contains(error_for("\x80\x02"s + std::string(2 << 20, 'N')), "more than 1048576 instructions");
}

TEST(CifarPickle, TakesAListThatContainsItselfForWhatItIs) {
  const std::string pickle =
      "\x80\x02}("s + short_string("labels") + "]q\x01h\x01" + "a" + short_string("data") + "h\x01u.";
  expect_contains(error_for(pickle), "'data' in the pickle is not a numpy array");
}

TEST(CifarPickle, RefusesTruncationAtEveryLength) {
  const std::string pickle = python_batch(kFormat, 0);
  for (size_t size = 0; size < pickle.size(); ++size) {
    EXPECT_NE(error_for(pickle.substr(0, size)), "") << "at length " << size;
  }
  expect_contains(error_for(pickle + "x"), "goes on after its end");
}

TEST(CifarPickle, SurvivesRandomDamage) {
  const std::string images = image_bytes(0, 0) + image_bytes(0, 1);
  const std::string pickle = python_batch(kFormat, 0);
  const size_t images_at = pickle.find(images);
  ASSERT_NE(images_at, std::string::npos);
  std::mt19937 random(3);
  DamageCount count;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = pickle;
    for (unsigned flips = 1 + static_cast<unsigned>(random() % 3); flips > 0; --flips) {
      // Outside the pixels, where every byte is an instruction or its argument.
      size_t at = random() % (pickle.size() - images.size());
      if (at >= images_at) at += images.size();
      damaged[at] = random() % 2 == 0 ? static_cast<char>(random()) : pickle[random() % images_at];
    }
    PickledBatch batch;
    const std::string error = error_of([&] { batch = read(damaged); });
    ++(error.empty() ? count.accepted : count.refused);
    if (!error.empty()) {
      expect_sentence(error, "data_batch_1");
      continue;
    }
    // Labels and the order of axes are among the bytes that were damaged; the pixels are not.
    EXPECT_EQ(batch.num_images, 2) << "round " << round;
    EXPECT_EQ(batch.labels.size(), 2u) << "round " << round;
    ASSERT_EQ(batch.images.size(), images.size()) << "round " << round;
    EXPECT_EQ(std::memcmp(batch.images.data(), images.data(), images.size()), 0) << "round " << round;
  }
  EXPECT_GT(count.accepted, 0) << "damage to a file name alone should not matter";
  EXPECT_GT(count.refused, 10000);
}

TEST(CifarPickle, ReadsClassNames) {
  const std::string meta = python_meta(kFormat);
  EXPECT_EQ(read_pickled_names(bytes_of_string(meta), "batches.meta", "label_names", 10),
            other_names(kFormat));
  expect_contains(
      error_of([&] { read_pickled_names(bytes_of_string(meta), "batches.meta", "label_names", 11); }),
      "10 class names, expected 11");
  for (size_t size = 0; size < meta.size(); ++size) {
    const std::string part = meta.substr(0, size);
    EXPECT_NE(error_of([&] { read_pickled_names(bytes_of_string(part), "m", "label_names", 10); }), "");
  }
}

}  // namespace espalier::data
