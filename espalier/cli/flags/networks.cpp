#include "espalier/cli/flags/networks.h"

#include <charconv>

namespace espalier::cli {

TextMember lane_member(jobs::LaneChoice& member) {
  using Which = jobs::LaneChoice::Which;
  return {.get =
              [&member] {
                return member.which == Which::kBest  ? std::string("best")
                       : member.which == Which::kAll ? std::string("all")
                                                     : std::to_string(member.lane);
              },
          .set =
              [&member](std::string_view text) {
                if (text == "best" || text == "all") {
                  member = {.which = text == "best" ? Which::kBest : Which::kAll};
                  return true;
                }
                int64_t lane = 0;
                const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), lane);
                if (error != std::errc() || stop != text.data() + text.size() || lane < 0) return false;
                member = {.which = Which::kOne, .lane = lane};
                return true;
              },
          .expected = "best, all or the number of a lane, from 0"};
}

}  // namespace espalier::cli
