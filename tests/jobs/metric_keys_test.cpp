// What the jobs write into metrics.jsonl, and what the readers know of it: the lines here are the jobs' own.
#include "espalier/run/files/metric_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/lane_outcome.h"
#include "espalier/jobs/evaluate.h"
#include "espalier/jobs/linet.h"
#include "espalier/jobs/population.h"
#include "espalier/jobs/ppo.h"
#include "espalier/watch/lines/reader.h"
#include "espalier/watch/live/state.h"
#include "espalier/watch/page/collapses.h"
#include "espalier/watch/page/data.h"
#include "espalier/watch/page/report.h"
#include "espalier/watch/tensorboard/scalars.h"
#include "tests/support/cuda.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
using namespace train;
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using run::LineKind;
using run::MetricKey;

// Facts of a GPU's memory and graphs, which a CPU has none of.
const std::set<std::string> kOnlyOnGpu{"time/graphs_kept", "time/device_mib"};

PopulationConfig small_population(const std::string& device) {
  PopulationConfig options;
  options.source.synthetic_train = 60;
  options.source.synthetic_test = 20;
  options.source.synthetic_size = {8, 8};
  options.lanes = 2;
  options.epochs = 16;
  options.gates.min_training_steps = 1;  // so that some seed is felt before the end
  options.batch = 18;
  options.crop_pad = 1;
  options.devices = {parse_device(device)};
  options.controller = "random";
  options.embargo = 1;
  return options;
}

EnvironmentConfig small_environments(const std::string& device) {
  EnvironmentConfig options;
  options.population = small_population(device);
  options.population.controller = "none";  // one for all episodes is named beside it
  options.population.epochs = 5;
  options.population.batch = 9;
  options.population.plan = data::PlanKind::kSplit;
  return options;
}

PpoJob small_ppo_job(const std::string& run, const std::string& device) {
  PpoJob job{.run = {.run_dir = run}};
  PpoConfig& options = job.ppo;
  static_cast<EnvironmentConfig&>(options) = small_environments(device);
  options.population.time_every = 1;
  options.rounds = 3;
  options.policy.encoder_size = 8;
  options.policy.hidden_size = 8;
  return job;
}

std::vector<ordered_json> lines_of(const fs::path& run) {
  std::vector<ordered_json> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

// The lines of every job, with everything on that brings keys of its own.
std::vector<ordered_json> lines_of_all_jobs() {
  const support::TemporaryFolder folder;
  std::vector<ordered_json> all;
  const auto add = [&](const std::string& name) {
    for (ordered_json& line : lines_of(folder / name)) all.push_back(std::move(line));
  };
  run_population_job({.population = small_population("cpu"), .run = {.run_dir = folder / "grown"}}, {});
  add("grown");
  PopulationConfig governed = small_population("cpu");  // any loss that rises is a collapse
  governed.epochs = 40;
  governed.governor = {.ratio = 1, .spread = 0};
  run_population_job({.population = governed, .run = {.run_dir = folder / "governed"}}, {});
  add("governed");
  PopulationConfig scaled = small_population("cpu");
  scaled.precision = Precision::kFp16;
  scaled.controller = "none";
  scaled.epochs = 1;
  scaled.resident.memory_format = MemoryFormat::kContiguous;
  run_population_job({.population = scaled, .run = {.run_dir = folder / "scaled"}}, {});
  add("scaled");
  cli::HostFlags host;
  host.population = small_population("cpu");
  host.population.lanes = 1;
  host.population.controller = "none";
  host.population.epochs = 1;
  host.run.run_dir = folder / "host";
  run_population_job(host.job(), {});
  add("host");
  LinetConfig linet;
  linet.device = parse_device("cpu");
  linet.source.synthetic_train = 60;
  linet.source.synthetic_test = 20;
  linet.batch = 18;
  linet.epochs = 1;
  linet.width = 0.0625;
  run_linet_job({.linet = linet, .run = {.run_dir = folder / "linet"}}, {});
  add("linet");
  run_ppo_job(small_ppo_job(folder / "ppo", "cpu"), {});
  add("ppo");
  EvaluateConfig evaluated;
  static_cast<EnvironmentConfig&>(evaluated) = small_environments("cpu");
  evaluated.controllers = {"none", "random"};
  evaluated.episodes = 1;
  run_evaluate_job({.evaluate = evaluated, .run = {.run_dir = folder / "evaluated"}}, {});
  add("evaluated");
  PopulationConfig replayed = small_population("cpu");
  replayed.epochs = small_environments("cpu").population.epochs;
  replayed.controller = "replay:" + (folder / "evaluated/recordings/2_random.jsonl");
  run_population_job({.population = replayed, .run = {.run_dir = folder / "replayed"}}, {});
  add("replayed");
  return all;
}

// Each (kind of line, key) of the lines, those inside included.
std::set<std::pair<run::LineKind, std::string>> keys_of(const std::vector<ordered_json>& lines) {
  std::set<std::pair<run::LineKind, std::string>> keys;
  const auto add = [&](run::LineKind kind, const ordered_json& values) {
    for (const auto& item : values.items()) keys.emplace(kind, item.key());
  };
  for (const ordered_json& line : lines) {
    const auto kind = run::kind_of_line(line);
    EXPECT_TRUE(kind) << line << ": its kind is not listed";
    if (!kind) continue;
    add(*kind, line);
    for (const ordered_json& slot : line.value("slots", ordered_json::array()))
      add(run::LineKind::kSlot, slot);
    for (const ordered_json& stream : line.value("streams", ordered_json::object()))
      add(*kind == run::LineKind::kResult ? run::LineKind::kResultStream : run::LineKind::kEpochStream,
          stream);
  }
  return keys;
}

class MetricKeysTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { lines_ = lines_of_all_jobs(); }
  static void TearDownTestSuite() { lines_.clear(); }

  static inline std::vector<ordered_json> lines_;
};

TEST_F(MetricKeysTest, AreListedForEveryKeyThatAJobWrites) {
  for (const auto& [kind, key] : keys_of(lines_))
    EXPECT_NE(run::find_metric_key(kind, key), nullptr)
        << "kind " << static_cast<int>(kind) << ", key " << key << ": not in run/files/run::metric_keys.cpp";
}

TEST_F(MetricKeysTest, AreAllWrittenByAJob) {
  std::set<const run::MetricKey*> written;
  for (const auto& [kind, key] : keys_of(lines_)) written.insert(run::find_metric_key(kind, key));
  for (const run::MetricKey& each : run::metric_keys()) {
    if (kOnlyOnGpu.contains(std::string(each.key))) continue;
    EXPECT_TRUE(written.contains(&each))
        << "kind " << static_cast<int>(each.line) << ", key " << each.key << ": no job writes it";
  }
}

TEST_F(MetricKeysTest, BecomeTagsOfOneGroupEach) {
  const std::regex shape(
      "(charts|losses|rewards|growth|time|result)/[^/]+|heads/[^/]+/[^/]+|"
      "(result/)?[a-z_]+/(all|best|worst|lane_[0-9]{2}|stream_[^/]+)");
  std::set<std::string> tags;
  for (const ordered_json& line : lines_)
    for (const watch::EventScalar& scalar : watch::scalars_of(line, 1)) tags.insert(scalar.tag);
  for (const std::string& tag : tags) EXPECT_TRUE(std::regex_match(tag, shape)) << tag;
  for (const char* tag :
       {"time/captures", "time/capture_seconds", "time/eager_runs", "time/seconds", "time/train_ms",
        "gradient_norm/all", "learning_rate/all", "validation_accuracy/all", "validation_accuracy/lane_00",
        "growth/seeds", "loss_scale/lane_01", "reward/lane_00", "losses/policy_loss", "rewards/end",
        "share/stream_rgb", "result/accuracy_without/stream_rgb", "result/last_return", "result/episodes"})
    EXPECT_TRUE(tags.contains(tag)) << tag;
}

// What the page says is read from lines that the jobs wrote.
TEST_F(MetricKeysTest, AreWhatTheReadersLookFor) {
  watch::RunRecord record;
  for (const ordered_json& line : lines_) watch::add_line(record, line.dump());
  EXPECT_EQ(record.num_damaged, 0);
  EXPECT_TRUE(std::ranges::any_of(record.lanes, [](const watch::LaneLine& line) {
    return line.planted && line.op == SeedOp::kGerminate;
  }));
  EXPECT_TRUE(std::ranges::any_of(record.lanes, [](const watch::LaneLine& line) {
    return std::ranges::any_of(
        line.slots, [](const watch::SlotLine& slot) { return std::isfinite(slot.contribution_points); });
  }));
  EXPECT_TRUE(std::ranges::any_of(record.lanes, [](const watch::LaneLine& line) {
    return line.collapse == "loss_jumped" && !line.barred.empty() && !line.is_trained;
  }));
  const ordered_json collapses = watch::collapses_of(record);
  EXPECT_GT(collapses.at("total"), 0);
  EXPECT_EQ(collapses.at("listed").at(0).at("why"), "loss_jumped");
  ASSERT_FALSE(record.lane_results.empty());
  for (const watch::LaneResult& result : record.lane_results) {
    EXPECT_GT(result.parameters, 0);
    EXPECT_GE(result.seeds_kept, 0);
  }
  EXPECT_EQ(record.controllers, (std::vector<std::string>{"none", "random"}));
  EXPECT_EQ(record.evaluated_lanes.size(), 4u);
  EXPECT_GT(record.evaluated_lanes.front().parameters, 0);
  EXPECT_TRUE(std::isfinite(watch::number_in(record.evaluated.back().numbers, "test_accuracy_over_first")));
  EXPECT_TRUE(record.result.has_value()) << "an evaluation ends with its result";
  EXPECT_TRUE(std::isfinite(record.last_return()));
}

// The same lines, as they come, in the live view.
TEST_F(MetricKeysTest, AreWhatTheLiveViewLooksFor) {
  watch::LiveState epochs({.shape = watch::RunShape::kEpochs}, 0);
  watch::LiveState rounds({.shape = watch::RunShape::kRounds}, 0);
  std::set<std::string> notes;
  bool has_lane = false, has_seed = false, has_planted = false, has_reward = false;
  double seconds = 0;
  for (const ordered_json& line : lines_) {
    watch::LiveState& state = line.contains("round") ? rounds : epochs;
    state.add(line, ++seconds);
    for (const watch::LiveRow& row : state.rows()) {
      notes.insert(row.note);
      has_lane |= row.accuracy && row.loss && row.train_accuracy && row.gradient_norm && row.parameters;
      has_seed |= std::ranges::any_of(row.seeds, [](const watch::LiveSeed& seed) {
        return !seed.slot.empty() && !seed.blueprint.empty() && seed.amplitude;
      });
    }
    has_planted |= state.num_chosen()[static_cast<size_t>(SeedOp::kGerminate)] > 0;
    has_reward |= rounds.mean_reward().has_value();
  }
  EXPECT_TRUE(has_lane && has_seed && has_planted && has_reward);
  EXPECT_TRUE(
      std::ranges::any_of(notes, [](const std::string& note) { return note.ends_with(": loss jumped"); }));
  EXPECT_FALSE(notes.contains(name_of(LaneOutcome::kTrained))) << "a lane that was trained needs no note";
  EXPECT_TRUE(epochs.is_finished());
  EXPECT_TRUE(epochs.accuracy() && epochs.loss());
  EXPECT_TRUE(epochs.has_streams());
  EXPECT_TRUE(
      std::ranges::any_of(epochs.rows(), [](const watch::LiveRow& row) { return row.share && row.loss; }));
  EXPECT_EQ(rounds.round(), 3);
  EXPECT_TRUE(rounds.last_return() && rounds.entropy() && rounds.approx_kl());
}

// The keys of a lane's lines are drawn where the list says.
TEST_F(MetricKeysTest, OfALaneHaveTheirCurveOnThePage) {
  watch::RunRecord record;
  for (const ordered_json& line : lines_)
    if (line.contains("round")) watch::add_line(record, line.dump());
  const ordered_json detail = watch::page_data(record)["details"].back();
  std::set<std::string> drawn;
  for (const auto& [key, curves] : detail["curves"].items()) {
    drawn.insert(key);
    EXPECT_TRUE(curves.at(0).at(0).is_number()) << key;
  }
  EXPECT_EQ(drawn, run::keys_on_page(LineKind::kLane));
  EXPECT_EQ(drawn.size(), 6u);
}

// Names of metrics in the page's scripts, where they are read out of lines; names of charts are not among
// them. A pattern such as `losses/*` would hide that a key has another name now.
std::set<std::string> keys_in_scripts() {
  const std::string script = watch::page_script();
  std::set<std::string> keys;
  const auto add_all = [&](const std::string& pattern) {
    const std::regex regex(pattern);
    size_t found = 0;
    for (std::sregex_iterator at(script.begin(), script.end(), regex), end; at != end; ++at, ++found)
      keys.insert((*at)[1]);
    EXPECT_GT(found, 0u) << "the scripts read no key as " << pattern;
  };
  add_all(R"re(curveOf\([^,"`]+, "([^"]+)")re");                      // curveOf(run.epochs, "seconds", ...)
  add_all(R"re(\.values\["([^"]+)"\])re");                            // run.rounds.values["..."]
  add_all(R"re(\n  \["([a-z_/]+)", "[^"]+", (?:"|\{|kAccuracy))re");  // rows of kLearning, kUnderneath,
                                                                      // kDiagnostics
  add_all(R"re(\bone\("([^"]+)", ")re");                              // the policy's: one("...", title, ...)
  add_all(R"re(\bchart\("([a-z_]+)", "[^"]+", "[^"]*", (?:\{|kA))re");  // the streams': chart("share", ...)
  add_all(R"re(, "(?:epochs|rounds)", "([^"]+)")re");                   // of runs that are compared
  add_all(R"re((?:interval|group)\((?:one|[0-9]), "([^"]+)")re");       // of controllers that are compared
  add_all(R"re(\bnumbers\.([a-z_]+[0-9]*)(?![a-zA-Z_(]))re");           // one.numbers.lost
  add_all(R"re(\bfinal\[name\]\.([a-z_]+))re");                         // of streams, in the result
  // Spelt in pieces: `train_${measure}`, `${key}_95`.
  for (const std::string_view whole : {"pair(\"loss\")", "pair(\"accuracy\")", "`train_${measure}`",
                                       "`validation_${measure}`", "`${key}_95`"})
    EXPECT_NE(script.find(whole), script.npos) << whole << " is not there any more: mend this list";
  for (const char* whole : {"train_loss", "train_accuracy", "validation_loss", "validation_accuracy",
                            "test_accuracy_95", "return_95", "added_parameters_95", "seeds_kept_95"})
    keys.insert(whole);
  for (const char* method : {"length", "reduce"}) keys.erase(method);  // of lists that are called numbers too
  return keys;
}

TEST_F(MetricKeysTest, ThatThePageAsksForAreWrittenByAJob) {
  std::set<std::string> written;
  for (const auto& [kind, key] : keys_of(lines_)) written.insert(key);
  const std::set<std::string> asked = keys_in_scripts();
  for (const std::string& key : asked)
    EXPECT_TRUE(written.contains(key)) << key << ": the page draws it, and no job writes it";
  // Whatever way of reading keys the list above misses: all that look like one, but for names of charts.
  const std::string script = watch::page_script();
  const std::regex grouped(R"re((name: )?"((?:charts|losses|rewards|lanes|growth|time)/[A-Za-z_]+)")re");
  for (std::sregex_iterator at(script.begin(), script.end(), grouped), end; at != end; ++at)
    if (!(*at)[1].matched) {
      EXPECT_TRUE(written.contains((*at)[2])) << (*at)[2];
    }
  for (const char* key : {"losses/entropy", "charts/SPS", "seconds", "gradient_norm", "parameters", "share",
                          "accuracy_without", "test_accuracy_over_first_p", "best_epoch", "lost"})
    EXPECT_TRUE(asked.contains(key)) << key << " was not found in the scripts";
}

// A number that is neither a place nor drawn would be seen by nobody.
TEST_F(MetricKeysTest, OfNumbersThatAreMeasuredHaveACurve) {
  const std::set<std::string> places{"epoch", "round", "step", "lane"};
  for (const ordered_json& line : lines_) {
    const auto kind = run::kind_of_line(line);
    if (kind != run::LineKind::kLane && kind != run::LineKind::kEpochOfMany &&
        kind != run::LineKind::kEpochOfOne && kind != run::LineKind::kRound && kind != run::LineKind::kResult)
      continue;
    for (const auto& item : line.items()) {
      const run::MetricKey* const found = run::find_metric_key(*kind, item.key());
      if (found == nullptr || !item.value().is_number() || places.contains(item.key())) continue;
      EXPECT_FALSE(found->tag.empty()) << item.key();
    }
  }
}

TEST(MetricKeysCuda, HaveThoseThatOnlyAGpuWrites) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const support::TemporaryFolder folder;
  run_ppo_job(small_ppo_job(folder / "ppo", "cuda:0"), {});
  const auto keys = keys_of(lines_of(folder / "ppo"));
  for (const auto& [kind, key] : keys) EXPECT_NE(run::find_metric_key(kind, key), nullptr) << key;
  for (const std::string& key : kOnlyOnGpu) EXPECT_TRUE(keys.contains({run::LineKind::kRound, key})) << key;
}

}  // namespace
}  // namespace espalier::jobs
