// Lists as users write them: "cuda:0,cuda:1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// What is between the commas, empty parts included: "" has one.
std::vector<std::string> split_list(std::string_view list);

// The same for names that must differ. Refuses an empty one and one that comes twice, as
// usage, with a sentence that begins with the flag.
std::vector<std::string> split_names(std::string_view flag, std::string_view list);

}  // namespace espalier
