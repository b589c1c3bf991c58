#include "espalier/watch/terminal/table.h"

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/watch/terminal/colours.h"

namespace espalier::watch {
Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    is_right_.push_back(heading.starts_with('>'));
    if (is_right_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != is_right_.size()) {
    fail("Table::add_row: want {} cells, got {}", is_right_.size(), cells.size());
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text(int indent) const {
  std::vector<size_t> widths(is_right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_columns(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string space(widths[i] - display_columns(row[i]), ' ');
      line += is_right_[i] ? space + row[i] : row[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace espalier::watch
