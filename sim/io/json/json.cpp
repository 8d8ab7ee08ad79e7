#include "sim/io/json/json.h"

#include "sim/io/printable.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

Json with_utf8(const Json& json) {
  if (json.is_string()) return as_utf8(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json made = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    if (json.is_array()) {
      made.push_back(with_utf8(value));
    } else {
      made[as_utf8(key)] = with_utf8(value);
    }
  }
  return made;
}

}  // namespace

std::string json_text(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const Json::type_error&) {  // some string is not UTF-8: seldom, so that it may cost a copy
    return with_utf8(json).dump(indent);
  }
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_text_file(path, json_text(json, 2) + "\n");
}

}  // namespace plimsoll
