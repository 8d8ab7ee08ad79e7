#pragma once
// The free attributes of an op, by name.

#include <optional>
#include <string_view>

#include "sim/core/graph.h"

namespace plimsoll {

/// Nothing where the op has none of that name.
inline std::optional<std::string_view> attribute_of(const Op& op, std::string_view key) {
  for (const auto& [name, value] : op.attributes) {
    if (name == key) return value;
  }
  return std::nullopt;
}

}  // namespace plimsoll
