#include "sim/core/collective_op.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

constexpr std::string_view axis_key = "axis", overlap_key = "overlaps";

}  // namespace

std::optional<OpCollective> collective_of(const Op& op) {
  if (op.attributes.empty()) return std::nullopt;
  const std::optional<CollectiveKind> kind = from_name<CollectiveKind>(op.kind);
  if (!kind) return std::nullopt;
  const std::optional<std::string_view> axis = attribute_of(op, axis_key);
  if (!axis) return std::nullopt;
  return OpCollective{*kind, *axis, attribute_of(op, overlap_key) == "yes"};
}

bool runs_beside(const Op& op) {
  const std::optional<OpCollective> exchange = collective_of(op);
  return exchange && exchange->overlaps;
}

Bytes exchanged_bytes(const Graph& graph, const Op& op) {
  const std::optional<OpCollective> exchange = collective_of(op);
  EXPECTS(exchange);
  const bool by_result = exchange->kind == CollectiveKind::all_gather && !op.outputs.empty();
  const auto sum_of = [&](const std::vector<TensorId>& tensors) {
    Bytes sum;
    for (const TensorId t : tensors) {
      if (graph[t].kind != TensorKind::optimizer_state) sum += graph[t].bytes;  // else the buffer that it goes through
    }
    return sum;
  };
  // The rank that gets, or gives, more than others sets the pace of all.
  if (exchange->kind == CollectiveKind::all_to_all) return std::max(sum_of(op.inputs), sum_of(op.outputs));
  return sum_of(by_result ? op.outputs : op.inputs);
}

Op collective_op(std::string name, const OpCollective& made, Phase phase) {
  Op op;
  op.name = std::move(name);
  op.kind = written(made.kind);
  op.phase = phase;
  op.attributes.emplace_back(axis_key, made.axis);
  if (made.overlaps) op.attributes.emplace_back(overlap_key, "yes");
  return op;
}

}  // namespace plimsoll
