#include "sim/ops/operators.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

constexpr std::string_view of_key = "of";

/// Finds whose backward an op is by what it has in common with a forward of a kind that may have it: values that both
/// touch, or a parameter that the one reads and the other makes the gradient of.
class ForwardsByValues {
 public:
  explicit ForwardsByValues(const Graph& graph) : graph_(graph), touched_by_(graph.tensors.size()) {
    for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase != Phase::forward) continue;
      for (const auto* list : {&graph.ops[o].inputs, &graph.ops[o].outputs}) {
        for (const TensorId t : *list) touched_by_[t.index].push_back(OpId{o});
      }
    }
  }

  /// The one with the most in common, of equal ones the last; nothing where none has anything.
  std::optional<OpId> forward_of(const Op& op) const {
    const std::optional<OpKind> kind = op_kind(op);
    if (!kind) return std::nullopt;
    const Forwards& kinds = row_of(*kind).of;
    std::map<OpId, std::uint32_t> common;
    const auto count = [&](TensorId t) {
      for (const OpId forward : touched_by_[t.index]) {
        if (std::ranges::find(kinds, op_kind(graph_[forward])) != kinds.end()) ++common[forward];
      }
    };
    for (const TensorId t : op.inputs) count(t);
    for (const TensorId t : op.outputs) {
      if (graph_[t].gradient_of) count(*graph_[t].gradient_of);
    }
    std::optional<OpId> best;
    for (const auto& [forward, values] : common) {
      if (!best || values >= common.at(*best)) best = forward;
    }
    return best;
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<OpId>> touched_by_;  // by tensor: forwards
};

}  // namespace

std::vector<Operator> operators_of(const Graph& graph) {
  std::vector<Operator> operators;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::vector<std::size_t> number(graph.ops.size());  // of a forward's operator
  std::optional<ForwardsByValues> by_values;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::forward) {
      by_name.try_emplace(op.name, operators.size());
      number[o] = operators.size();
      operators.push_back({id_at<OpId>(o), {}});
      continue;
    }
    if (op.phase == Phase::update) continue;
    if (const std::optional<std::string_view> of = attribute_of(op, of_key)) {
      const auto found = by_name.find(*of);
      if (found != by_name.end()) operators[found->second].backward.push_back(id_at<OpId>(o));
      continue;
    }
    if (!by_values) by_values.emplace(graph);
    const std::optional<OpId> forward = by_values->forward_of(op);
    if (forward) operators[number[forward->index]].backward.push_back(id_at<OpId>(o));
  }
  return operators;
}

}  // namespace plimsoll
