// A sentence of the page with plain blanks and minus signs, so that tests can spell it.
#pragma once

#include <regex>
#include <string>

namespace espalier::watch {

inline std::string plain_sentence(const std::string& text) {
  const std::string with_blanks = std::regex_replace(text, std::regex("\xe2\x80\xaf"), " ");
  return std::regex_replace(with_blanks, std::regex("\xe2\x88\x92"), "-");
}

}  // namespace espalier::watch
