#include "espalier/watch/page/short_number.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace espalier::watch {

using nlohmann::ordered_json;

ordered_json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

ordered_json short_numbers(std::span<const double> values) {
  ordered_json list = ordered_json::array();
  for (const double value : values) list.push_back(short_number(value));
  return list;
}

}  // namespace espalier::watch
