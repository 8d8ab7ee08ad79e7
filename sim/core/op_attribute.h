#pragma once
// The free attributes of an op, by name. Of those, `device` = `host` pins an op to a host's processor wherever the rest
// runs: its time is the host's. `products` = `fp8`: the op rounds the operands of its product to 8 bits a number.

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

inline bool is_pinned_to_host(const Op& op) {
  return std::ranges::any_of(op.attributes, [](const auto& a) { return a.first == "device" && a.second == "host"; });
}

/// A product of operands of 8 bits a number, whatever its inputs have.
inline bool multiplies_8_bits(const Op& op) {
  return attribute_of(op, "products") == std::optional<std::string_view>("fp8");
}

inline bool has_pinned_ops(const Graph& graph) {
  return std::ranges::any_of(graph.ops, is_pinned_to_host);
}

}  // namespace plimsoll
