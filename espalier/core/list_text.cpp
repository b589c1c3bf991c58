#include "espalier/core/list_text.h"

#include <algorithm>

namespace espalier {

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace espalier
