// Numbers of the page's data: six digits are finer than a pixel; more would make the page larger.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

namespace espalier::watch {

nlohmann::ordered_json short_number(double value);  // null where it is not finite
nlohmann::ordered_json short_numbers(std::span<const double> values);

}  // namespace espalier::watch
