#pragma once
// Values of options that are one of some names, or whole numbers.

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"
#include "sim/io/quantity.h"

namespace plimsoll {

template <class Enum>
Enum understood(std::string_view option, const std::string& word) {
  if (const std::optional<Enum> value = from_name<Enum>(word)) return *value;
  const std::vector<std::string_view> names = names_of<Enum>();
  throw InputError(
      fmt::format("{}: expected {}, found '{}'{}", option, alternatives(names), word, suggestion(word, names)));
}

/// A whole number from `least` to `most`.
inline std::int64_t understood_whole(std::string_view option, std::string_view word, std::int64_t least,
                                     std::int64_t most) {
  const Parsed<std::int64_t> number = parse_integer(word);
  if (number.fine() && number.value >= least && number.value <= most) return number.value;
  throw InputError(fmt::format("{}: expected a whole number from {} to {}, found '{}'", option, least, most, word));
}

}  // namespace plimsoll
