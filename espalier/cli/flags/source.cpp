#include "espalier/cli/flags/source.h"

#include "espalier/data/sources/class_choice.h"

namespace espalier::cli {
namespace {

constexpr std::string_view kSize = "HxW, such as 32x32, with both sides from 1 to 65535";

}  // namespace

TextMember size_member(data::ImageSize& member, std::string flag) {
  return {.get = [&member] { return data::size_text(member); },
          .set =
              [&member, flag = std::move(flag)](std::string_view text) {
                member = data::parse_size(flag, std::string(text));
                return true;
              },
          .expected = kSize};
}

TextMember size_member(std::optional<data::ImageSize>& member, std::string flag) {
  return {.get = [&member] { return member ? data::size_text(*member) : std::string(); },
          .set =
              [&member, flag = std::move(flag)](std::string_view text) {
                member.reset();
                if (!text.empty()) member = data::parse_size(flag, std::string(text));
                return true;
              },
          .expected = kSize};
}

TextMember classes_member(std::vector<int64_t>& member, std::string flag) {
  return {.get = [&member] { return data::classes_text(member); },
          .set =
              [&member, flag = std::move(flag)](std::string_view text) {
                member = data::parse_classes(flag, text);
                return true;
              },
          .expected = "numbers of classes, such as 0-4 or 0,3,7-9"};
}

std::string_view data_help() {
  static const std::string help = "where the data is: " + data::source_forms();
  return help;
}

}  // namespace espalier::cli
