#include "validate/ranks/value_exchange.h"

#include <algorithm>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/gradient_reduction.h"

namespace plimsoll {
namespace {

std::vector<RankPiece> all_of(Bytes bytes) {
  return {{0, 0, bytes.count}};
}

/// Among replicas, which have alike what their layouts leave: all of it, or a range.
ValueExchange of_replicas(const Graph& graph, CollectiveKind kind, TensorId from, TensorId to,
                          const std::vector<std::size_t>& axes, const Mesh& mesh) {
  const bool gathers = kind == CollectiveKind::all_gather;
  ValueExchange made{!gathers, graph[gathers ? to : from].bytes, {}, {}};
  // In place a range has its place in the whole; else it is the whole of a smaller tensor.
  const bool is_in_place = from == to;
  const Bytes part = graph[gathers ? from : to].bytes;
  std::uint32_t ranks = 1;
  for (const std::size_t a : axes) ranks *= mesh.axes[a].ranks;
  const Bytes each{is_in_place ? shared_bytes(graph[from], ranks) : part};
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<RankPiece> range = range_of(made.whole, {axes, each}, mesh, rank);
    for (RankPiece& piece : range) piece.own = is_in_place ? piece.whole : 0;
    if (kind == CollectiveKind::all_reduce) range = all_of(made.whole);
    made.from.push_back(gathers ? range : all_of(made.whole));
    made.to.push_back(gathers ? all_of(made.whole) : range);
  }
  return made;
}

}  // namespace

std::vector<ValueExchange> value_exchanges(const Graph& graph, const Op& op, const std::vector<RankLayout>& layouts,
                                           const Mesh& mesh) {
  const std::optional<OpCollective> what = collective_of(op);
  const std::vector<std::size_t> axes =
      mesh.axes_named(what ? what->axis : attribute_of(op, "axis").value_or(std::string_view()));
  EXPECTS(!axes.empty());
  std::vector<ValueExchange> made;
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    const TensorId from = op.inputs[k], to = op.outputs.empty() ? from : op.outputs[k];
    if (mesh.axes[axes.front()].shares_micro_batches) {  // a share is what a scatter among one alone leaves it
      made.push_back(of_replicas(graph, what ? what->kind : CollectiveKind::reduce_scatter, from, to, axes, mesh));
      continue;
    }
    ValueExchange& value = made.emplace_back();
    value.sums = what && (what->kind == CollectiveKind::all_reduce || what->kind == CollectiveKind::reduce_scatter);
    value.whole = layouts[from.index].whole_bytes();
    for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
      value.from.push_back(pieces_of(layouts[from.index], mesh, rank));
      value.to.push_back(pieces_of(layouts[to.index], mesh, rank));
    }
  }
  return made;
}

bool is_shift(const Op& op) {
  return collective_of(op) && collective_of(op)->kind == CollectiveKind::shift;
}

bool exchanges(const Op& op) {
  return collective_of(op) || op_kind(op) == OpKind::share;
}

std::vector<std::uint32_t> exchanging_group(const Op& op, const Mesh& mesh, std::uint32_t rank) {
  if (!collective_of(op)) return {rank};
  return group_of(mesh, mesh.axes_named(collective_of(op)->axis), rank);
}

}  // namespace plimsoll
