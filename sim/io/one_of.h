#pragma once
// A word of a document that names one of an enumeration: its value, or a complaint with the nearest name.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/names.h"
#include "sim/io/input_error.h"

namespace plimsoll {

/// All names of an enumeration, for messages.
template <class Enum>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  names.reserve(Names<Enum>::all.size());
  for (const auto& [value, name] : Names<Enum>::all) names.emplace_back(name);
  return names;
}

template <class Enum, class Cursor>
Enum one_of(const Cursor& cursor) {
  const std::string word = cursor.string();
  if (const std::optional<Enum> value = from_name<Enum>(word)) return *value;
  const std::vector<std::string_view> names = names_of<Enum>();
  const std::span<const std::string_view> known(names);
  if (cursor.is_word()) {
    std::string what = "expected ";
    cursor.complain(
        what.append(alternatives(known)).append(", ").append(cursor.found()).append(suggestion(word, known)));
  }
  return Enum{};
}

}  // namespace plimsoll
