// Sizes of memory as people write them: "20GiB" to bytes, and bytes to "20.0 GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

// A number >= 0, a fraction allowed, then a unit: B or none; KiB, MiB, GiB, TiB (also K, M, G, T) are
// powers of 1024; KB, MB, GB, TB powers of 1000. Case and spaces between do not matter. Nothing for other
// text, or where the value does not fit.
std::optional<int64_t> parse_byte_size(std::string_view text);

// In the largest unit that gives at least 1, with one digit: "512 B", "1.5 GiB".
std::string format_byte_size(int64_t size_bytes);

}  // namespace espalier
