// How much the lines of single lanes will write, told when a run begins: they are nearly all of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "espalier/grow/network_stack.h"
#include "espalier/jobs/facts/epoch_lines.h"

namespace espalier::jobs {

// Bytes of one lane's line where so many seeds stand in it: measured on one that is made up.
int64_t lane_line_bytes(const EpochLines& lines, const grow::NetworkStack& population, int64_t seeds);

struct OutputShape {
  int64_t line_bytes = 0;
  int64_t lanes = 1;
  int64_t steps = 1;  // lines of a lane in an epoch or round
  int64_t total = 1;  // epochs or rounds
  int64_t every = 1;  // lines are written in every so many of them (RunConfig::lane_lines)
  std::string_view unit = "epoch";
};
// "will write about 1.2 MiB of metrics and events per round, 43 MiB in all 36, and checkpoints; ..."
std::string output_text(const OutputShape& shape);

}  // namespace espalier::jobs
