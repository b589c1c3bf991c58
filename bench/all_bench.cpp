#include "bench/all_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "bench/gather_bench.h"
#include "bench/growing/growing_bench.h"
#include "bench/linet/linet_bench.h"
#include "bench/population_bench.h"
#include "bench/ppo_bench.h"
#include "bench/results.h"
#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 5> kRows{"growing", "ppo", "population", "linet", "gather"};

// How large everything is: on a GPU the sizes that the project is judged by, on the CPU small ones, and with
// --smoke such that all of it takes less than a minute.
struct Sizes {
  GrowingBenchOptions growing;
  struct Ppo {
    std::string name, shapes;
    Words flags;
  };
  std::vector<Ppo> ppo;
  int64_t num_warm_rounds = 2;
  struct Population {
    int64_t lanes, batch, base;
  };
  std::vector<Population> populations;
  LinetBenchOptions linet;
  GatherBenchOptions gather;
};

// Flags as one types them, and the data, whose name may have spaces.
Words flags_of(const std::string& text, const std::string& data) {
  std::istringstream in(text);
  Words flags{std::istream_iterator<std::string>(in), {}};
  flags.insert(flags.end(), {"--data", data});
  return flags;
}

Sizes gpu_sizes(const std::string& data) {
  const std::string common = "--host cifar_baseline --synthetic-train 50000 --synthetic-test 10000 ";
  const auto round_of = [&](int lanes) {
    return flags_of(common + fmt::format("--slots r0c0,r0c1,r0c2 --max-seeds 3 --batch 512 --rounds 8 "
                                         "--episode-length 12 --lanes {}",
                                         lanes),
                    data);
  };
  Sizes sizes;
  sizes.ppo = {
      {"PPO episode", "32 networks x 40 steps, split, batch 64",
       flags_of(
           common + "--plan split --batch 64 --validation 2000 --rounds 6 --episode-length 40 --lanes 32",
           data)},
      {"PPO round", "8 networks x 12 steps", round_of(8)},
      {"PPO round", "32 networks x 12 steps", round_of(32)}};
  sizes.populations = {{128, 64, 8}, {8, 512, 32}, {128, 64, 32}, {1, 64, 8}};
  sizes.gather.lanes = 8;
  sizes.gather.batch = 512;
  return sizes;
}

Sizes cpu_sizes(const std::string& data, bool smoke) {
  const std::string common =
      smoke
          ? "--host tiny --synthetic-size 8x8 --synthetic-train 80 --synthetic-test 40 --plan split --batch "
            "10 "
            "--validation 20 --batches-per-step 2 --crop-pad 1 --encoder-size 32 --hidden-size 32 --rounds 2 "
          : "--host tiny --synthetic-size 16x16 --synthetic-train 1500 --synthetic-test 40 --plan split "
            "--batch 32 "
            "--validation 200 --batches-per-step 10 --crop-pad 1 --encoder-size 32 --hidden-size 32 --rounds "
            "5 ";
  const auto episode_of = [&](int lanes, int steps) {
    return flags_of(common + fmt::format("--lanes {} --episode-length {}", lanes, steps), data);
  };
  Sizes sizes;
  sizes.growing.lanes = 4;
  sizes.growing.batch = 32;
  sizes.growing.seeds = 9;
  sizes.growing.steps = 20;
  sizes.growing.validation = 200;
  sizes.ppo = {{"PPO episode", "4 networks x 8 steps, host tiny", episode_of(4, 8)},
               {"PPO round", "2 networks x 4 steps, host tiny", episode_of(2, 4)},
               {"PPO round", "4 networks x 4 steps, host tiny", episode_of(4, 4)}};
  sizes.populations = {{8, 64, 8}, {2, 64, 32}, {8, 16, 32}, {1, 64, 8}};
  sizes.linet.width = 0.25;
  sizes.linet.batch = 2;
  sizes.linet.height = 64;
  sizes.linet.columns = 96;
  sizes.gather.lanes = 8;
  sizes.gather.batch = 64;
  if (!smoke) return sizes;
  sizes.ppo.resize(1);
  sizes.num_warm_rounds = 1;
  sizes.populations = {{2, 8, 4}, {1, 8, 4}};
  sizes.gather.batch = 8;
  return sizes;
}

// A row that is measured as one: what it is called, and what adds its cases.
struct Workload {
  std::string title;
  std::function<void()> measure;
};

class AllBench {
 public:
  AllBench(const AllBenchOptions& options, const ProgramNames& names, const Progress& progress)
      : options_(options),
        progress_(progress),
        name_(choose_device(options.device)),
        device_(torch_device(name_)),
        type_(train::precision_type(options.precision, device_)) {
    for (const std::string& row : options.rows)
      if (std::ranges::find(kRows, row) == kRows.end())
        fail_usage("--rows '{}': want some of {}", row, fmt::join(kRows, ", "));
    results_ = {.card = card_text(device_),
                .machine = machine_text(device_),
                .torch = names.torch,
                .commit = names.commit,
                .command = names.command,
                .began = now_text(),
                .precision = type_name(type_),
                .repeats = options.bench.smoke ? 1 : options.repeats,
                .is_smoke = options.bench.smoke};
    choose_path();
  }

  std::string run() {
    constexpr const char* kRates = "what the machine copies and multiplies";
    tell(kRates, 0, 1);
    results_.rates = measure_rates(device_, type_, options_.bench.smoke);
    tell(kRates, 1, 1);
    const Sizes sizes = device_.is_cpu() || options_.bench.smoke
                            ? cpu_sizes(options_.data, options_.bench.smoke)
                            : gpu_sizes(options_.data);
    const std::vector<Workload> workloads = workloads_of(sizes);
    const int64_t total = results_.repeats * std::ssize(workloads);
    int64_t done = 0;
    // All rows once, then all again: a machine that is disturbed for a while spoils one repeat of a few rows.
    for (int64_t repeat = 0; repeat < results_.repeats; ++repeat) {
      for (const Workload& workload : workloads) {
        throw_if_interrupted();
        const std::string title = fmt::format("{} of {}: {}", ++done, total, workload.title);
        tell(title, 0, 1);
        workload.measure();
        write();
        tell(title, 1, 1);
      }
    }
    results_.is_complete = true;
    write();
    return fmt::format(
        "{}\nresults are in {}\nthe table of a document is written by: espalier bench table {} --docs FILE\n",
        markdown_table(results_), path_.string(), path_.string());
  }

 private:
  // A file of an earlier run is kept: -2, -3 and so on.
  void choose_path() {
    std::error_code code;
    fs::create_directories(options_.out, code);
    if (!fs::is_directory(options_.out, code))
      fail_usage("--out '{}': want a folder that can be written to", options_.out);
    const std::string stem = file_stem(results_.card, results_.began);
    path_ = fs::path(options_.out) / (stem + ".json");
    for (int number = 2; fs::exists(path_); ++number)
      path_ = fs::path(options_.out) / fmt::format("{}-{}.json", stem, number);
    write();
  }

  void write() const {
    AtomicFile file(path_.string());
    file.write(to_json(results_));
    file.commit();
  }

  void tell(const std::string& what, int64_t done, int64_t total) const {
    if (progress_) progress_(what, done, total);
  }

  bool is_wanted(std::string_view row) const {
    return options_.rows.empty() || std::ranges::find(options_.rows, row) != options_.rows.end();
  }

  Report report_of(const std::string& workload) const {
    return {workload, device_, results_.commit, options_.bench};
  }

  template <class Options>
  Options told(Options options) const {
    options.bench = options_.bench;
    options.device = name_.text();
    options.peers = options_.peers;
    return options;
  }

  // Cases of one row, which are all of the same shapes.
  void keep(const std::string& name, const std::string& shapes, const std::string& command,
            const std::vector<Case>& cases, const std::vector<std::string>& problems) {
    RowResult& row = results_.row(name, shapes);
    row.command = command;
    add_repeat(row, cases, problems);
  }

  std::string command_of(const std::string& workload, const std::string& flags) const {
    return fmt::format("espalier bench {}{} --device {} --precision {}", workload, flags, name_.text(),
                       type_name(type_));
  }

  void measure_growing_row(const GrowingBenchOptions& sizes) {
    GrowingBenchOptions growing = told(sizes);
    growing.precision = options_.precision;
    growing.model = false;  // it predicts, and measures nothing
    Report report = report_of("growing");
    const GrowingEpochs epochs = measure_growing(growing, results_.rates, report, /*progress=*/{});
    const std::string command = command_of(
        "growing", fmt::format(" --lanes {} --batch {} --seeds {} --steps {} --validation {}", growing.lanes,
                               growing.batch, growing.seeds, growing.steps, growing.validation));
    const std::string shapes = fmt::format("{}, {} seeds", report.cases().front().shapes, epochs.num_seeds);
    // The host's own time in an epoch is not known.
    const auto epoch = [](const char* name, const GrowingEpoch& timed) {
      return Case{.name = name,
                  .timing = {.median_us = timed.seconds * 1e6, .best_us = timed.seconds * 1e6},
                  .floor_us = timed.floor_s * 1e6,
                  .note = timed.parts_text()};
    };
    keep("growing: an epoch", fmt::format("{}, {} steps and a validation", shapes, epochs.num_steps), command,
         {epoch("espalier", epochs.grown), epoch("espalier, bare", epochs.bare)}, {});
    std::vector<Case> steps;
    for (const Case& each : report.cases())
      if (!each.name.ends_with(": validation")) steps.push_back(each);
    keep("growing: a step", shapes, command, steps, report.problems());
  }

  void measure_ppo_row(const Sizes::Ppo& ppo, int64_t num_warm) {
    Report report = report_of("ppo");
    Words flags = ppo.flags;
    flags.insert(flags.end(), {"--devices", name_.text(), "--precision", type_name(type_)});
    measure_ppo({.name = "espalier", .flags = flags}, ppo.shapes, num_warm, report);
    Words bare = flags;
    bare.insert(bare.end(), {"--controller", "none"});
    measure_ppo({.name = "espalier, nothing grows", .flags = bare}, ppo.shapes, num_warm, report);
    std::vector<std::string> problems;
    if (options_.peers) {
      if (options_.bench.peer_dir.empty())
        problems.push_back("esper-lite is not ours to commit: a script that runs it goes into --peer-dir");
      else
        report.add_peers({}, flags);
    }
    problems.insert(problems.end(), report.problems().begin(), report.problems().end());
    keep(ppo.name, ppo.shapes, fmt::format("espalier train ppo {}", fmt::join(flags, " ")), report.cases(),
         problems);
  }

  void measure_population_row(const Sizes::Population& size, bool with_peers) {
    PopulationBenchOptions population = told(PopulationBenchOptions{});
    population.precision = options_.precision;
    population.peers = population.peers && with_peers;
    population.lanes = size.lanes;
    population.batch = size.batch;
    population.base = size.base;
    Report report = report_of("population");
    measure_population(population, results_.rates, report, /*progress=*/{});
    keep("population", report.cases().front().shapes,
         command_of("population",
                    fmt::format(" --lanes {} --batch {} --base {}", size.lanes, size.batch, size.base)),
         report.cases(), report.problems());
  }

  void measure_linet_row(const LinetBenchOptions& sizes) {
    LinetBenchOptions linet = told(sizes);
    linet.precision = options_.precision;
    Report report = report_of("linet");
    measure_linet(linet, results_.rates, report);
    // Captured where it can be: the last of ours comes first.
    std::vector<Case> cases = report.cases();
    const auto peers = std::ranges::find_if(cases, [](const Case& each) { return !each.script.empty(); });
    std::reverse(cases.begin(), peers);
    keep("LINet3, forward and backward", cases.front().shapes,
         command_of("linet", fmt::format(" --width {:g} --batch {} --height {} --columns {}", linet.width,
                                         linet.batch, linet.height, linet.columns)),
         cases, report.problems());
  }

  void measure_gather_row(const GatherBenchOptions& sizes) {
    const GatherBenchOptions gather = told(sizes);
    Report report = report_of("gather");
    measure_gather(gather, results_.rates, report, /*progress=*/{});
    keep("gather, augmented", report.cases().front().shapes,
         fmt::format("espalier bench gather --lanes {} --batch {} --device {}", gather.lanes, gather.batch,
                     name_.text()),
         report.cases(), report.problems());
  }

  std::vector<Workload> workloads_of(const Sizes& sizes) {
    std::vector<Workload> list;
    if (is_wanted("growing"))
      list.push_back({"growing", [this, &sizes] { measure_growing_row(sizes.growing); }});
    if (is_wanted("ppo"))
      for (const Sizes::Ppo& ppo : sizes.ppo)
        list.push_back({fmt::format("{}, {}", ppo.name, ppo.shapes),
                        [this, &sizes, &ppo] { measure_ppo_row(ppo, sizes.num_warm_rounds); }});
    if (is_wanted("population"))
      for (const Sizes::Population& size : sizes.populations)
        list.push_back({fmt::format("population, {} x {}, base {}", size.lanes, size.batch, size.base),
                        // A test need not start Python for every size.
                        [this, &sizes, &size] {
                          measure_population_row(
                              size, !options_.bench.smoke || &size == &sizes.populations.front());
                        }});
    if (is_wanted("linet")) list.push_back({"LINet3", [this, &sizes] { measure_linet_row(sizes.linet); }});
    if (is_wanted("gather")) list.push_back({"gather", [this, &sizes] { measure_gather_row(sizes.gather); }});
    return list;
  }

  const AllBenchOptions& options_;
  const Progress& progress_;
  DeviceName name_;
  c10::Device device_;
  at::ScalarType type_;
  BenchResults results_;
  fs::path path_;
};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_usage("--docs '{}': want a Markdown file, got none that can be read", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string run_all_bench(const AllBenchOptions& options, const ProgramNames& names,
                          const Progress& progress) {
  return AllBench(options, names, progress).run();
}

std::string run_bench_table(const TableOptions& options) {
  const BenchResults results = read_results(options.file);
  const std::string table = markdown_table(results);
  if (options.docs.empty()) return table;
  const std::string text = with_table(text_of(options.docs), table, options.docs);
  AtomicFile file(options.docs);
  file.write(text);
  file.commit();
  return fmt::format("the table of {} is in {}\n", options.file, options.docs);
}

}  // namespace espalier::bench
