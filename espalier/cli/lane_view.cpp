#include "espalier/cli/lane_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::cli {
namespace {

constexpr int kBarWidth = 20;

std::string bar(double share) {
  const int full = std::clamp(static_cast<int>(share * kBarWidth + 0.5), 0, kBarWidth);
  return std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kBarWidth - full), '.');
}

}  // namespace

LaneView::LaneView(std::vector<std::string> slots, int most_lanes)
    : slots_(std::move(slots)), most_lanes_(most_lanes) {}

std::string LaneView::show(const std::string& title, const train::EpochRecord& epoch, int columns) {
  std::vector<std::string> lines{title};
  for (const train::LaneRecord& lane : epoch.lanes) {
    if (std::ssize(lines) > most_lanes_) break;
    std::string line = fmt::format("{:>4} {} {:5.1f} %", lane.lane, bar(lane.validated.accuracy),
                                   100 * lane.validated.accuracy);
    if (lane.outcome == train::LaneOutcome::kRetired) line += "  lost";
    for (size_t slot = 0; slot < lane.slots.size(); ++slot)
      if (lane.slots[slot].state.stage != SeedStage::kDormant)
        line += fmt::format("  {} {}", slots_[slot], name_of(lane.slots[slot].state.stage));
    lines.push_back(line);
  }
  if (const auto more = std::ssize(epoch.lanes) - most_lanes_; more > 0)
    lines.push_back(fmt::format("     and {} more", more));
  std::string text = clear();
  for (const std::string& line : lines)
    text += line.substr(0, static_cast<size_t>(std::max(columns - 1, 1))) + "\n";
  lines_shown_ = static_cast<int>(lines.size());
  return text;
}

std::string LaneView::clear() {
  // Up to where it began, then everything below goes.
  const std::string text = lines_shown_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_shown_) : "";
  lines_shown_ = 0;
  return text;
}

}  // namespace espalier::cli
