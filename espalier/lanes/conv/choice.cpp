#include "espalier/lanes/conv/choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"

namespace espalier::lanes {

bool is_conv_way(std::string_view text) {
  if (text == "lanes" || text == "products" || text == "folded") return true;
  constexpr std::string_view kCudnn = "cudnn ", kNarrow = " narrow";
  if (!text.starts_with(kCudnn)) return false;
  text.remove_prefix(kCudnn.size());
  if (text.ends_with(kNarrow)) text.remove_suffix(kNarrow.size());
  // A place in a list of some dozen.
  return !text.empty() && text.size() <= 9 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

ConvChoices parse_conv_choices(std::string_view json, const std::string& where) {
  using Json = nlohmann::json;
  bool is_flat = true;
  const auto look = [&](int depth, Json::parse_event_t, const Json&) {
    is_flat = is_flat && depth <= 1;
    return is_flat;  // what is deeper is dropped as it is read
  };
  const Json parsed = Json::parse(json, look, /*allow_exceptions=*/false);
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!is_flat || !parsed.is_object() || !std::ranges::all_of(parsed, is_text))
    fail_usage("{}: want the convolutions.json of a run: an object of strings", where);
  ConvChoices choices;
  for (const auto& item : parsed.items()) {
    const auto& way = item.value().get_ref<const std::string&>();
    if (!is_conv_way(way))
      fail_usage("{}: choice {}: want lanes, products, folded, or cudnn and a number, got {}", where,
                 in_quotes(item.key()), in_quotes(way));
    choices.emplace(item.key(), way);
  }
  return choices;
}

}  // namespace espalier::lanes
