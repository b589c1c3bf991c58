#include "espalier/cli/flags/linet.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/text/list.h"

namespace espalier::cli {

TextMember factors_member(std::vector<double>& member, std::string flag) {
  return {.get = [&member] { return fmt::format("{}", fmt::join(member, ",")); },
          .set =
              [&member, flag = std::move(flag)](std::string_view text) {
                std::vector<double> factors;
                for (const std::string& part : text.empty() ? std::vector<std::string>{} : split_list(text)) {
                  double factor = 0;
                  const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), factor);
                  if (error != std::errc() || stop != part.data() + part.size() || !std::isfinite(factor) ||
                      factor < 0)
                    fail_usage("{} '{}': want numbers of at least 0 with commas between, got '{}'", flag,
                               text, part);
                  factors.push_back(factor);
                }
                member = std::move(factors);
                return true;
              },
          .expected = "numbers of at least 0 with commas between"};
}

}  // namespace espalier::cli
