#include "validate/cpu/ranks/block_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "validate/networks/packing.h"

namespace plimsoll {
namespace {

/// Rows of a whole of which each of several ranks has a share.
struct ShareRows {
  std::int64_t rows = 1, bytes = 0, ranks = 1;  // bytes: of a row of the share

  ShareRows(const Tensor& whole, std::size_t dim, std::uint32_t count) : ranks(count) {
    for (std::size_t d = 0; d < dim; ++d) rows *= whole.shape[d];
    bytes = whole.bytes.count / rows / ranks;
  }

  /// A share to its place in the whole, or from there.
  void move(void* whole, void* share, std::uint32_t place, bool is_into_whole) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::byte* in = static_cast<std::byte*>(whole) + (r * ranks + place) * bytes;
      std::byte* own = static_cast<std::byte*>(share) + r * bytes;
      std::memcpy(is_into_whole ? in : own, is_into_whole ? own : in, static_cast<std::size_t>(bytes));
    }
  }
};

/// The one dimension but the last in which a product's first input and its output differ.
std::optional<std::size_t> sliced_dimension(const Tensor& x, const Tensor& y) {
  for (std::size_t d = 0; d + 1 < std::min(x.shape.size(), y.shape.size()); ++d) {
    if (x.shape[d] != y.shape[d]) return d;
  }
  return std::nullopt;
}

TensorId add_like(Graph& graph, TensorId like, std::size_t dim, std::int64_t extent) {
  Tensor made = graph[like];
  made.bytes = extent * Bytes{made.bytes.count / made.shape[dim]};
  made.shape[dim] = extent;
  made.storage = id_at<StorageId>(graph.storages++);
  graph.tensors.push_back(std::move(made));
  return id_at<TensorId>(graph.tensors.size() - 1);
}

/// Moves of one operand, with what the kernel has lying in its scratch.
struct OperandMoves {
  OperandInBlocks of;
  ShareRows rows;
  std::vector<std::uint32_t> places;  // of each block in the whole
  std::int64_t at = 0;                // in the scratch
  bool is_part = false;               // what the kernel has is one share

  void run(const KernelArguments& given, std::byte* made, bool is_before) const {
    if (is_before == of.is_output) return;
    void* const* own = (of.is_output ? given.outputs : given.inputs).data() + of.first;
    for (std::size_t b = 0; b < places.size(); ++b) {
      void *whole = is_part ? own[b] : made, *share = is_part ? made : own[b];
      rows.move(whole, share, places[b], is_part == of.is_output);
    }
  }
};

std::uint32_t place_of(const OperandInBlocks& operand, const OpOnBlocks& op, const Mesh& mesh, std::uint32_t rank,
                       std::uint32_t block) {
  const std::uint32_t own = place_along(mesh, operand.axis, rank), ranks = mesh.axes[operand.axis].ranks;
  return operand.count == 1 ? op.part->whose(mesh, own) : (own + ranks - block) % ranks;
}

}  // namespace

std::variant<OpOnBlocks, std::string> op_on_blocks(Graph& graph, const Op& op, const OpBlocks& blocks,
                                                   const std::vector<RankLayout>& layouts, const Mesh& mesh) {
  OpOnBlocks made{op, {}, blocks.part};
  made.whole.inputs.clear();
  made.whole.mutates.clear();
  std::size_t first = 0;
  for (const InputBlocks& input : blocks.inputs) {
    const TensorId own = input.blocks.front();
    made.whole.inputs.push_back(own);
    if (const std::size_t count = input.blocks.size(); count > 1) {
      const AxisLayout& share = layouts[own.index].layout[input.axis];
      if (share.kind != AxisLayout::Kind::cut) {
        return fmt::format("'{}' reads blocks of '{}', which is not cut along '{}'", op.name, graph[own].name,
                           mesh.axes[input.axis].name);
      }
      made.operands.push_back({share.dim, input.axis, first, count, made.whole.inputs.size() - 1, false});
      made.whole.inputs.back() =
          add_like(graph, own, share.dim, static_cast<std::int64_t>(count) * graph[own].shape[share.dim]);
    }
    first += input.blocks.size();
  }
  if (!blocks.part) return made;
  const std::uint32_t ranks = mesh.axes[blocks.part->axis].ranks;
  const auto dim = sliced_dimension(graph[op.inputs.front()], graph[op.outputs.front()]);
  TensorId& whole = blocks.part->is_of_input ? made.whole.inputs.front() : made.whole.outputs.front();
  if (!dim || graph[whole].shape[*dim] % ranks != 0)
    return fmt::format("'{}' cannot be computed in equal parts", op.name);
  made.operands.push_back({*dim, blocks.part->axis, 0, 1, 0, !blocks.part->is_of_input});
  whole = add_like(graph, whole, *dim, graph[whole].shape[*dim] / ranks);
  return made;
}

Bytes scratch_on_blocks(Bytes of_kernel, const Graph& graph, const OpOnBlocks& op) {
  Bytes sum = aligned(of_kernel);
  for (const OperandInBlocks& each : op.operands) {
    sum += aligned(graph[(each.is_output ? op.whole.outputs : op.whole.inputs)[each.operand]].bytes);
  }
  return sum;
}

Kernel on_blocks(const Kernel& kernel, const Graph& graph, const OpOnBlocks& op, const Mesh& mesh, std::uint32_t rank) {
  Kernel made = kernel;
  made.scratch = aligned(kernel.scratch);
  std::vector<OperandMoves> moves;
  for (const OperandInBlocks& each : op.operands) {
    const Tensor& has = graph[(each.is_output ? op.whole.outputs : op.whole.inputs)[each.operand]];
    const bool is_part = each.count == 1;
    Tensor whole = has;
    if (is_part) whole.bytes = std::int64_t{mesh.axes[each.axis].ranks} * has.bytes;
    OperandMoves& move = moves.emplace_back(
        OperandMoves{each, ShareRows(whole, each.dim, mesh.axes[each.axis].ranks), {}, made.scratch.count, is_part});
    for (std::uint32_t b = 0; b < each.count; ++b) move.places.push_back(place_of(each, op, mesh, rank, b));
    made.scratch += aligned(has.bytes);
  }
  made.run = [run = kernel.run, moves, op](const KernelArguments& given) {
    KernelArguments arguments = given;
    arguments.inputs.clear();
    for (std::size_t k = 0, own = 0; k < op.whole.inputs.size(); ++k) {
      const auto in_blocks = std::ranges::find_if(
          op.operands, [&](const OperandInBlocks& each) { return !each.is_output && each.operand == k; });
      arguments.inputs.push_back(given.inputs[own]);
      own += in_blocks == op.operands.end() ? 1 : in_blocks->count;
    }
    for (const OperandMoves& move : moves) {
      std::byte* has = static_cast<std::byte*>(given.scratch) + move.at;
      (move.of.is_output ? arguments.outputs : arguments.inputs)[move.of.operand] = has;
      move.run(given, has, true);
    }
    run(arguments);
    for (const OperandMoves& move : moves) move.run(given, static_cast<std::byte*>(given.scratch) + move.at, false);
  };
  return made;
}

}  // namespace plimsoll
