#pragma once
// The free attributes of an op, by name.

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// Nothing where the op has none of that name.
inline std::optional<std::string_view> attribute_of(const Op& op, std::string_view key) {
  for (const auto& [name, value] : op.attributes) {
    if (name == key) return value;
  }
  return std::nullopt;
}

/// The words of an attribute, which single or several blanks separate.
inline std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace plimsoll
