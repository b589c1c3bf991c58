// Text from outside: is it UTF-8, and how to show it in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier {

// The offset of the first byte that is not part of well-formed UTF-8 (Unicode, table 3-7: no overlong form,
// no surrogate, nothing above U+10FFFF), or the length when all is well.
size_t first_bad_utf8(std::string_view text);

inline bool is_utf8(std::string_view text) {
  return first_bad_utf8(text) == text.size();
}

// A value that someone gave, for a message: as it is, but on one line (control characters become '?') and of
// bounded length (what is cut shows as "...", never amid a character).
std::string on_one_line(std::string_view text);

// A name from a file or a folder, for a message: in double quotes, on one line, printable ASCII, of bounded
// length (what is cut shows as "...").
std::string in_quotes(std::string_view text);

}  // namespace espalier
