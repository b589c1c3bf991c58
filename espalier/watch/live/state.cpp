#include "espalier/watch/live/state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ranges>

#include "espalier/core/lane_outcome.h"
#include "espalier/core/seed_stage.h"
#include "espalier/run/files/metric_keys.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kRateWindow = 16;

const ordered_json* field(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::optional<double> number(const ordered_json& object, const char* key) {
  const ordered_json* const value = field(object, key);
  if (value == nullptr || !value->is_number()) return {};
  const auto read = value->get<double>();
  return std::isfinite(read) ? std::optional(read) : std::nullopt;
}

std::optional<int64_t> integer(const ordered_json& object, const char* key) {
  const ordered_json* const value = field(object, key);
  return value != nullptr && value->is_number_integer() ? std::optional(value->get<int64_t>()) : std::nullopt;
}

std::string text(const ordered_json& object, const char* key) {
  const ordered_json* const value = field(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

double or_gap(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::vector<LiveSeed> seeds_of(const ordered_json& line) {
  std::vector<LiveSeed> seeds;
  const ordered_json* const slots = field(line, "slots");
  if (slots == nullptr || !slots->is_array()) return seeds;
  for (const ordered_json& slot : *slots)
    if (!text(slot, "stage").empty())
      seeds.push_back(
          {text(slot, "slot"), text(slot, "blueprint"), text(slot, "stage"), number(slot, "amplitude")});
  return seeds;
}

// "GERMINATE r1c2 conv_light"; no text: the lane waits.
SeedOp op_of(const ordered_json& line) {
  const std::string action = text(line, "action");
  const std::string name = action.substr(0, action.find(' '));
  for (int op = 0; op < kNumSeedOps; ++op)
    if (name == name_of(static_cast<SeedOp>(op))) return static_cast<SeedOp>(op);
  return SeedOp::kWait;
}

// "rolled back: loss jumped", "retired"; nothing of a lane that was trained.
std::string note_of(const ordered_json& line) {
  std::string note = text(line, "outcome");
  if (note == name_of(LaneOutcome::kTrained)) return {};
  if (const std::string why = text(line, "collapse"); !why.empty()) note += ": " + why;
  std::ranges::replace(note, '_', ' ');
  return note;
}

bool is_alive(const LiveSeed& seed) {
  for (int stage = 0; stage < kNumSeedStages; ++stage)
    if (seed.stage == name_of(static_cast<SeedStage>(stage)))
      return holds_seed(static_cast<SeedStage>(stage));
  return false;
}

std::optional<double> mean_over(const std::vector<LiveRow>& rows, std::optional<double> LiveRow::*member) {
  double sum = 0;
  int64_t count = 0;
  for (const LiveRow& row : rows) {
    if (!(row.*member)) continue;
    sum += *(row.*member);
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

}  // namespace

LiveState::LiveState(RunExtent extent, double seconds)
    : extent_(extent), began_(seconds), moved_(seconds), ends_{seconds} {}

void LiveState::add(const ordered_json& line, double seconds) {
  using enum run::LineKind;
  const std::optional<run::LineKind> kind = run::kind_of_line(line);
  if (kind == kLane || kind == kEpochOfMany || kind == kEpochOfOne) {
    const auto epoch = integer(line, extent_.shape == RunShape::kRounds ? "step" : "epoch");
    if (!epoch) return;
    move_to(integer(line, "round").value_or(round_), *epoch, seconds);
    kind == kLane ? add_lane(line) : add_epoch(line);
  } else if (kind == kRound) {
    add_round(line);
  } else if (kind == kResult) {
    is_finished_ = true;
  }
}

LiveRow& LiveState::row(const std::string& name) {
  const auto [found, is_new] = places_.try_emplace(name, rows_.size());
  if (is_new) rows_.push_back({.name = name});
  return rows_[found->second];
}

void LiveState::add_lane(const ordered_json& line) {
  const auto lane = integer(line, "lane");
  if (!lane) return;
  LiveRow& lane_row = row(std::to_string(*lane));
  lane_row.accuracy = number(line, "validation_accuracy");
  lane_row.accuracies.add(or_gap(lane_row.accuracy));
  lane_row.loss = number(line, "validation_loss");
  lane_row.train_accuracy = number(line, "train_accuracy");
  lane_row.gradient_norm = number(line, "gradient_norm");
  lane_row.parameters = number(line, "parameters");
  lane_row.reward = number(line, "reward");
  lane_row.seeds = seeds_of(line);
  const std::string outcome = text(line, "outcome");
  lane_row.note = note_of(line);
  lane_row.is_retired = outcome == name_of(LaneOutcome::kRetired);
  if (outcome == name_of(LaneOutcome::kTrained)) num_chosen_[static_cast<size_t>(op_of(line))] += 1;
}

void LiveState::add_epoch(const ordered_json& line) {
  accuracy_ = number(line, "validation_accuracy");
  accuracies_.add(or_gap(accuracy_));
  loss_ = number(line, "validation_loss");
  if (const ordered_json* const streams = field(line, "streams");
      streams != nullptr && streams->is_object()) {
    has_streams_ = true;
    for (const auto& [name, stream] : streams->items()) {
      LiveRow& stream_row = row(name);
      stream_row.accuracy = number(stream, "validation_accuracy");
      stream_row.accuracies.add(or_gap(stream_row.accuracy));
      stream_row.loss = number(stream, "train_loss");
      stream_row.share = number(stream, "share");
      const ordered_json* const frozen = field(stream, "frozen");
      if (frozen != nullptr && frozen->is_boolean() && frozen->get<bool>()) stream_row.note = "frozen";
    }
  } else if (integer(line, "lanes").value_or(1) == 1 && (rows_.empty() || places_.contains("all"))) {
    // A single network has no lines of its own.
    LiveRow& only_row = row("all");
    only_row.accuracy = accuracy_;
    only_row.accuracies.add(or_gap(accuracy_));
    only_row.loss = loss_;
  }
}

void LiveState::add_round(const ordered_json& line) {
  last_return_ = number(line, "charts/episodic_return");
  returns_.add(or_gap(last_return_));
  accuracy_ = number(line, "lanes/validation_accuracy");
  entropy_ = number(line, "losses/entropy");
  approx_kl_ = number(line, "losses/approx_kl");
}

void LiveState::move_to(int64_t round, int64_t epoch, double seconds) {
  if (round == round_ && epoch == epoch_) return;
  if (round != round_) {  // a new episode begins from fresh weights
    for (LiveRow& row : rows_) row.accuracies.clear();
    num_chosen_ = {};
  }
  round_ = round;
  epoch_ = epoch;
  const auto steps = static_cast<double>(std::max<int64_t>(extent_.steps_a_round, 1));
  if (!first_position_) first_position_ = position() - 1 / steps;
  moved_ = seconds;
  ends_.push_back(seconds);
  if (ends_.size() > kRateWindow) ends_.pop_front();
}

double LiveState::position() const {
  if (extent_.shape == RunShape::kEpochs) return static_cast<double>(epoch_);
  const auto steps = static_cast<double>(std::max<int64_t>(extent_.steps_a_round, 1));
  return static_cast<double>(round_ - 1) + static_cast<double>(epoch_) / steps;
}

std::optional<double> LiveState::accuracy() const {
  if (extent_.shape == RunShape::kRounds || !accuracy_) return mean_over(rows_, &LiveRow::accuracy);
  return accuracy_;
}

std::optional<double> LiveState::mean_reward() const {
  return mean_over(rows_, &LiveRow::reward);
}

int64_t LiveState::num_seeds() const {
  int64_t count = 0;
  for (const LiveRow& row : rows_) count += std::ranges::count_if(row.seeds, is_alive);
  return count;
}

int64_t LiveState::num_retired() const {
  return std::ranges::count(rows_, true, &LiveRow::is_retired);
}

std::optional<double> LiveState::share_done() const {
  if (extent_.total <= 0 || !first_position_) return {};
  return std::clamp(position() / static_cast<double>(extent_.total), 0.0, 1.0);
}

std::optional<double> LiveState::seconds_left(double seconds) const {
  if (extent_.total <= 0 || !first_position_ || is_finished_) return {};
  const double a_unit = (moved_ - began_) / (position() - *first_position_);
  const double left = a_unit * (static_cast<double>(extent_.total) - position());
  return std::max(0.0, left - (seconds - moved_));
}

std::optional<double> LiveState::steps_a_second() const {
  const double time = ends_.back() - ends_.front();
  if (ends_.size() < 2 || time <= 0) return {};
  return static_cast<double>(ends_.size() - 1) / time;
}

}  // namespace espalier::watch
