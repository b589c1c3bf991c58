// Aligned columns of text for a person: numbers to the right, words to the left.
#pragma once

#include <string>
#include <vector>

namespace espalier::watch {

class Table {
 public:
  // The first row. A heading that begins with '>' (which is not printed) aligns its column to the right.
  explicit Table(std::vector<std::string> headings);

  // As many cells as there are headings; fails otherwise.
  void add_row(std::vector<std::string> cells);

  // Every row on a line of its own after `indent` spaces, two spaces between columns, none at the end.
  std::string text(int indent = 0) const;

 private:
  std::vector<bool> is_right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace espalier::watch
