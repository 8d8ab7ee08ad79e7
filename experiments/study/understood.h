#pragma once
// Values of options that are one of some names.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"

namespace plimsoll {

template <class Enum>
Enum understood(std::string_view option, const std::string& word) {
  if (const std::optional<Enum> value = from_name<Enum>(word)) return *value;
  const std::vector<std::string_view> names = names_of<Enum>();
  throw InputError(
      fmt::format("{}: expected {}, found '{}'{}", option, alternatives(names), word, suggestion(word, names)));
}

}  // namespace plimsoll
