// Decodes an image folder, on all cores, every image straight to its place in the field's one buffer.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/data/sources/images/channels.h"
#include "espalier/data/sources/images/decode.h"
#include "espalier/data/sources/images/folder_listing.h"
#include "espalier/data/sources/images/resize.h"
#include "espalier/data/sources/input_file.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {
namespace {

// The whole file; `bytes` is reused from file to file. What cannot be read is always an error, also under
// on-bad-sample skip: a missing permission or a failing disk says nothing about the image.
void read_file(const std::string& path, std::vector<std::byte>& bytes) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 31;  // the largest image we decode, stored as it is
  const InputFile file(path);
  if (file.size_bytes() > kMaxFileBytes) {
    fail("folder: '{}' has {} bytes; an image file has at most {}", path, file.size_bytes(), kMaxFileBytes);
  }
  bytes.resize(static_cast<size_t>(file.size_bytes()));
  bytes.resize(file.read_some(0, bytes));  // less when it was cut since: the decoder will say so
}

// One field while its images are decoded. The first sound image of train sets the shape for all.
struct FieldJob {
  std::string name;
  ImageShape shape;  // the field's; with resize, its height and width are the target
  ImageShape first_shape;
  std::string first_path;
  int64_t channels = 0;  // that all are brought to; 0: they must agree
};

struct Scratch {
  std::vector<std::byte> file;
  std::vector<std::byte> image;      // [H,W,C] before it is resized
  std::vector<std::byte> converted;  // the same with the field's channels
};

// Decodes `path` to `out` ([H,W,C], job.shape). Returns why it cannot be decoded, or nothing when it was;
// fails where it can be decoded and does not fit: that is no damage, and skipping would hide it.
std::optional<std::string> decode_file(const std::string& path, const FieldJob& job, bool resizes,
                                       std::span<std::byte> out, Scratch& scratch) {
  read_file(path, scratch.file);
  ImageShape shape;
  try {
    const auto decoder = open_image(scratch.file);
    shape = decoder->shape();
    if (shape == job.shape) {
      decoder->decode(out);
      return std::nullopt;
    }
    scratch.image.resize(static_cast<size_t>(shape.size_bytes()));
    decoder->decode(scratch.image);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    fail("folder: not enough host memory to decode '{}'", path);
  }
  if (job.channels != 0 && shape.channels != job.channels && shape.type == SampleType::kU8) {
    scratch.converted.resize(static_cast<size_t>(shape.height * shape.width * job.channels));
    convert_channels(shape, scratch.image, job.channels, scratch.converted);
    scratch.image.swap(scratch.converted);
    shape.channels = job.channels;
    if (shape == job.shape) {
      std::ranges::copy(scratch.image, out.begin());
      return std::nullopt;
    }
  }
  const bool is_same_kind = shape.channels == job.shape.channels && shape.type == job.shape.type;
  if (resizes && is_same_kind) {
    try {
      resize_into(shape, scratch.image, {.height = job.shape.height, .width = job.shape.width}, out);
    } catch (const Error& error) {
      fail("folder: '{}': {}", path, error.what());
    }
    return std::nullopt;
  }
  fail("folder: '{}' is {}; the first image, '{}', is {}: {}", path, describe(shape), job.first_path,
       describe(job.first_shape),
       is_same_kind ? "give --resize HxW to bring them to one size"
       : shape.type == SampleType::kU8 && job.shape.type == SampleType::kU8
           ? "give --channels 1 or --channels 3 to make all of them grey or colour"
           : "convert the images of a field to one number of channels and bits");
}

std::string bad_sample_text(const BadSample& bad, const char* split_name) {
  return fmt::format(
      "folder: '{}' (sample {} of {}) cannot be decoded: {}; repair or remove it, or pass --on-bad-sample "
      "skip",
      bad.path, bad.index, split_name, bad.reason);
}

// The shape of a field: that of its first image that decodes as a whole (under skip, a damaged one may lie).
FieldJob start_field(const std::string& name, const std::vector<std::string>& files,
                     const SourceConfig& options, const char* split_name) {
  const bool skips = options.on_bad_sample == OnBadSample::kSkip;
  Scratch scratch;
  for (size_t i = 0; i < files.size(); ++i) {
    read_file(files[i], scratch.file);
    try {
      const ImageShape shape = decode_image(scratch.file).shape;
      FieldJob job{.name = name, .shape = shape, .first_shape = shape, .first_path = files[i]};
      if (options.resize) {
        job.shape.height = options.resize->height;
        job.shape.width = options.resize->width;
      }
      // 16 bits hold depth, which has no colour.
      if (options.channels != 0 && shape.type == SampleType::kU8)
        job.shape.channels = job.channels = options.channels;
      return job;
    } catch (const Error& error) {
      const BadSample bad{.path = files[i], .index = static_cast<int64_t>(i), .reason = error.what()};
      if (!skips) throw Error(bad_sample_text(bad, split_name));
    }
  }
  fail("folder: none of the {} files of field '{}' in {} can be decoded; the first is '{}'", files.size(),
       name, split_name, files.front());
}

class Loader {
 public:
  // split_name: of the split that says what a field looks like, for messages.
  Loader(const FolderListing& listing, const SourceConfig& options, const Progress& progress,
         const char* split_name = "train")
      : listing_(listing),
        skips_(options.on_bad_sample == OnBadSample::kSkip),
        progress_(progress),
        total_(static_cast<int64_t>(listing.train.labels.size() + listing.validation.labels.size() +
                                    listing.test.labels.size())) {
    if (options.channels != 0 && options.channels != 1 && options.channels != 3)
      fail_usage("--channels {}: want 1 (grey) or 3 (colour)", options.channels);
    if (options.resize) {
      check_size("--resize", *options.resize);
      if (options.resize->height * options.resize->width > kMaxImagePixels)
        fail_usage("--resize {}: at most {} pixels per image", size_text(*options.resize), kMaxImagePixels);
      resizes_ = true;
    }
    for (size_t f = 0; f < listing.fields.size(); ++f) {
      jobs_.push_back(start_field(listing.fields[f], listing.train.files[f], options, split_name));
    }
  }

  HostSplit load(const FolderSplit& files, const char* split_name, std::vector<BadSample>& skipped) {
    const auto num_samples = static_cast<int64_t>(files.labels.size());
    HostSplit split{.fields = {}, .labels = files.labels};
    std::vector<std::shared_ptr<std::byte>> buffers;  // one per field, [N,H,W,C]
    for (const FieldJob& job : jobs_) {
      const ImageShape& s = job.shape;
      NewField made = allocate_field({job.name, s.type, s.height, s.width, s.channels}, num_samples);
      buffers.push_back(std::move(made.values));
      split.fields.push_back(std::move(made.field));
    }
    std::vector<BadSample> bad = decode_all(files, split_name, buffers);
    if (!bad.empty()) {
      remove_bad(bad, buffers, split.labels);
      for (HostField& field : split.fields) field.size_bytes = field.spec.size_bytes(split.num_samples());
      check_classes_left(split.labels, files.labels, split_name);
      std::move(bad.begin(), bad.end(), std::back_inserter(skipped));
    }
    return split;
  }

 private:
  // Every sample to its place, counting the bad ones; these are returned in order, one entry per sample.
  std::vector<BadSample> decode_all(const FolderSplit& files, const char* split_name,
                                    const std::vector<std::shared_ptr<std::byte>>& buffers) {
    std::vector<BadSample> bad;
    std::mutex mutex;  // guards `bad`, `done_` and the call of progress_
    // Few enough that large images still spread evenly over the cores and the bar moves; the lock is nothing
    // beside 16 decodings.
    constexpr int64_t kGrain = 16;
    parallel_ranges(static_cast<int64_t>(files.labels.size()), kGrain, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      std::vector<BadSample> bad_here;
      for (int64_t i = begin; i < end; ++i) {
        for (size_t f = 0; f < jobs_.size(); ++f) {
          const int64_t size_bytes = jobs_[f].shape.size_bytes();
          const std::string& path = files.files[f][static_cast<size_t>(i)];
          const std::span out(buffers[f].get() + i * size_bytes, static_cast<size_t>(size_bytes));
          auto reason = decode_file(path, jobs_[f], resizes_, out, scratch);
          if (!reason) continue;
          bad_here.push_back({.path = path, .index = i, .reason = std::move(*reason)});
          if (!skips_) throw Error(bad_sample_text(bad_here.back(), split_name));
          break;  // the sample is out, in all fields
        }
      }
      const std::lock_guard lock(mutex);
      std::move(bad_here.begin(), bad_here.end(), std::back_inserter(bad));
      done_ += end - begin;
      if (progress_) progress_("decoding images", done_, total_);
    });
    std::sort(bad.begin(), bad.end(),
              [](const BadSample& a, const BadSample& b) { return a.index < b.index; });
    return bad;
  }

  // Closes the gaps, in every field and in the labels alike. `bad` is sorted by index.
  void remove_bad(const std::vector<BadSample>& bad, const std::vector<std::shared_ptr<std::byte>>& buffers,
                  std::vector<int64_t>& labels) const {
    const auto num_samples = static_cast<int64_t>(labels.size());
    int64_t to = bad.front().index;
    for (size_t b = 0; b < bad.size(); ++b) {
      const int64_t from = bad[b].index + 1;
      const int64_t count = (b + 1 < bad.size() ? bad[b + 1].index : num_samples) - from;
      for (size_t f = 0; f < jobs_.size(); ++f) {
        const int64_t size_bytes = jobs_[f].shape.size_bytes();
        std::byte* values = buffers[f].get();
        std::memmove(values + to * size_bytes, values + from * size_bytes,
                     static_cast<size_t>(count * size_bytes));
      }
      std::copy_n(labels.begin() + from, count, labels.begin() + to);
      to += count;
    }
    labels.resize(static_cast<size_t>(to));
  }

  // A class of which nothing is left would be an empty class, which the listing refuses.
  void check_classes_left(const std::vector<int64_t>& left, const std::vector<int64_t>& before,
                          const char* split_name) const {
    for (int64_t c = 0; c < static_cast<int64_t>(listing_.class_names.size()); ++c) {
      if (std::binary_search(left.begin(), left.end(), c)) continue;  // labels are sorted: class by class
      fail(
          "folder: none of the {} images of class '{}' in {} can be decoded; repair them, or remove the "
          "class "
          "everywhere",
          std::count(before.begin(), before.end(), c), listing_.class_names[static_cast<size_t>(c)],
          split_name);
    }
  }

  const FolderListing& listing_;
  const bool skips_;
  const Progress& progress_;
  const int64_t total_;
  int64_t done_ = 0;
  bool resizes_ = false;
  std::vector<FieldJob> jobs_;
};

}  // namespace

HostDataset load_folder(const std::string& place, const SourceConfig& options, const Progress& progress) {
  const FolderListing listing = list_folder(place);
  Loader loader(listing, options, progress);
  HostDataset dataset;
  dataset.origin = "folder:" + place;
  dataset.class_names = listing.class_names;
  dataset.train = loader.load(listing.train, "train", dataset.skipped);
  if (!listing.validation.files.empty())
    dataset.validation = loader.load(listing.validation, "validation", dataset.skipped);
  dataset.test = loader.load(listing.test, listing.test_name.c_str(), dataset.skipped);
  for (const HostField& field : dataset.train.fields) {
    dataset.statistics.push_back(compute_statistics(field, dataset.train.num_samples()));
  }
  return dataset;
}

UnlabelledImages load_plain_folder(const std::string& place, const SourceConfig& options,
                                   const Progress& progress) {
  constexpr const char* kSplit = "the folder";
  FolderListing listing{.fields = {"image"}};
  listing.train.files = {list_plain_folder(place)};
  listing.train.labels.assign(listing.train.files.front().size(), 0);
  UnlabelledImages images{.origin = "folder:" + place};
  Loader loader(listing, options, progress, kSplit);
  images.images = loader.load(listing.train, kSplit, images.skipped);
  for (const std::string& file : listing.train.files.front())
    if (std::ranges::find(images.skipped, file, &BadSample::path) == images.skipped.end())
      images.files.push_back(file);
  return images;
}

}  // namespace espalier::data
