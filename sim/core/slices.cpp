#include "sim/core/slices.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

constexpr std::string_view slices_attribute = "slices", attended_attribute = "attends_to";

}  // namespace

std::uint32_t sequence_slices(const Graph& graph) {
  if (graph.ops.empty()) return 1;
  const std::optional<std::string_view> text = attribute_of(graph.ops.front(), slices_attribute);
  if (!text) return 1;
  std::uint32_t slices = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), slices);
  EXPECTS(error == std::errc{} && end == text->data() + text->size() && slices > 0);
  return slices;
}

std::optional<TensorId> attended_by(const Graph& graph, const Op& op) {
  const std::optional<std::string_view> name = attribute_of(op, attended_attribute);
  if (!name) return std::nullopt;
  for (const std::vector<TensorId>* list : {&op.inputs, &op.outputs}) {
    const auto found = std::ranges::find(*list, *name, [&](TensorId t) { return std::string_view(graph[t].name); });
    if (found != list->end()) return *found;
  }
  EXPECTS(false && "an op attends to one of its own tensors");
  return std::nullopt;
}

void set_slices(Graph& graph, std::uint32_t slices) {
  for (Op& op : graph.ops) {
    if (op.phase != Phase::update) op.attributes.emplace_back(slices_attribute, std::to_string(slices));
  }
}

void set_attended(Op& op, const Tensor& tensor) {
  op.attributes.emplace_back(attended_attribute, tensor.name);
}

}  // namespace plimsoll
