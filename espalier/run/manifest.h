// What the manifest of a run's checkpoint says of itself: the program's format and schema, and how the job's
// convolutions were chosen. The rest of it is Run's (directory.h) and the archive's.
//
// Kept true: a manifest of another format or schema is refused before anything else in it is read.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier::run {

// How every manifest begins: {"format":, "version":, "job":, "saved": the time now}.
nlohmann::ordered_json manifest_head(const std::string& job);

// where: the checkpoint's name in errors.
void check_manifest_head(const nlohmann::ordered_json& manifest, const std::string& where);

// What a checkpoint's job had chosen by timing.
std::map<std::string, std::string> choices_in(const nlohmann::ordered_json& manifest,
                                              const std::string& where);

}  // namespace espalier::run
