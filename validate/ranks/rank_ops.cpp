#include "validate/ranks/rank_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/core/names.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/ring_blocks.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {
namespace {

/// Whether along some axis on which the tensor is a partial sum another rank comes before this one.
bool adds_to_a_sum(const RankLayout& of, const Mesh& mesh, std::uint32_t rank) {
  for (std::size_t a = 0; a < of.layout.size(); ++a) {
    if (of.layout[a].kind == AxisLayout::Kind::partial && place_along(mesh, a, rank) > 0) return true;
  }
  return false;
}

}  // namespace

RankOps::RankOps(const Network& whole, const Problem& problem, std::vector<RankLayout> layouts)
    : mesh_(*problem.mesh),
      layouts_(std::move(layouts)),
      network_{problem.graph, whole.stage_names, whole.boundaries, nullptr} {
  const Graph& graph = network_.graph;
  for (Op& op : network_.graph.ops) {
    for (auto& [name, value] : op.attributes) {
      if (name != "heads") continue;
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) {
          const std::vector<std::int64_t>& shape = graph[t].shape;
          if (shape.size() == 4) value = std::to_string(shape[1]);  // scores or weights: (batch, heads, sequence, ...)
        }
      }
    }
  }
}

bool RankOps::leaves_bias_out(const Op& op, const RankLayout& made, std::uint32_t rank) const {
  return network_kind(op.kind) == OpKind::linear && op.inputs.size() > 2 && adds_to_a_sum(made, mesh_, rank);
}

float RankOps::share_of_mean(const RankLayout& made) const {
  const Bytes local = made.local_bytes(mesh_), whole = made.whole_bytes();
  return static_cast<float>(static_cast<double>(local.count) / static_cast<double>(whole.count));
}

std::vector<std::int32_t> RankOps::rows_of(RankLayout rows, std::uint32_t rank) const {
  rows.shape.pop_back();
  rows.each_number = Bytes{sizeof(std::int32_t)};
  std::vector<std::int32_t> made;
  for (const RankPiece& piece : pieces_of(rows, mesh_, rank)) {
    for (std::int64_t at = 0; at < piece.bytes; at += rows.each_number.count) {
      made.push_back(static_cast<std::int32_t>((piece.whole + at) / rows.each_number.count));
    }
  }
  return made;
}

std::vector<std::int32_t> RankOps::positions(TensorId t, std::uint32_t rank) const {
  const std::vector<std::int64_t> indices = indices_of(layouts_[t.index], mesh_, rank, 1);
  return {indices.begin(), indices.end()};
}

std::uint32_t RankOps::maker_of_block(const Op& op, std::uint32_t rank) const {
  const auto ring = attribute_of(op, ring_key);
  if (!ring) return rank;
  const std::size_t axis = *mesh_.axis(*ring);
  const std::uint32_t ranks = mesh_.axes[axis].ranks, place = place_along(mesh_, axis, rank);
  const auto block = static_cast<std::uint32_t>(whole_attribute(op, block_key));
  return rank + (place + ranks - block) % ranks * mesh_.stride(axis) - place * mesh_.stride(axis);
}

std::optional<RankUpdate> RankOps::update_of(const Op& op, std::uint32_t rank) const {
  const std::string_view optimizer = attribute_of(op, "optimizer").value_or(std::string_view());
  if (!from_name<Optimizer>(optimizer)) {
    throw CannotRun{
        fmt::format("'{}' is an update by '{}', which the replay does not make on ranks", op.name, optimizer)};
  }
  const RankLayout& parameter = layouts_[op.inputs.front().index];
  RankPiece part{0, 0, parameter.local_bytes(mesh_).count};
  for (const TensorId t : op.inputs) {
    if (!layouts_[t.index].range) continue;
    const std::vector<RankPiece> range = range_of(Bytes{part.bytes}, *layouts_[t.index].range, mesh_, rank);
    if (range.empty()) return std::nullopt;
    part = range.front();
    break;
  }
  RankUpdate made{{}, op, {}};
  for (TensorId& t : made.op.inputs) {
    made.skipped.push_back(layouts_[t.index].range ? 0 : part.own);
    Tensor tensor = network_.graph[t];
    tensor.bytes = Bytes{part.bytes};
    t = id_at<TensorId>(made.numbers.tensors.size());
    made.numbers.tensors.push_back(std::move(tensor));
  }
  return made;
}

void RankOps::judge_statistics(const Op& op) const {
  if (!attribute_of(op, statistics_attribute)) return;
  for (const TensorId t : op.outputs) {
    const Layout& layout = layouts_[t.index].layout;
    if (std::ranges::any_of(layout, [](const auto& a) { return a.kind != AxisLayout::Kind::whole; }))
      throw CannotRun{
          fmt::format("'{}' is cut, and its running statistics are not, which the replay does not support", op.name)};
  }
}

std::vector<std::int32_t> labels_of(const std::vector<std::int32_t>& rows, const std::int32_t* of_all,
                                    std::int32_t classes) {
  std::vector<std::int32_t> labels;
  for (const std::int32_t row : rows) labels.push_back(of_all == nullptr ? row % classes : of_all[row]);
  return labels;
}

std::variant<RankOps, ReplayFailure> rank_ops(const Network& whole, const Problem& problem) {
  if (const Tensor* narrow = first_in_bf16(whole.graph)) {
    return ReplayFailure{fmt::format("'{}' is bf16: ranks exchange and sum fp32 only", narrow->name)};
  }
  if (problem.chain) {
    return ReplayFailure{
        fmt::format("'{}' is planned by stages, within which ranks exchange: the replay runs ranks of a "
                    "graph of ops only",
                    problem.graph.name)};
  }
  for (const Op& op : whole.graph.ops) {
    if (!attribute_of(op, transposed_attribute)) continue;
    return ReplayFailure{fmt::format(
        "'{}' has the weight of another layer (tied=yes), which ranks of the replay do not share out", op.name)};
  }
  std::variant<std::vector<RankLayout>, std::string> layouts = rank_layouts(whole.graph, problem.graph, *problem.mesh);
  if (std::string* why = std::get_if<std::string>(&layouts)) return ReplayFailure{std::move(*why)};
  return RankOps(whole, problem, std::get<std::vector<RankLayout>>(std::move(layouts)));
}

}  // namespace plimsoll
