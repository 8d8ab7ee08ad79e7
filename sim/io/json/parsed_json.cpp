#include "sim/io/json/parsed_json.h"

#include "sim/io/json/json_scanner.h"

namespace plimsoll {
namespace {

/// Of a text that is JSON; of another one it may be either.
bool is_nested_too_deep(std::string_view text) {
  int depth = 0;
  bool is_in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) {
      if (c == '\\') ++at;
    } else if (c == '[' || c == '{') {
      if (++depth > JsonScanner::deepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Json parsed_json(std::string_view text) {
  if (is_nested_too_deep(text)) return Json::value_t::discarded;
  return Json::parse(text, nullptr, false);
}

}  // namespace plimsoll
