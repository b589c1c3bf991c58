#include "espalier/jobs/evaluate.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/grow/host/registry.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/jobs/ppo.h"
#include "espalier/jobs/saved/networks.h"
#include "espalier/jobs/saved/recorded_controller.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/train/memory/plan.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::jobs {
using namespace train;
namespace {

EvaluateConfig small_evaluation() {
  EvaluateConfig options;
  static_cast<EnvironmentConfig&>(options) = train::testing::small_ppo(2);
  return options;
}

std::vector<ControllerScores> scores_of(const EvaluateConfig& options) {
  return evaluate(options, train::testing::small_shards(train::testing::small_ppo(2)), {});
}

TEST(Evaluate, PlaysTheSameEpisodesUnderEveryController) {
  EvaluateConfig options = small_evaluation();
  options.controllers = {"none", "none", "random"};
  options.episodes = 2;
  const auto scores = scores_of(options);
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0].accuracy.size(), 4u);
  EXPECT_EQ(scores[0].accuracy, scores[1].accuracy);
  EXPECT_EQ(scores[0].returns, scores[1].returns);
  EXPECT_EQ(scores[1].gain_over(scores[0]).mean, 0);
  EXPECT_EQ(scores[1].gain_over(scores[0]).half_width, 0);
  EXPECT_EQ(scores[1].chance_over(scores[0]), 1);
  for (const double added : scores[0].added) EXPECT_EQ(added, 0);
  EXPECT_NE(scores[2].returns, scores[0].returns);
  const std::vector<double>& returns = scores[2].returns;  // two episodes of two networks
  const Interval by_hand = interval_of({(returns[0] + returns[1]) / 2, (returns[2] + returns[3]) / 2});
  EXPECT_NEAR(scores[2].interval(returns).mean, by_hand.mean, 1e-12);
  EXPECT_NEAR(scores[2].interval(returns).half_width, by_hand.half_width, 1e-9);
}

TEST(Evaluate, TestsDifferencesByTheMeansOfEpisodes) {
  const ControllerScores none{.name = "none", .accuracy = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, .num_episodes = 3};
  ControllerScores other = none;
  other.accuracy = {0.4, 0.8, 0.5, 0.9, 0.6, 0.6};  // +0.1, +0.2, +0.1
  EXPECT_DOUBLE_EQ(other.chance_over(none), 2.0 / 8);
  other.num_episodes = 1;  // over networks: -0.1, 0.3, 0, 0.4, 0.1, 0.1
  EXPECT_GT(other.chance_over(none), 2.0 / 64);
}

TEST(Evaluate, LoadsAPolicyThatLearnsNothingMore) {
  const support::TemporaryFolder folder;
  const std::string file = folder / "policy.safetensors";
  PpoTrainer trainer(train::testing::small_ppo(2),
                     train::testing::small_shards(train::testing::small_ppo(2)));
  trainer.train_round();
  trainer.save(file);
  EvaluateConfig options = small_evaluation();
  options.controllers = {"ppo:" + file, "ppo:" + file};
  const auto drawn = scores_of(options);
  EXPECT_EQ(drawn[0].returns, drawn[1].returns);
  options.greedy = true;
  const auto greedy = scores_of(options);
  EXPECT_EQ(greedy[0].returns, greedy[1].returns);
  EXPECT_NE(greedy[0].returns, drawn[0].returns);
}

EvaluateJob small_evaluate_job(const support::TemporaryFolder& folder, const std::string& device) {
  EvaluateJob job{.run = {.run_dir = folder / "run"}};
  EvaluateConfig& options = job.evaluate;
  PopulationConfig& population = options.population;
  population.source.synthetic_train = 60;
  population.source.synthetic_test = 20;
  population.source.synthetic_size = {8, 8};
  population.lanes = 2;
  population.epochs = 2;
  population.batch = 9;
  population.crop_pad = 1;
  population.devices = {parse_device(device)};
  options.controllers = {"none"};
  options.episodes = 1;
  return job;
}

TEST(Evaluate, ComparesEveryPairOfControllers) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.controllers = {"none", "random", "heuristic"};
  job.evaluate.episodes = 2;
  const EvaluateResult result = run_evaluate_job(job, {});
  std::map<std::pair<std::string, std::string>, nlohmann::json> pairs;
  std::ifstream in(folder / "run/metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line["kind"] == "compared") pairs[{line["controller"], line["over"]}] = line;
    if (line["kind"] == "evaluated") {
      EXPECT_EQ(line["episodes"], 2);  // of all networks
    }
  }
  EXPECT_EQ(pairs.size(), 3u);
  const auto& line = pairs[{"heuristic", "random"}];
  EXPECT_EQ(line["test_accuracy_difference"], result.scores[2].gain_over(result.scores[1]).mean);
  EXPECT_EQ(line["test_accuracy_difference_p"], result.scores[2].chance_over(result.scores[1]));
}

TEST(Evaluate, DoesConvolutionsAsTheyWereChosen) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.population.convolutions = folder / "none.json";
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--convolutions", "none.json", "cannot be read");
  job.evaluate.population.convolutions = folder / "convolutions.json";
  std::ofstream(job.evaluate.population.convolutions) << R"({"a convolution": "lanes"})";
  run_evaluate_job(job, {});
#if ESPALIER_WITH_CUDA  // without it there is nothing to choose
  EXPECT_TRUE(lanes::conv_choices().contains("a convolution"));
#endif
  lanes::set_conv_choices({});
}

TEST(Evaluate, WritesDownWhatItRanOnAndWarns) {
  const support::TemporaryFolder folder;
  const EvaluateJob job = small_evaluate_job(folder, "cpu");
  std::vector<std::string> warnings;
  EvaluateEvents events;
  events.run.warned = [&](const std::string& text) { warnings.push_back(text); };
  // Where the report belongs there is a folder: it cannot be written.
  events.episode_done = [&](const EvaluatedEpisode&) {
    std::filesystem::create_directories(folder / "run/report.html/in the way");
  };
  run_evaluate_job(job, events);
  EXPECT_EQ(warnings.size(), 1u);
  const auto environment = nlohmann::json::parse(std::ifstream(folder / "run/environment.json"));
  EXPECT_EQ(environment["devices"], nlohmann::json::parse(R"([{"device": "cpu", "precision": "fp32"}])"));
  EXPECT_EQ(environment["threads"], at::get_num_threads());
  const std::vector<ShardSetup> shards = shards_of(job.evaluate, {});
  PopulationTrainer played(job.evaluate.population, shards, at::kCPU, OnFailure::kRollBack);
  EXPECT_EQ(environment["validation_batch"], played.shard(0).validation_batch());
}

TEST(Evaluate, KeepsTheBestNetworkOfEveryControllerAndEpisode) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.controllers = {"none", "random"};
  job.evaluate.episodes = 2;
  job.evaluate.keep = folder / "kept";
  const EvaluateResult result = run_evaluate_job(job, {});
  const std::vector<grow::GrownNetwork> kept = saved_networks(job.evaluate.keep);
  ASSERT_EQ(kept.size(), 4u);
  for (const grow::GrownNetwork& network : kept) {
    const grow::NetworkOrigin& origin = network.description.origin;
    const bool is_first = origin.run.find("none") != std::string::npos;
    const size_t episode = origin.run.ends_with("episode 2") ? 1 : 0;
    EXPECT_EQ(origin.test_accuracy,
              result.scores[is_first ? 0 : 1].accuracy[episode * 2 + static_cast<size_t>(origin.lane)]);
    EXPECT_EQ(origin.epoch, 2);
  }
  job.run.run_dir = folder / "another";
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--keep", "kept", "no empty folder");
}

TEST(Evaluate, KeepsAllNetworksThatWereNotLostWhereAskedTo) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.episodes = 2;
  job.evaluate.keep_lanes = KeptLanes::kAll;
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--keep-lanes all", "--keep");
  job.evaluate.keep = folder / "kept";
  job.run.run_dir = folder / "kept all";
  const EvaluateResult result = run_evaluate_job(job, {});
  for (const char* episode : {"1", "2"})
    for (const char* lane : {"0", "1"}) {
      const std::string name = std::string("c1_none_episode") + episode + "_lane" + lane;
      const grow::NetworkOrigin origin =
          grow::read_network(folder / ("kept/" + name + ".safetensors")).description.origin;
      const size_t i = (*episode - '1') * size_t{2} + static_cast<size_t>(*lane - '0');
      EXPECT_EQ(origin.test_accuracy, result.scores[0].accuracy[i]) << name;
      EXPECT_TRUE(origin.validation_accuracy.has_value()) << name;
    }
  EXPECT_EQ(saved_networks(job.evaluate.keep).size(), 4u);
}

// Before the first episode, by the flag: nothing that was played is lost.
TEST(Evaluate, RefusesToKeepWhatCannotBeExportedBeforeItPlays) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.keep = folder / "kept";
  EvaluateEvents events;
  events.batch_done = [] { FAIL() << "it plays"; };
  const auto expect_refused = [&](const std::string& name, const std::string& remedy) {
    EXPECT_ERROR(run_evaluate_job(job, events), UsageError, "--keep " + job.evaluate.keep, name, remedy);
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
    const std::vector<ShardSetup> shards = shards_of(job.evaluate, {});
    EXPECT_ERROR(evaluate(job.evaluate, shards, events), UsageError, "--keep " + job.evaluate.keep, name);
  };
  grow::hosts().add({.name = "silent_host", .make = grow::hosts().at("tiny").make});
  job.evaluate.population.host = "silent_host";
  expect_refused("'silent_host'", "HostKind::python");
  job.evaluate.population.host = "tiny";

  struct PutsBack {
    grow::BlueprintRegistry before = grow::blueprints();
    ~PutsBack() { grow::blueprints() = before; }
  } const as_it_was;
  grow::Blueprint silent = grow::blueprints().at(grow::blueprints().index_of("norm"));
  silent.name = "silent_seed";
  silent.python = {};
  grow::blueprints().add(silent);
  job.evaluate.controllers = {"none", "random"};
  expect_refused("'silent_seed'", "Blueprint::python");
  // Where nothing is planted there is nothing to describe.
  job.evaluate.controllers = {"none"};
  run_evaluate_job(job, {});
  EXPECT_EQ(saved_networks(job.evaluate.keep).size(), 1u);
}

TEST(Evaluate, RefusesToKeepSeedsOfTwoKindsWithOneNameInPython) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.keep = folder / "kept";
  job.evaluate.controllers = {"random"};
  struct PutsBack {
    grow::BlueprintRegistry before = grow::blueprints();
    ~PutsBack() { grow::blueprints() = before; }
  } const as_it_was;
  grow::Blueprint other = grow::blueprints().at(grow::blueprints().index_of("conv_light"));
  other.name = "other";
  other.python = [python = other.python](const grow::SeedShape& shape) {
    grow::PythonSeed seed = python(shape);
    seed.type.definition += "# another\n";
    return seed;
  };
  grow::blueprints().add(other);
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--keep", "'ConvLight'", "rename");
}

TEST(Evaluate, KeepsAndRecordsUnderNamesThatFilesCanHave) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.keep = folder / "kept";
  job.evaluate.controllers.clear();
  for (const std::string name : {"my-rule", "team/ppo", "my_rule"}) {
    controllers().add({.name = name, .make = [](const ControllerOptions& options) {
                         return controllers().at("none").make(options);
                       }});
    job.evaluate.controllers.push_back(name);
  }
  run_evaluate_job(job, {});
  for (const char* name : {"c1_my_rule", "c2_team_ppo", "c3_my_rule"}) {
    const std::string stem = folder / ("kept/" + std::string(name) + "_episode1_lane");
    EXPECT_TRUE(std::filesystem::exists(stem + "0.py") || std::filesystem::exists(stem + "1.py")) << name;
  }
  for (const char* name : {"1_my_rule", "2_team_ppo", "3_my_rule"})
    EXPECT_TRUE(std::filesystem::exists(folder / ("run/recordings/" + std::string(name) + ".jsonl"))) << name;
  // A policy's recording is known by its name: this is none.
  EXPECT_ERROR(recorded_in("static:" + (folder / "run"), "--controllers"), UsageError, "0 policies");
}

// Any loss that rises is a collapse: the only network goes back in the last step of an episode.
TEST(Evaluate, KeepsANetworkThatWentBackInItsLastStep) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.controllers = {"none", "random"};
  job.evaluate.episodes = 4;
  job.evaluate.keep = folder / "kept";
  PopulationConfig& population = job.evaluate.population;
  population.lanes = 1;
  population.epochs = 7;  // too few for it to go back so often that it is compared anew
  population.learning_rate = 1;
  population.schedule = RateCurve::kConstant;
  population.governor = {.ratio = 1, .spread = 0};
  std::map<std::string, double> gone_back;  // accuracy of the state it went back to, by origin
  bool differ = false;                      // these accuracies and those of the steps that were lost
  EvaluateEvents events;
  events.episode_done = [&](const EvaluatedEpisode& done) {
    const LaneRecord& lane = done.record.last.lanes[0];
    ASSERT_NE(lane.outcome, LaneOutcome::kRetired);
    if (lane.outcome != LaneOutcome::kRolledBack) return;
    differ |= lane.good_accuracy != lane.validated.accuracy;
    gone_back["evaluate, " + done.controller + ", episode " + std::to_string(done.episode)] =
        lane.good_accuracy;
  };
  const EvaluateResult result = run_evaluate_job(job, events);
  ASSERT_FALSE(gone_back.empty()) << "this would show little";
  EXPECT_TRUE(differ) << "this would show little";
  const std::vector<grow::GrownNetwork> kept = saved_networks(job.evaluate.keep);
  EXPECT_EQ(kept.size(), 8u) << "one of every episode";
  for (const grow::GrownNetwork& network : kept) {
    const auto found = gone_back.find(network.description.origin.run);
    if (found == gone_back.end()) continue;
    EXPECT_EQ(network.description.origin.validation_accuracy,
              std::isnan(found->second) ? std::nullopt : std::optional(found->second))
        << found->first;
  }
}

TEST(Evaluate, ClaimsNoValidationOfNetworksThatHadNone) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.population.resident.validation = 0;
  job.evaluate.keep = folder / "kept";
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--validation 0", "--keep-lanes all");
  job.evaluate.keep_lanes = KeptLanes::kAll;
  run_evaluate_job(job, {});
  const std::vector<grow::GrownNetwork> kept = saved_networks(job.evaluate.keep);
  ASSERT_EQ(kept.size(), 2u);
  for (const grow::GrownNetwork& network : kept)
    EXPECT_EQ(network.description.origin.validation_accuracy, std::nullopt);
}

// At a rate at which nothing stays finite, decay included: the only network goes back to what it began as.
TEST(Evaluate, KeepsANetworkThatWentBackToWhatItBeganAs) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.keep = folder / "kept";
  PopulationConfig& population = job.evaluate.population;
  population.lanes = 1;
  population.learning_rate = 1e38;
  population.weight_decay = 1;
  EvaluateEvents events;
  events.episode_done = [](const EvaluatedEpisode& done) {
    ASSERT_EQ(done.record.last.lanes[0].outcome, LaneOutcome::kRolledBack);
  };
  const EvaluateResult result = run_evaluate_job(job, events);
  const std::vector<grow::GrownNetwork> kept = saved_networks(job.evaluate.keep);
  ASSERT_EQ(kept.size(), 1u);
  const grow::NetworkOrigin& origin = kept[0].description.origin;
  EXPECT_EQ(origin.test_accuracy, result.scores[0].accuracy[0]);
  EXPECT_EQ(origin.validation_accuracy, std::nullopt) << "what it stands at was never scored";
}

TEST(Evaluate, WritesWhatTheReturnOfEveryNetworkIsMadeOf) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.controllers = {"random"};
  job.evaluate.population.epochs = 6;
  job.evaluate.reward.rule = "escrow";
  run_evaluate_job(job, {});
  std::ifstream in(folder / "run/metrics.jsonl");
  size_t lanes = 0;
  double paid = 0;
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line["kind"] != "evaluated_lane") continue;
    lanes += 1;
    std::map<std::string, double> terms;
    for (const auto& [key, value] : line.items())
      if (key.starts_with("rewards/")) terms[key] = value.get<double>();
    EXPECT_EQ(terms.size(), 8u);
    double sum = 0;
    for (const auto& [name, value] : terms) {
      sum += value;
      paid += std::abs(value);
    }
    EXPECT_NEAR(sum, line["return"].get<double>(), 1e-9);
  }
  EXPECT_EQ(lanes, 2u);
  EXPECT_GT(paid, 0) << "nothing was paid: this would show little";
}

// A job in which a policy that learned nothing yet plants a good deal; writes the policy's file.
EvaluateJob growing_job(const support::TemporaryFolder& folder, const std::string& policy) {
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  EvaluateConfig& options = job.evaluate;
  options.population.host = "tiny";
  options.population.epochs = 12;
  options.population.gates.min_training_steps = 1;
  options.population.embargo = 1;
  options.episodes = 2;
  PpoConfig learning;
  static_cast<EnvironmentConfig&>(learning) = options;
  learning.policy.encoder_size = learning.policy.hidden_size = 8;
  PpoTrainer(learning, shards_of(learning, {})).save(policy);
  return job;
}

TEST(Evaluate, ComparesAPolicyWithWhatItGrewAndWithWhatItDid) {
  const support::TemporaryFolder folder;
  const std::string policy = folder / "policy.safetensors";
  EvaluateJob job = growing_job(folder, policy);
  job.evaluate.controllers = {"none", "ppo:" + policy, "static", "replay"};
  const EvaluateResult result = run_evaluate_job(job, {});
  const ControllerScores &grown = result.scores[1], &fixed = result.scores[2], &replayed = result.scores[3];
  const Recording recording = read_recording(folder / "run/recordings/2_ppo.jsonl");
  EXPECT_EQ(recording.controller, "ppo:" + policy);
  EXPECT_EQ(recording.networks.size(), 4u);
  EXPECT_GT(interval_of(grown.added).mean, 0);
  for (size_t i = 0; i < fixed.added.size(); ++i) {
    EXPECT_LE(fixed.added[i], grown.added[i]);  // without what only learned beside it
    EXPECT_EQ(fixed.kept[i], static_cast<double>(recording.networks[i].seeds.size()));
  }
  EXPECT_NE(replayed.returns, grown.returns);
  EXPECT_EQ(grown.num_illegal, 0);

  // The same from files, and from the run: every network its own schedule again.
  Recording turned = recording;
  std::ranges::rotate(turned.networks, turned.networks.end() - turned.lanes);
  std::ofstream(folder / "turned.jsonl") << text_of(turned);
  job.run.run_dir = folder / "again";
  job.evaluate.controllers = {"replay:" + (folder / "turned.jsonl"), "static:" + (folder / "run")};
  const EvaluateResult again = run_evaluate_job(job, {});
  EXPECT_EQ(again.scores[0].accuracy, grown.accuracy);
  EXPECT_EQ(again.scores[0].returns, grown.returns);
  EXPECT_EQ(again.scores[0].num_illegal, 0);
  EXPECT_EQ(again.scores[1].accuracy, fixed.accuracy);
}

// A run's metrics without times.
std::vector<nlohmann::json> lines_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    lines.push_back(nlohmann::json::parse(text));
    lines.back().erase("seconds");
  }
  return lines;
}

TEST(Evaluate, GoesOnWithTheEpisodeItWasStoppedIn) {
  const support::TemporaryFolder folder;
  const std::string policy = folder / "policy.safetensors";
  EvaluateJob job = growing_job(folder, policy);
  job.evaluate.controllers = {"none", "ppo:" + policy, "static", "replay"};
  job.run.run_dir = folder / "whole";
  int64_t num_batches = 0;
  EvaluateEvents events;
  events.batch_done = [&] { num_batches += 1; };
  const EvaluateResult whole = run_evaluate_job(job, events);

  // Stopped a batch later every time, so that it happens anywhere in an episode; each start plays one at
  // least.
  job.run.run_dir = folder / "stopped";
  job.evaluate.keep = folder / "kept";
  const int64_t episode = num_batches / 8;
  int starts = 0;
  std::optional<EvaluateResult> result;
  for (; !result; ++starts) {
    ASSERT_LT(starts, 8);
    int64_t batches = 0;
    events.batch_done = [&] {
      if (++batches == episode + 1 + 7 * starts) throw Interrupted(2);
    };
    try {
      result = run_evaluate_job(job, events);
    } catch (const Interrupted&) {
    }
  }
  EXPECT_GT(starts, 4);
  EXPECT_EQ(lines_of(folder / "stopped"), lines_of(folder / "whole"));
  for (size_t c = 0; c < whole.scores.size(); ++c) {
    EXPECT_EQ(result->scores[c].accuracy, whole.scores[c].accuracy);
    EXPECT_EQ(result->scores[c].returns, whole.scores[c].returns);
  }
  for (const char* name : {"1_none.jsonl", "2_ppo.jsonl", "3_static.jsonl", "4_replay.jsonl"})
    EXPECT_EQ(read_recording(folder / ("stopped/recordings/" + std::string(name))),
              read_recording(folder / ("whole/recordings/" + std::string(name))))
        << name;
  EXPECT_EQ(saved_networks(job.evaluate.keep).size(), 8u);

  // A finished one gives its results again, and may be given one more controller at its end.
  events.batch_done = [] { FAIL() << "an episode was played again"; };
  EXPECT_EQ(run_evaluate_job(job, events).scores[3].accuracy, whole.scores[3].accuracy);
  EXPECT_EQ(lines_of(folder / "stopped"), lines_of(folder / "whole"));
  job.recorded = {{"controllers", ""}, {"episodes", 0}};  // what --allow-change may name
  job.run.allow_change = {"controllers", "episodes"};
  job.evaluate.controllers.push_back("random");
  const EvaluateResult more = run_evaluate_job(job, {});
  EXPECT_EQ(more.scores[1].accuracy, whole.scores[1].accuracy);
  EXPECT_EQ(more.scores[4].accuracy.size(), 4u);
  job.evaluate.controllers = {"none", "random"};
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "was controller 2", "--restart fresh");
  job.evaluate.controllers = {"none", "ppo:" + policy, "static", "replay", "random"};
  job.evaluate.episodes = 3;
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "none was controller 1", "2 episodes");
}

// As one that was killed: nothing is saved on the way out.
TEST(Evaluate, PlaysTheEpisodeItWasKilledInAloneAgain) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.population.host = "tiny";
  job.evaluate.controllers = {"none", "random"};
  job.evaluate.episodes = 2;
  job.run.run_dir = folder / "whole";
  int64_t num_batches = 0;
  EvaluateEvents events;
  events.batch_done = [&] { num_batches += 1; };
  run_evaluate_job(job, events);
  const int64_t whole = num_batches;

  job.run.run_dir = folder / "killed";
  job.evaluate.keep = folder / "kept";
  job.recorded = {{"keep", job.evaluate.keep}};
  // First where a network is kept already and no checkpoint is there.
  events.episode_done = [](const EvaluatedEpisode&) { throw std::runtime_error("killed"); };
  EXPECT_THROW(run_evaluate_job(job, events), std::runtime_error);
  EXPECT_EQ(saved_networks(job.evaluate.keep).size(), 1u);
  // Then in every episode after the first.
  events.episode_done = {};
  num_batches = 0;
  for (int64_t episode = 1; episode < 4; ++episode) {
    bool is_over = false;
    events.episode_saved = [&] { is_over = true; };
    events.batch_done = [&] {
      num_batches += 1;
      if (is_over) throw std::runtime_error("killed");
    };
    EXPECT_THROW(run_evaluate_job(job, events), std::runtime_error);
  }
  events.episode_saved = {};
  events.batch_done = [&] { num_batches += 1; };
  run_evaluate_job(job, events);
  EXPECT_EQ(num_batches, whole + 3) << "one batch of each episode that was killed comes again";
  EXPECT_EQ(lines_of(folder / "killed"), lines_of(folder / "whole"));
  EXPECT_EQ(saved_networks(job.evaluate.keep).size(), 4u);

  // Another run, or the same begun anew, finds the folder of this one.
  job.run.restart = run::Restart::kFresh;
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--keep", "no empty folder");
}

// --allow-change lets anything through; here the checkpoint is of the middle of a controller's episodes.
TEST(Evaluate, GoesOnWithEpisodesOfTheSameKindAlone) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  EvaluateConfig& options = job.evaluate;
  options.population.host = "tiny";
  options.population.lanes = 4;
  options.population.batch = 3;
  options.controllers = {"random"};
  options.episodes = 4;
  bool is_over = false;
  EvaluateEvents events;
  events.episode_done = [&](const EvaluatedEpisode& done) { is_over = done.episode == 2; };
  events.batch_done = [&] {
    if (is_over) throw Interrupted(2);
  };
  EXPECT_THROW(run_evaluate_job(job, events), Interrupted);
  const auto expect_refused = [&](const std::string& was, const std::string& now, const auto& change) {
    EvaluateJob changed = job;
    change(changed.evaluate.population);
    EXPECT_ERROR(run_evaluate_job(changed, {}), UsageError, "--allow-change", was, now, "--restart fresh");
  };
  expect_refused("--lanes 4", "--lanes 8", [](PopulationConfig& to) { to.lanes = 8; });
  expect_refused("--host tiny", "--host cifar_wide", [](PopulationConfig& to) { to.host = "cifar_wide"; });
  expect_refused("--episode-length 2", "--episode-length 3", [](PopulationConfig& to) { to.epochs = 3; });
  expect_refused("--batches-per-step 0", "--batches-per-step 2",
                 [](PopulationConfig& to) { to.batches_per_step = 2; });
  expect_refused("--seed 0", "--seed 1", [](PopulationConfig& to) { to.seed = 1; });
  EXPECT_EQ(run_evaluate_job(job, {}).scores[0].accuracy.size(), 16u);
}

TEST(Evaluate, RefusesToGoOnWithAnotherPolicyOfTheSameName) {
  const support::TemporaryFolder folder;
  const std::string policy = folder / "policy.safetensors";
  EvaluateJob job = growing_job(folder, policy);
  job.evaluate.episodes = 1;
  job.evaluate.controllers = {"none", "ppo:" + policy};
  run_evaluate_job(job, {});
  const auto lines = lines_of(folder / "run");
  job.evaluate.population.seed = 1;
  PpoConfig other;
  static_cast<EnvironmentConfig&>(other) = job.evaluate;
  other.policy.encoder_size = other.policy.hidden_size = 8;
  PpoTrainer(other, shards_of(other, {})).save(policy);
  job.evaluate.population.seed = PopulationConfig().seed;
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "the file has changed", "--restart fresh");
  EXPECT_EQ(lines_of(folder / "run"), lines);
  job.run.restart = run::Restart::kFresh;
  EXPECT_NO_THROW(run_evaluate_job(job, {}));
}

TEST(Evaluate, ThrowsAwayTheRecordingsOfTheRunBeforeIt) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  job.evaluate.controllers = {"none", "random"};
  run_evaluate_job(job, {});
  const std::filesystem::path recordings = folder / "run/recordings";
  const auto names = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(recordings))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"1_none.jsonl", "2_random.jsonl"}));
  std::ofstream(recordings / "notes.txt") << "mine";
  job.run.restart = run::Restart::kFresh;
  job.evaluate.controllers = {"static:" + (recordings / "2_random.jsonl").string()};
  run_evaluate_job(job, {});
  EXPECT_EQ(names(), (std::vector<std::string>{"1_static.jsonl", "2_random.jsonl", "notes.txt"}));
  job.evaluate.controllers = {"heuristic"};
  run_evaluate_job(job, {});
  EXPECT_EQ(names(), (std::vector<std::string>{"1_heuristic.jsonl", "notes.txt"}));
}

TEST(Evaluate, RefusesRecordingsThatAreNotThereOrDoNotFit) {
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cpu");
  const auto expect_refused = [&](const std::vector<std::string>& controllers, const std::string& part) {
    job.evaluate.controllers = controllers;
    EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, controllers.back(), part);
  };
  expect_refused({"none", "static"}, "put ppo:FILE before it");
  expect_refused({"none", "replay:"}, "after the colon");
  job.evaluate.controllers = {"none", "replay:nowhere.jsonl"};
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "'nowhere.jsonl'", "cannot be read");
  expect_refused({"none", "static:" + folder.string()}, "0 policies");
  job.evaluate.controllers = {"random"};
  run_evaluate_job(job, {});
  expect_refused({"none", "static:" + (folder / "run")}, "0 policies");
  job.run.run_dir = folder / "longer";
  job.evaluate.population.epochs = 3;
  const std::string file = folder / "run/recordings/1_random.jsonl";
  job.evaluate.controllers = {"replay:" + file};
  EXPECT_ERROR(run_evaluate_job(job, {}), UsageError, "--episode-length 3", "--episode-length 2");
  job.evaluate.controllers = {"static:" + file};
  EXPECT_NO_THROW(run_evaluate_job(job, {}));
}

TEST(EvaluateCuda, KeepsTheAllocatorToItsCap) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const support::TemporaryFolder folder;
  EvaluateJob job = small_evaluate_job(folder, "cuda:0");
  job.evaluate.population.device_memory = int64_t{4} << 30;
  int num_episodes = 0;
  EvaluateEvents events;
  events.episode_done = [&](const EvaluatedEpisode&) {
    num_episodes += 1;
    EXPECT_THROW(at::empty({int64_t{5} << 30}, at::TensorOptions(at::kByte).device(at::kCUDA)),
                 c10::OutOfMemoryError);
  };
  run_evaluate_job(job, events);
  EXPECT_EQ(num_episodes, 1);
  claim_device(at::Device("cuda:0"), int64_t{1} << 60);  // for the tests that follow: as good as none
}

TEST(Evaluate, RefusesNamesThatAreNoneAndFilesThatAreNoPolicies) {
  EvaluateConfig options = small_evaluation();
  options.controllers = {"none", "clever"};
  EXPECT_ERROR(scores_of(options), UsageError, "--controllers", "'clever'", "heuristic");
  options.controllers = {"ppo:nowhere.safetensors"};
  EXPECT_ERROR(scores_of(options), Error, "nowhere.safetensors");
  options.controllers = {"none"};
  options.population.controller = "random";
  EXPECT_ERROR(scores_of(options), UsageError, "population.controller 'random'", "`controllers`");
}

}  // namespace
}  // namespace espalier::jobs
