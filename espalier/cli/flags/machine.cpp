#include "espalier/cli/flags/machine.h"

#include <fmt/ranges.h>

#include "espalier/core/text/list.h"

namespace espalier::cli {

TextMember device_member(std::optional<DeviceName>& member, std::string_view absent) {
  return {.get = [&member, absent] { return member ? member->text() : std::string(absent); },
          .set =
              [&member, absent](std::string_view text) {
                member.reset();
                if (text != absent) member = parse_device(text);
                return true;
              },
          .expected = "cpu, cuda, cuda:N or auto"};
}

TextMember devices_member(std::vector<DeviceName>& member) {
  return {.get =
              [&member] {
                std::vector<std::string> names;
                for (const DeviceName& device : member) names.push_back(device.text());
                return names.empty() ? std::string("auto") : fmt::format("{}", fmt::join(names, ","));
              },
          .set =
              [&member](std::string_view text) {
                std::vector<DeviceName> devices;
                if (text != "auto")
                  for (const std::string& name : split_list(text)) devices.push_back(parse_device(name));
                member = std::move(devices);
                return true;
              },
          .expected = "auto, or devices such as cpu or cuda:0,cuda:1"};
}

}  // namespace espalier::cli
