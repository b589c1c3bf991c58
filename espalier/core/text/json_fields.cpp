#include "espalier/core/text/json_fields.h"

#include "espalier/core/error.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// The field, or nullptr. `object` may be anything.
const Json* find(const Json& object, const char* key, std::string_view where) {
  if (!object.is_object())
    fail("{}: want an object with '{}', got a JSON {}", where, key, object.type_name());
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

[[noreturn]] void refuse(const Json& value, const char* key, const char* want, std::string_view where) {
  fail("{}: '{}': want {}, got a JSON {}; it is damaged, or of another program", where, key, want,
       value.type_name());
}

}  // namespace

std::string text_field(const Json& object, const char* key, const char* otherwise, std::string_view where) {
  const Json* value = find(object, key, where);
  if (!value) return otherwise;
  if (!value->is_string()) refuse(*value, key, "text", where);
  return value->get<std::string>();
}

int64_t integer_field(const Json& object, const char* key, int64_t otherwise, std::string_view where) {
  const Json* value = find(object, key, where);
  if (!value) return otherwise;
  const auto number = whole_number<int64_t>(*value);
  if (!number) refuse(*value, key, "a whole number", where);
  return *number;
}

double number_field(const Json& object, const char* key, double otherwise, std::string_view where) {
  const Json* value = find(object, key, where);
  if (!value) return otherwise;
  if (!value->is_number()) refuse(*value, key, "a number", where);
  return value->get<double>();
}

Json object_field(const Json& object, const char* key, std::string_view where) {
  const Json* value = find(object, key, where);
  if (!value) return Json::object();
  if (!value->is_object()) refuse(*value, key, "an object", where);
  return *value;
}

}  // namespace espalier
