#pragma once
// Fields of CSV files.

#include <string>
#include <string_view>

namespace plimsoll {

/// Quoted where the text asks for it.
inline std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field += '"';
}

}  // namespace plimsoll
