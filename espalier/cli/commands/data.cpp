// espalier data info | convert
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "espalier/cli/commands.h"
#include "espalier/cli/flags/data.h"
#include "espalier/core/error.h"
#include "espalier/core/shared_options.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/data/sources/source.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

using data::HostDataset;
using data::HostSplit;
using watch::Table;

struct InfoFlags {
  data::SourceConfig source;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_source(v, source);
  }
};

struct ConvertOptions {
  data::SourceConfig source;
  std::string out;
  bool force = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_source(v, source);
    v({.name = "out", .help = "the file to write", .placeholder = "FILE"}, out);
    v(force_option(), force);
  }
};

int64_t size_bytes(const HostSplit& split) {
  int64_t per_sample = sizeof(int64_t);  // the label
  for (const auto& field : split.fields) per_sample += field.spec.bytes_per_sample();
  return per_sample * split.num_samples();
}

std::string channels_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.4f}", text.empty() ? "" : " ", value);
  return text;
}

void print_splits(const HostDataset& dataset) {
  Table splits({"split", ">samples", ">bytes"});
  splits.add_row(
      {"train", fmt::format("{}", dataset.train.num_samples()), format_byte_size(size_bytes(dataset.train))});
  if (dataset.has_validation())
    splits.add_row({"validation", fmt::format("{}", dataset.validation.num_samples()),
                    format_byte_size(size_bytes(dataset.validation))});
  splits.add_row(
      {"test", fmt::format("{}", dataset.test.num_samples()), format_byte_size(size_bytes(dataset.test))});
  fmt::print("\n{}", splits.text());
}

void print_fields(const HostDataset& dataset) {
  Table fields({"field", "type", "height x width x channels", "mean", "standard deviation"});
  for (size_t i = 0; i < dataset.train.fields.size(); ++i) {
    const data::FieldSpec& spec = dataset.train.fields[i].spec;
    const data::FieldStatistics& statistics = dataset.statistics.at(i);
    fields.add_row({spec.name, name_of(spec.type),
                    fmt::format("{} x {} x {}", spec.height, spec.width, spec.channels),
                    channels_text(statistics.mean), channels_text(statistics.stddev)});
  }
  fmt::print("\n{}(mean and standard deviation of the train split, a channel, of values scaled to [0, 1])\n",
             fields.text());
}

std::vector<int64_t> count_classes(const HostSplit& split, int64_t num_classes) {
  std::vector<int64_t> counts(static_cast<size_t>(num_classes), 0);
  for (const int64_t label : split.labels) ++counts.at(static_cast<size_t>(label));
  return counts;
}

void print_classes(const HostDataset& dataset) {
  const std::vector<int64_t> train = count_classes(dataset.train, dataset.num_classes());
  const std::vector<int64_t> test = count_classes(dataset.test, dataset.num_classes());
  Table classes({">class", "name", ">train", ">test"});
  for (size_t i = 0; i < dataset.class_names.size(); ++i) {
    classes.add_row({fmt::format("{}", i), dataset.class_names[i], fmt::format("{}", train[i]),
                     fmt::format("{}", test[i])});
  }
  fmt::print("\n{} classes\n{}", dataset.num_classes(), classes.text());
}

void print_skipped(const HostDataset& dataset) {
  fmt::print("\n{} samples skipped{}\n", dataset.skipped.size(), dataset.skipped.empty() ? "" : ":");
  for (const data::BadSample& bad : dataset.skipped)
    fmt::print("  {} (sample {}): {}\n", bad.path, bad.index, bad.reason);
}

int run_info(const InfoFlags& flags, Context& context) {
  const HostDataset dataset = data::load_source(flags.source, context.progress());
  fmt::print("{}\n", dataset.origin);
  print_splits(dataset);
  print_fields(dataset);
  print_classes(dataset);
  print_skipped(dataset);
  return 0;
}

int run_convert(const ConvertOptions& options, Context& context) {
  namespace fs = std::filesystem;
  if (options.out.empty()) {
    fail_usage("data convert: OUT is missing: espalier data convert SRC OUT.safetensors");
  }
  // Before the work, not after it.
  const fs::path out = options.out;
  if (fs::exists(fs::symlink_status(out)) && !options.force) {
    fail_usage("data convert: {} exists; give --force to overwrite it, or another name", options.out);
  }
  const fs::path folder = out.has_parent_path() ? out.parent_path() : fs::path(".");
  if (!fs::is_directory(folder)) {
    fail_usage("data convert: {}: its directory {} does not exist", options.out, folder.string());
  }

  const HostDataset dataset = data::load_source(options.source, context.progress());
  const auto begin = std::chrono::steady_clock::now();
  data::write_safetensors(dataset, options.out, context.progress());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto written_bytes = static_cast<int64_t>(fs::file_size(out));
  if (!dataset.skipped.empty()) print_skipped(dataset);
  fmt::print("{}: {} bytes ({}) in {:.2f} s\n", options.out, written_bytes, format_byte_size(written_bytes),
             seconds);
  return 0;
}

}  // namespace

void add_data_command(CLI::App& app, Context& context) {
  CLI::App& data = add_group(app, "data", "look at data, or convert it to the form that loads fastest");
  add_job<InfoFlags>(data, context,
                     {.name = "info",
                      .summary = "print the splits, shapes, classes, bytes, mean and standard deviation",
                      .examples = "  espalier data info synthetic:rgbd --synthetic-size 64x64\n"
                                  "  espalier data info folder:photos --resize 32x32 --on-bad-sample skip",
                      .positionals = {{"data", "SRC"}}},
                     run_info);
  add_job<ConvertOptions>(
      data, context,
      {.name = "convert",
       .summary = "write a source as one safetensors file, which loads in a tenth of a second",
       .examples = "  espalier data convert cifar10:cifar-10-binary.tar.gz cifar10.safetensors\n"
                   "  espalier data info safetensors:cifar10.safetensors",
       .positionals = {{"data", "SRC"}, {"out", "OUT"}}},
      run_convert);
}

}  // namespace espalier::cli
