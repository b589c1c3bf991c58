#include "espalier/data/sources/cifar/format.h"

#include "espalier/core/error.h"

namespace espalier::data {

namespace {

CifarFormat cifar10() {
  CifarFormat format;
  format.kind = "cifar10";
  format.num_classes = 10;
  for (int64_t i = 0; i < 5; ++i) {
    format.batches.push_back({.name = fmt::format("data_batch_{}", i + 1),
                              .is_train = true,
                              .first_image = i * 10000,
                              .num_images = 10000});
  }
  format.batches.push_back({.name = "test_batch", .is_train = false, .first_image = 0, .num_images = 10000});
  format.folders = {"cifar-10-batches-bin", "cifar-10-batches-py"};
  format.archives = {"cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"};
  format.meta = {"batches.meta.txt", "batches.meta"};
  format.labels_key = "labels";
  format.names_key = "label_names";
  format.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                        "dog",      "frog",       "horse", "ship", "truck"};
  return format;
}

CifarFormat cifar100() {
  CifarFormat format;
  format.kind = "cifar100";
  format.num_classes = 100;
  format.num_coarse_classes = 20;
  format.batches = {{.name = "train", .is_train = true, .first_image = 0, .num_images = 50000},
                    {.name = "test", .is_train = false, .first_image = 0, .num_images = 10000}};
  format.folders = {"cifar-100-binary", "cifar-100-python"};
  format.archives = {"cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"};
  format.meta = {"fine_label_names.txt", "meta"};
  format.labels_key = "fine_labels";
  format.names_key = "fine_label_names";
  format.class_names = {
      "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
      "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
      "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
      "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
      "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
      "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
      "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
      "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
      "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
      "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
      "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
      "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
      "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
      "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
      "table",       "tank",          "telephone", "television", "tiger",        "tractor",
      "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
      "willow_tree", "wolf",          "woman",     "worm"};
  return format;
}

}  // namespace

int64_t CifarFormat::num_images(bool is_train) const {
  int64_t total = 0;
  for (const CifarBatch& batch : batches) total += batch.is_train == is_train ? batch.num_images : 0;
  return total;
}

CifarFormat cifar_format(int num_classes) {
  if (num_classes == 10) return cifar10();
  if (num_classes == 100) return cifar100();
  fail("cifar: {} classes asked for; expected 10 or 100", num_classes);
}

}  // namespace espalier::data
