// Flags of commands that take grown networks from where they were left.
#pragma once

#include "espalier/core/options.h"
#include "espalier/jobs/saved/networks.h"

namespace espalier::cli {

inline constexpr std::string_view kNetworksHelp =
    "a run of train population or train host, latest, or a file or folder that export wrote";

// best, all or a number.
TextMember lane_member(jobs::LaneChoice& member);

template <class Visitor>
void visit_lane(Visitor&& v, jobs::LaneChoice& lane, std::string_view help) {
  v({.name = "lane", .help = help, .placeholder = "LANE"}, lane_member(lane));
}

template <class Visitor>
void visit_checkpoint(Visitor&& v, jobs::CheckpointChoice& checkpoint) {
  using jobs::CheckpointChoice;
  v({.name = "checkpoint",
     .help = "which checkpoint of a run: the newest, or the one with the best mean validation accuracy"},
    one_of(checkpoint, {{"newest", CheckpointChoice::kNewest}, {"best", CheckpointChoice::kBest}}));
}

}  // namespace espalier::cli
