#include "sim/mesh/ring_blocks.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

void divide_by(std::optional<Flops>& flops, double blocks) {
  if (flops) flops = Flops{flops->count / blocks};
}

void divide_by(std::optional<Seconds>& duration, double blocks) {
  if (duration) duration = Seconds{duration->value / blocks};
}

class RingBlocks {
 public:
  RingBlocks(Graph graph, const Mesh& mesh) : graph_(std::move(graph)), mesh_(mesh) {}

  Graph run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    std::vector<OpId> place;
    for (Op& op : ops) {
      place.push_back(id_at<OpId>(graph_.ops.size()));
      if (attribute_of(op, ring_key)) {
        loop_ = loop_in(op);
        take_apart(op);
      } else {
        graph_.ops.push_back(std::move(op));
      }
    }
    for (std::vector<OpId>& group : graph_.colocate) {
      for (OpId& op : group) op = place[op.index];
    }
    return std::move(graph_);
  }

 private:
  using Tensors = std::vector<TensorId>;

  OpLoop loop_in(const Op& op) {
    graph_.ops.push_back(op);
    std::variant<OpLoop, std::string> found = loop_of(graph_, id_at<OpId>(graph_.ops.size() - 1));
    graph_.ops.pop_back();
    EXPECTS(std::holds_alternative<OpLoop>(found));  // it has been cut by its loop
    return std::get<OpLoop>(std::move(found));
  }

  TensorId like(TensorId t, std::string name, std::optional<StorageId> storage = {}) {
    Tensor made = graph_[t];
    made.name = std::move(name) + " of " + made.name;
    if (made.kind == TensorKind::parameter || made.kind == TensorKind::input) made.kind = TensorKind::activation;
    made.storage = storage ? *storage : id_at<StorageId>(graph_.storages++);
    graph_.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  Bytes bytes_of(const Tensors& tensors) const {
    Bytes sum;
    for (const TensorId t : tensors) sum += graph_[t].bytes;
    return sum;
  }

  void take_apart(const Op& op) {
    const std::string axis(*attribute_of(op, ring_key));
    const std::uint32_t ranks = mesh_.axes[*mesh_.axis(axis)].ranks;
    const std::uint8_t around = *loop_.dim(*attribute_of(op, around_key));
    const auto has_it = [&](const std::vector<std::uint8_t>& dims) {
      return std::ranges::find(dims, around) != dims.end();
    };
    Tensors held = op.inputs, sums(op.outputs.size(), TensorId{0}), come = sums;
    for (std::uint32_t block = 0; block < ranks; ++block) {
      Tensors inputs = held;
      if (block + 1 < ranks) {
        Tensors from, to;
        for (std::size_t k = 0; k < held.size(); ++k) {
          if (!has_it(loop_.inputs[k])) continue;
          from.push_back(held[k]);
          held[k] = like(op.inputs[k], "block " + std::to_string(block + 1));
          to.push_back(held[k]);
        }
        add_shift(op, axis, std::move(from), std::move(to));
      }
      Tensors made;
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        const bool is_sum = block == 0 && !has_it(loop_.outputs[k]);
        const std::optional<StorageId> storage = is_sum ? std::optional(graph_[op.outputs[k]].storage) : std::nullopt;
        made.push_back(like(op.outputs[k], "block " + std::to_string(block), storage));
      }
      add_block(op, block, ranks, std::move(inputs), made);
      for (std::size_t k = 0; k < op.outputs.size() && block == 0; ++k) sums[k] = made[k];
      if (block > 0) merge(op, block, block + 1 == ranks, made, come, sums);
      Tensors from, to;
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        if (!has_it(loop_.outputs[k])) continue;
        come[k] = block + 1 == ranks ? op.outputs[k] : like(op.outputs[k], "sum of blocks to " + std::to_string(block));
        from.push_back(sums[k]);
        to.push_back(come[k]);
      }
      if (!from.empty()) add_shift(op, axis, std::move(from), std::move(to));
    }
  }

  void add_shift(const Op& of, const std::string& axis, Tensors from, Tensors to) {
    Op op = collective_op("shift over " + axis + " of " + graph_[from.front()].name,
                          {CollectiveKind::shift, axis, true}, of.phase);
    op.stage = of.stage;
    op.recomputable = of.recomputable;
    op.inputs = std::move(from);
    op.outputs = std::move(to);
    graph_.ops.push_back(std::move(op));
  }

  void add_block(const Op& of, std::uint32_t block, double ranks, Tensors inputs, Tensors outputs) {
    Op op = of;
    op.name = block_name(of.name, block);
    for (auto& [key, value] : op.attributes) {
      if (key == "of") value = block_name(value, block);
    }
    op.attributes.emplace_back(block_key, std::to_string(block));
    op.attributes.emplace_back(block_of_key, of.name);
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.saved.clear();  // all of it is merged
    divide_by(op.duration, ranks);
    divide_by(op.nograd_duration, ranks);
    divide_by(op.flops, ranks);
    for (Alternative& other : op.alternatives) {
      divide_by(other.duration, ranks);
      divide_by(other.flops, ranks);
    }
    graph_.ops.push_back(std::move(op));
  }

  /// Adds the block's outputs: to the sums of those that stay, in place; to those that go round, what has come.
  void merge(const Op& of, std::uint32_t block, bool is_last, const Tensors& made, const Tensors& come, Tensors& sums) {
    Op op;
    op.name = of.name + " (merge " + std::to_string(block) + ")";
    op.kind = merge_kind;
    op.phase = of.phase;
    op.stage = of.stage;
    op.recomputable = of.recomputable;
    op.attributes.emplace_back(ring_key, std::string(*attribute_of(of, ring_key)));
    op.attributes.emplace_back(block_of_key, of.name);
    op.flops = Flops{0};
    if (of.duration) op.duration = Seconds{0};  // as known: by what it moves
    const auto around = *loop_.dim(*attribute_of(of, around_key));
    for (std::size_t k = 0; k < made.size(); ++k) {
      const bool goes_round = std::ranges::find(loop_.outputs[k], around) != loop_.outputs[k].end();
      const TensorId changed = goes_round ? made[k] : sums[k], added = goes_round ? come[k] : made[k];
      const bool ends = is_last && !goes_round;
      sums[k] =
          ends ? of.outputs[k] : like(of.outputs[k], "sum to block " + std::to_string(block), graph_[changed].storage);
      op.inputs.insert(op.inputs.end(), {changed, added});
      op.mutates.push_back(changed);
      op.outputs.push_back(sums[k]);
    }
    op.bytes_moved = bytes_of(op.inputs) + bytes_of(op.outputs);
    graph_.ops.push_back(std::move(op));
  }

  Graph graph_;
  const Mesh& mesh_;
  OpLoop loop_;
};

}  // namespace

std::string block_name(const std::string& op, std::uint32_t block) {
  return op + " (block " + std::to_string(block) + ")";
}

Graph with_ring_blocks(Graph graph, const Mesh& mesh) {
  return RingBlocks(std::move(graph), mesh).run();
}

}  // namespace plimsoll
