#include "espalier/watch/live/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "espalier/core/seed_stage.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/watch/terminal/progress_bar.h"

namespace espalier::watch {
namespace {

constexpr size_t kMostMessages = 16;
constexpr size_t kMostShown = 3;
constexpr int kLongestName = 12;
constexpr int kWidestSparkline = 40;
constexpr int kNarrowestSparkline = 12;  // what a curve keeps where seeds need the columns
constexpr int kNarrow = 40;              // columns under which curves, words and shares give way to numbers

// Stages from the first to the last: colder to warmer to green; what was removed is red, then dim.
std::optional<Color> color_of(std::string_view stage) {
  const auto is = [&](SeedStage which) { return stage == name_of(which); };
  if (is(SeedStage::kGerminated)) return Color::kCyan;
  if (is(SeedStage::kTraining)) return Color::kYellow;
  if (is(SeedStage::kBlending)) return Color::kMagenta;
  if (is(SeedStage::kHolding)) return Color::kBlue;
  if (is(SeedStage::kFossilized)) return Color::kGreen;
  if (is(SeedStage::kPruned)) return Color::kRed;
  if (is(SeedStage::kEmbargoed) || is(SeedStage::kResetting)) return Color::kDim;
  return {};
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "-";
}

// In at most eight columns.
std::string value_text(const std::optional<double>& value) {
  if (!value) return "-";
  return std::abs(*value) < 1000 ? fmt::format("{:.3f}", *value) : fmt::format("{:.1e}", *value);
}

// "conv_light" -> "conv_l": the beginning of the first word and a letter of each other.
std::string short_name(const std::string& blueprint) {
  std::string made = blueprint.substr(0, std::min<size_t>(4, blueprint.find('_')));
  for (size_t at = blueprint.find('_'); at != blueprint.npos && at + 1 < blueprint.size();
       at = blueprint.find('_', at + 1))
    made += blueprint.substr(at, 2);
  return made;
}

std::string blueprint_text(const LiveSeed& seed, bool is_short) {
  return is_short ? short_name(seed.blueprint) : seed.blueprint;
}

std::string stage_text(const LiveSeed& seed, bool is_short) {
  return is_short ? seed.stage.substr(0, 4) : seed.stage;
}

// What a row's seeds take.
int columns_of(const std::vector<LiveSeed>& seeds, bool is_short) {
  size_t columns = 0;
  for (const LiveSeed& seed : seeds)
    columns += 3 + seed.slot.size() + stage_text(seed, is_short).size() +
               (seed.blueprint.empty() ? 0 : blueprint_text(seed, is_short).size() + 1) +
               (seed.amplitude ? 5 : 0);
  return static_cast<int>(columns);
}

}  // namespace

// Where the columns of the table stand. Narrow terminals lose the curve first.
struct LiveView::Layout {
  int name = 4;
  int curve = 0;
  Scale scale;
  bool has_train = false;  // these three where there is room
  bool has_parameters = false;
  bool has_norm = false;
  bool are_seeds_short = false;
};

LiveView::LiveView(LiveViewOptions options)
    : options_(std::move(options)), state_(options_.extent, 0), began_(0) {
  if (!options_.seconds)
    options_.seconds = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  began_ = options_.seconds();
  state_ = LiveState(options_.extent, began_);
}

void LiveView::add(const nlohmann::ordered_json& line) {
  state_.add(line, options_.seconds());
}

void LiveView::report(std::string_view what, int64_t done, int64_t total) {
  if (what != what_) work_began_ = options_.seconds();
  what_ = what;
  done_ = done;
  total_ = total;
}

void LiveView::say(std::string_view message) {
  while (!message.empty()) {
    const size_t end = std::min(message.find('\n'), message.size());
    if (end > 0) messages_.emplace_back(message.substr(0, end));
    message.remove_prefix(std::min(end + 1, message.size()));
    if (messages_.size() > kMostMessages) messages_.pop_front();
  }
}

std::vector<std::string> LiveView::frame(int columns, int rows) {
  std::vector<std::string> lines;
  if (columns < 1 || rows < 1) return lines;
  const bool is_high = rows >= 8;
  const auto num_messages =
      rows < 12 ? size_t{0} : std::min({messages_.size(), kMostShown, static_cast<size_t>(rows) / 6});
  const int feet = (is_high ? 1 : 0) + static_cast<int>(num_messages);
  lines.push_back(title(columns));
  if (rows >= 3) lines.push_back(progress(columns));
  if (rows >= 6) lines.push_back(summary(columns));
  if (const std::string chosen = rows >= 14 ? choices(columns) : ""; !chosen.empty()) lines.push_back(chosen);
  if (rows >= 7) lines.push_back(speed(columns));
  if (rows >= 10) lines.push_back(work(columns));
  if (rows >= 16) lines.emplace_back();
  const int room = rows - static_cast<int>(lines.size()) - feet;
  if (state_.rows().empty())
    add_beginning(lines, columns, room);
  else
    add_rows(lines, columns, room, is_high);
  while (std::ssize(lines) < rows - feet) lines.emplace_back();
  for (size_t i = messages_.size() - num_messages; i < messages_.size(); ++i)
    lines.push_back(line(columns).add(messages_[i]).text());
  if (is_high)
    lines.push_back(line(columns)
                        .add(is_stopping_ ? "Ctrl-C, after a second, stops at once"
                                          : "q stops; arrow keys and PgUp, PgDn scroll",
                             Color::kDim)
                        .text());
  return lines;
}

std::string LiveView::title(int columns) const {
  ScreenLine made = line(columns);
  made.add((columns < kNarrow ? "" : "espalier train ") + options_.job, Color::kBold);
  const std::string state = is_stopping_ ? "stopping" : state_.is_finished() ? "finished" : "running";
  // The state is worth more than the whole name of the directory.
  const auto state_columns = static_cast<int>(state.size());
  if (columns > made.used() + state_columns + 2 + 8)
    made.add("  ").add(line(made.left() - state_columns - 4).add(options_.run).text());
  return made.add("  ").add(state, is_stopping_ ? Color::kYellow : Color::kGreen).text();
}

std::string LiveView::progress(int columns) const {
  ScreenLine made = line(columns);
  const RunExtent& extent = options_.extent;
  const bool has_rounds = extent.shape == RunShape::kRounds;
  made.add(
      fmt::format("{} {}", has_rounds ? "round" : "epoch", has_rounds ? state_.round() : state_.epoch()));
  if (extent.total > 0) made.add(fmt::format("/{}", extent.total));
  if (has_rounds && columns >= kNarrow)
    made.add(fmt::format(", step {}/{}", state_.epoch(), extent.steps_a_round));
  const double now = options_.seconds();
  const auto left = state_.seconds_left(now);
  const std::string left_text = left ? seconds_text(*left) + " left" : "";
  if (columns < kNarrow) return made.add("  " + left_text).text();
  const std::string times = "  " + seconds_text(now - began_) + (left ? ", " : "") + left_text;
  if (const auto share = share_done()) {
    const std::string done = fmt::format(" {:3.0f} %", 100 * *share);
    const int cells = std::min(made.left() - static_cast<int>(done.size() + times.size()) - 3, 40);
    if (cells >= 5) {
      const auto full = static_cast<size_t>(*share * cells);
      made.add(" [")
          .add(std::string(full, '='), Color::kGreen)
          .add(std::string(static_cast<size_t>(cells) - full, ' ') + "]");
    }
    made.add(done);
  }
  return made.add(times).text();
}

// The title of an epoch's batches, as Shard tells it; what else is under way is no part of the whole.
double LiveView::share_under_way() const {
  if (options_.extent.shape != RunShape::kEpochs || total_ <= 0) return 0;
  if (what_ != fmt::format("epoch {}/{}", state_.epoch() + 1, options_.extent.total)) return 0;
  return std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
}

std::optional<double> LiveView::share_done() const {
  const double share = share_under_way();
  if (share == 0) return state_.share_done();
  return (static_cast<double>(state_.epoch()) + share) / static_cast<double>(options_.extent.total);
}

void LiveView::add_beginning(std::vector<std::string>& lines, int columns, int rows) const {
  if (rows < 1) return;
  const char* const unit = options_.extent.shape == RunShape::kRounds ? "step" : "epoch";
  if (what_.empty()) {
    lines.push_back(line(columns).add("getting ready").text());
    return;
  }
  ScreenLine made = line(columns);
  made.add(what_ + " is under way: ");
  if (total_ > 0)
    made.add(fmt::format("{:.0f} %, ", 100.0 * static_cast<double>(done_) / static_cast<double>(total_)));
  const double elapsed = options_.seconds() - work_began_;
  made.add(seconds_text(elapsed) + " so far");
  // The first report comes when something is done: nothing can be said from that one alone.
  if (total_ > done_ && done_ > 1 && elapsed > 0)
    made.add(", " +
             seconds_text(elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_ - 1)) +
             " left");
  lines.push_back(made.text());
  if (rows > 1)
    lines.push_back(
        line(columns).add(fmt::format("results come when the first {} ends", unit), Color::kDim).text());
}

// What the policy is like, and what it or another controller chose.
std::string LiveView::choices(int columns) const {
  ScreenLine made = line(columns);
  if (const auto entropy = state_.entropy())
    made.add(fmt::format("entropy {} of its maximum  ", percent(entropy)));
  if (const auto kl = state_.approx_kl()) made.add(fmt::format("KL {:.4f}  ", *kl));
  const auto& chosen = state_.num_chosen();
  const auto all = static_cast<double>(std::accumulate(chosen.begin(), chosen.end(), int64_t{0}));
  if (static_cast<double>(chosen[0]) < all) {
    made.add("chosen:");
    constexpr const char* kNames[kNumSeedOps] = {"wait",  "germinate", "amplitude",
                                                 "prune", "fossilize", "advance"};
    for (size_t op = 0; op < chosen.size(); ++op)
      if (chosen[op] > 0)
        made.add(fmt::format(" {} {:.0f} %", kNames[op], 100 * static_cast<double>(chosen[op]) / all));
  }
  return made.text();
}

std::string LiveView::summary(int columns) const {
  ScreenLine made = line(columns);
  const bool has_rounds = options_.extent.shape == RunShape::kRounds;
  const auto add_curve = [&](const History& history) {
    const int cells = std::min(columns / 4, 24);
    const Scale scale = widened(kNoScale, history.values());
    if (history.values().size() > 1 && scale.low <= scale.high)
      made.add(" ").add(sparkline(history.values(), cells, scale, options_.style.glyphs), Color::kCyan);
  };
  if (has_rounds) {
    made.add("return " + value_text(state_.last_return()));
    add_curve(state_.returns());
    made.add("  reward " + value_text(state_.mean_reward()) + "  validation " + percent(state_.accuracy()));
  } else {
    made.add("validation " + percent(state_.accuracy()));
    add_curve(state_.accuracies());
    made.add("  loss " + value_text(state_.loss()));
  }
  if (!state_.has_streams() && state_.rows().size() > 1) made.add(extremes());
  if (const int64_t seeds = state_.num_seeds(); seeds > 0)
    made.add(fmt::format("  {} {}", seeds, seeds == 1 ? "seed" : "seeds"));
  if (const int64_t retired = state_.num_retired(); retired > 0)
    made.add(fmt::format("  {} retired", retired), Color::kRed);
  return made.text();
}

std::string LiveView::extremes() const {
  const LiveRow* best = nullptr;
  const LiveRow* worst = nullptr;
  for (const LiveRow& row : state_.rows()) {
    if (!row.accuracy) continue;
    if (best == nullptr || *row.accuracy > *best->accuracy) best = &row;
    if (worst == nullptr || *row.accuracy < *worst->accuracy) worst = &row;
  }
  if (best == nullptr) return {};
  return fmt::format("  best {} (lane {})  worst {} (lane {})", percent(best->accuracy), best->name,
                     percent(worst->accuracy), worst->name);
}

std::string LiveView::speed(int columns) {
  ScreenLine made = line(columns);
  const char* const unit = options_.extent.shape == RunShape::kRounds ? "step" : "epoch";
  if (const auto rate = state_.steps_a_second()) {
    made.add(*rate >= 1 ? fmt::format("{:.1f} {}s/s", *rate, unit)
                        : fmt::format("{} {} {}", seconds_text(1 / *rate), *unit == 'e' ? "an" : "a", unit));
    if (options_.extent.samples_a_step > 0)
      made.add(fmt::format(
          "  {} samples/s",
          short_count(static_cast<int64_t>(*rate * static_cast<double>(options_.extent.samples_a_step)))));
    made.add("  ");
  }
  const double now = options_.seconds();
  if (options_.device_memory && (!memory_read_ || now - *memory_read_ >= 1)) {
    memory_ = options_.device_memory();
    memory_read_ = now;
  }
  if (memory_) made.add("device memory " + format_byte_size(memory_->used_bytes));
  if (memory_ && memory_->total_bytes > 0) made.add(" of " + format_byte_size(memory_->total_bytes));
  return made.text();
}

std::string LiveView::work(int columns) const {
  ScreenLine made = line(columns);
  if (what_.empty()) return {};
  const std::string counts = total_ > 0 ? fmt::format(": {} of {}", short_count(done_), short_count(total_))
                                        : fmt::format(": {}", short_count(done_));
  return made.add(what_).add(counts).text();
}

std::string LiveView::heading(int columns, const Layout& layout) const {
  ScreenLine made = line(columns);
  made.add_right(state_.has_streams() ? "stream" : "lane", layout.name, Color::kDim).add(" ");
  if (layout.curve > 0) made.add("accuracy", Color::kDim).pad_to(layout.name + 1 + layout.curve);
  made.add_right("now", 8, Color::kDim).add_right("loss", 9, Color::kDim);
  if (state_.has_streams()) return made.add_right("share", 9, Color::kDim).text();
  if (options_.extent.shape == RunShape::kRounds) made.add_right("reward", 9, Color::kDim);
  if (layout.has_train) made.add_right("train", 9, Color::kDim);
  if (layout.has_parameters) made.add_right("params", 9, Color::kDim);
  if (layout.has_norm) made.add_right("gradient", 10, Color::kDim);
  return made.add("  seeds", Color::kDim).text();
}

std::string LiveView::row(const LiveRow& row, int columns, const Layout& layout) const {
  ScreenLine made = line(columns);
  made.add_right(line(layout.name).add(row.name).text(), layout.name).add(" ");
  if (layout.curve > 0)
    made.add(sparkline(row.accuracies.values(), layout.curve, layout.scale, options_.style.glyphs),
             Color::kCyan)
        .pad_to(layout.name + 1 + layout.curve);
  made.add_right(percent(row.accuracy), 8).add_right(value_text(row.loss), 9);
  if (state_.has_streams())
    made.add_right(percent(row.share), 9);
  else if (options_.extent.shape == RunShape::kRounds)
    made.add_right(value_text(row.reward), 9);
  if (layout.has_train) made.add_right(percent(row.train_accuracy), 9);
  if (layout.has_parameters)
    made.add_right(row.parameters ? short_count(static_cast<int64_t>(*row.parameters)) : "-", 9);
  if (layout.has_norm) made.add_right(value_text(row.gradient_norm), 10);
  if (!row.note.empty()) made.add("  ").add(row.note, row.note == "frozen" ? Color::kBlue : Color::kRed);
  for (const LiveSeed& seed : row.seeds) {
    const bool is_short = layout.are_seeds_short;
    made.add("  " + seed.slot + " ");
    if (!seed.blueprint.empty()) made.add(blueprint_text(seed, is_short) + " ");
    made.add(stage_text(seed, is_short), color_of(seed.stage));
    if (seed.amplitude) made.add(fmt::format(" {:.2f}", *seed.amplitude));
  }
  return made.text();
}

LiveView::Layout LiveView::layout_of(int columns) const {
  Layout layout{.scale = kNoScale};
  bool has_train = false, has_parameters = false, has_norm = false;
  int whole_seeds = 0, short_seeds = 0;  // the most columns that a row's take
  for (const LiveRow& row : state_.rows()) {
    layout.name = std::max(layout.name, screen_columns(row.name, options_.style.glyphs));
    layout.scale = widened(layout.scale, row.accuracies.values());
    has_train |= row.train_accuracy.has_value();
    has_parameters |= row.parameters.has_value();
    has_norm |= row.gradient_norm.has_value();
    whole_seeds = std::max(whole_seeds, columns_of(row.seeds, false));
    short_seeds = std::max(short_seeds, columns_of(row.seeds, true));
  }
  layout.name = std::min(layout.name, columns < kNarrow ? 4 : kLongestName);
  if (state_.has_streams())
    layout.name = std::min(std::max(layout.name, 6), columns < kNarrow ? 6 : kLongestName);
  layout.curve = columns < kNarrow ? 0 : std::min(columns / 4, kWidestSparkline);
  layout.has_train = has_train && columns >= 110;
  layout.has_parameters = has_parameters && columns >= 120;
  layout.has_norm = has_norm && columns >= 132;
  const int numbers = layout.name + 1 + 17 + (options_.extent.shape == RunShape::kRounds ? 9 : 0) +
                      (layout.has_train ? 9 : 0) + (layout.has_parameters ? 9 : 0) +
                      (layout.has_norm ? 10 : 0);
  // Whole names are worth more than a long curve, and a short curve is worth more than whole names.
  const int least_curve = std::min(layout.curve, kNarrowestSparkline);
  layout.are_seeds_short = numbers + least_curve + whole_seeds > columns;
  const int seeds = layout.are_seeds_short ? short_seeds : whole_seeds;
  layout.curve = std::clamp(columns - numbers - seeds, least_curve, layout.curve);
  return layout;
}

void LiveView::add_rows(std::vector<std::string>& lines, int columns, int rows, bool has_heading) {
  const std::vector<LiveRow>& all = state_.rows();
  const int64_t room = rows - (has_heading ? 1 : 0);
  if (all.empty() || room < 1) return;
  const Layout layout = layout_of(columns);
  if (has_heading) lines.push_back(heading(columns, layout));
  const bool has_more = std::ssize(all) > room;
  rows_shown_ = has_more && room >= 3 ? room - 1 : std::min(room, std::ssize(all));
  first_row_ = std::clamp<int64_t>(first_row_, 0, std::ssize(all) - rows_shown_);
  for (int64_t i = first_row_; i < first_row_ + rows_shown_; ++i)
    lines.push_back(row(all[static_cast<size_t>(i)], columns, layout));
  if (has_more && room >= 3)
    lines.push_back(line(columns)
                        .add(fmt::format("rows {} to {} of {}, and {} more", first_row_ + 1,
                                         first_row_ + rows_shown_, all.size(), std::ssize(all) - rows_shown_),
                             Color::kDim)
                        .text());
}

}  // namespace espalier::watch
