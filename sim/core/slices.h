#pragma once
// Micro-batches that are slices of sequences: attention on one slice reads keys and values of those before it, and its
// backward adds to their gradients.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {

inline constexpr std::string_view slices_key = "slices", attended_key = "attends_to";

/// Into how many slices sequences are cut: micro-batch i is slice i modulo that of its sequence. 1 where they are not.
inline std::uint32_t sequence_slices(const Graph& graph) {
  if (graph.ops.empty()) return 1;
  const std::optional<std::string_view> text = attribute_of(graph.ops.front(), slices_key);
  if (!text) return 1;
  std::uint32_t slices = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), slices);
  EXPECTS(error == std::errc{} && end == text->data() + text->size() && slices > 0);
  return slices;
}

/// What the op also reads of the slices before its own: an input or an output of it, which lies with its slice until
/// its backward is over, with room for the gradients that the backwards of later slices add. So the backward of a slice
/// comes after those of all later ones. Nothing for an op whose slices do not depend on each other.
inline std::optional<TensorId> attended_by(const Graph& graph, const Op& op) {
  const std::optional<std::string_view> name = attribute_of(op, attended_key);
  if (!name) return std::nullopt;
  for (const std::vector<TensorId>* list : {&op.inputs, &op.outputs}) {
    const auto found = std::ranges::find(*list, *name, [&](TensorId t) { return std::string_view(graph[t].name); });
    if (found != list->end()) return *found;
  }
  EXPECTS(false && "an op attends to one of its own tensors");
  return std::nullopt;
}

/// Says so of the ops of a sliced graph.
inline void set_slices(Graph& graph, std::uint32_t slices) {
  for (Op& op : graph.ops) {
    if (op.phase != Phase::update) op.attributes.emplace_back(slices_key, std::to_string(slices));
  }
}

inline void set_attended(Op& op, const Tensor& tensor) {
  op.attributes.emplace_back(attended_key, tensor.name);
}

}  // namespace plimsoll
