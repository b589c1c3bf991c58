#include "espalier/core/text/list.h"

#include <algorithm>
#include <set>

#include "espalier/core/error.h"

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

std::vector<std::string> split_names(std::string_view flag, std::string_view list) {
  std::vector<std::string> names = split_list(list);
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (name.empty())
      fail_usage("{} '{}': has an empty name; want names with one comma between two of them", flag, list);
    if (!seen.insert(name).second)
      fail_usage("{} '{}': names '{}' twice; want every name once", flag, list, name);
  }
  return names;
}

}  // namespace espalier
