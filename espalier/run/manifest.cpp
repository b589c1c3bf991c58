#include "espalier/run/manifest.h"

#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/utf8.h"
#include "espalier/run/fingerprint.h"
#include "espalier/run/location.h"

namespace espalier::run {
namespace {

constexpr const char* kFormat = "espalier checkpoint";
constexpr int kVersion = 5;  // for manifest and state

}  // namespace

nlohmann::ordered_json manifest_head(const std::string& job) {
  return {{"format", kFormat}, {"version", kVersion}, {"job", job}, {"saved", utc_now("%Y-%m-%dT%H:%M:%SZ")}};
}

void check_manifest_head(const nlohmann::ordered_json& manifest, const std::string& where) {
  if (text_field(manifest, "format", "", where) != kFormat) fail("{}: is none of espalier's", where);
  if (const int64_t version = integer_field(manifest, "version", 0, where); version != kVersion)
    fail(
        "{}: has schema version {}, and this program reads {}: go on with the program that wrote it, or "
        "begin anew with --restart fresh",
        where, version, kVersion);
}

std::map<std::string, std::string> choices_in(const nlohmann::ordered_json& manifest,
                                              const std::string& where) {
  std::map<std::string, std::string> made;
  const nlohmann::ordered_json chosen = object_field(manifest, "convolutions", where);
  for (const auto& item : chosen.items()) {
    if (!item.value().is_string())
      fail("{}: convolutions: {}: want text, got {}", where, in_quotes(item.key()), shown(item.value()));
    made[item.key()] = item.value().get<std::string>();
  }
  return made;
}

}  // namespace espalier::run
