// The lanes of a running job, drawn over in place on a terminal: how well each does and what grows in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/train/epoch_lines.h"
#include "espalier/train/epoch_record.h"

namespace espalier::cli {

class LaneView {
 public:
  // slots: their names, by action index. Lanes beyond the first most_lanes are summed up in a line.
  explicit LaneView(std::vector<std::string> slots, int most_lanes = 16);

  // What to write to a terminal of so many columns: over what was shown before.
  std::string show(const std::string& title, const train::EpochRecord& epoch, int columns);
  // What takes it away again: the cursor is where the first line began.
  std::string clear();

 private:
  std::vector<std::string> slots_;
  int most_lanes_;
  int lines_shown_ = 0;
};

}  // namespace espalier::cli
