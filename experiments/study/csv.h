#pragma once
// Fields of CSV files.

#include <string>
#include <string_view>

namespace plimsoll {

/// A text as a field: quoted where it asks for it; with an apostrophe before what a spreadsheet would take for a
/// formula.
inline std::string csv_field(std::string_view text) {
  const bool is_formula = !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  const std::string mark = is_formula ? "'" : "";
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return mark + std::string(text);
  std::string field = "\"" + mark;
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field += '"';
}

}  // namespace plimsoll
