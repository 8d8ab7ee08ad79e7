#include "sim/mesh/asynchronous_products.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/ring_blocks.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

/// The dimension along which one tensor is a share of the other.
std::optional<std::size_t> shared_dimension(const Tensor& share, const Tensor& whole, std::uint32_t ranks) {
  if (share.shape.size() != whole.shape.size()) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < share.shape.size(); ++d) {
    if (share.shape[d] == whole.shape[d]) continue;
    if (found || share.shape[d] * ranks != whole.shape[d]) return std::nullopt;
    found = d;
  }
  return found;
}

bool has_dimension(const std::vector<std::uint8_t>& operand, std::uint8_t dim) {
  return std::ranges::find(operand, dim) != operand.end();
}

class AsynchronousProducts {
 public:
  AsynchronousProducts(Graph graph, const Mesh& mesh, std::string_view axis)
      : graph_(std::move(graph)), axis_(axis), ranks_(mesh.axes[*mesh.axis(axis)].ranks) {}

  Graph run() {
    if (ranks_ == 1) return std::move(graph_);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const TensorId t : graph_.ops[o].inputs) readers_[t].push_back(o);
      for (const TensorId t : graph_.ops[o].outputs) makers_[t].push_back(o);
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) find_gather(o);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) find_scatter(o);
    std::vector<Op> ops = std::exchange(graph_.ops, {});
    std::vector<OpId> place;
    for (std::size_t o = 0; o < ops.size(); ++o) {
      place.push_back(id_at<OpId>(graph_.ops.size()));
      if (is_gone_.contains(o)) continue;
      if (const auto gathered = gathers_.find(o); gathered != gathers_.end()) {
        multiply_what_comes(ops[o], ops[gathered->second]);
      } else if (const auto scattered = scatters_.find(o); scattered != scatters_.end()) {
        multiply_and_hand_on(ops[o], ops[scattered->second]);
      } else {
        graph_.ops.push_back(with_blocks(std::move(ops[o])));
      }
    }
    for (std::vector<OpId>& group : graph_.colocate) {
      for (OpId& op : group) op = place[op.index];
    }
    return std::move(graph_);
  }

 private:
  using Tensors = std::vector<TensorId>;

  bool is_exchange(const Op& op, CollectiveKind kind) const {
    const std::optional<OpCollective> exchange = collective_of(op);
    return exchange && exchange->kind == kind && exchange->axis == axis_ && !exchange->overlaps &&
           op.inputs.size() == 1 && op.outputs.size() == 1;
  }

  /// Of an op that is a product and makes its results anew.
  std::optional<OpLoop> product_loop(std::size_t o) const {
    const Op& op = graph_.ops[o];
    if (!is_one_of(nearest_kind(op.kind), OpKind::linear, OpKind::linear_input_gradient, OpKind::mm, OpKind::matmul) ||
        !op.mutates.empty()) {
      return std::nullopt;
    }
    std::variant<OpLoop, std::string> found = loop_of(graph_, id_at<OpId>(o));
    if (OpLoop* loop = std::get_if<OpLoop>(&found)) return std::move(*loop);
    return std::nullopt;
  }

  void find_gather(std::size_t o) {
    const Op& op = graph_.ops[o];
    if (!is_exchange(op, CollectiveKind::all_gather)) return;
    const TensorId whole = op.outputs.front();
    const auto read = readers_.find(whole);
    const auto along = shared_dimension(graph_[op.inputs.front()], graph_[whole], ranks_);
    if (read == readers_.end() || !along) return;
    const std::size_t first = read->second.front();
    const Op& product = graph_.ops[first];
    const std::optional<OpLoop> loop = product_loop(first);
    if (!loop || gathers_.contains(first) || std::ranges::count(product.inputs, whole) != 1) return;
    const auto k = static_cast<std::size_t>(std::ranges::find(product.inputs, whole) - product.inputs.begin());
    const std::uint8_t dim = loop->inputs[k][*along];
    const auto lacks = [&](const std::vector<std::uint8_t>& output) { return !has_dimension(output, dim); };
    if (std::ranges::any_of(loop->outputs, lacks)) return;
    gathers_[first] = o;
    is_gone_.insert(o);
  }

  void find_scatter(std::size_t o) {
    const Op& op = graph_.ops[o];
    if (!is_exchange(op, CollectiveKind::reduce_scatter)) return;
    const TensorId sum = op.inputs.front();
    const auto made = makers_.find(sum);
    const auto along = shared_dimension(graph_[op.outputs.front()], graph_[sum], ranks_);
    if (made == makers_.end() || made->second.size() != 1 || readers_.at(sum).size() != 1 || !along) return;
    const std::size_t maker = made->second.front();
    const std::optional<OpLoop> loop = product_loop(maker);
    if (!loop || gathers_.contains(maker) || graph_.ops[maker].outputs.size() != 1) return;
    if (!has_dimension(loop->inputs.front(), loop->outputs.front()[*along])) return;
    scatters_[maker] = o;
    is_gone_.insert(o);
  }

  TensorId like(TensorId of, std::string name, std::optional<StorageId> storage = {}) {
    Tensor made = graph_[of];
    made.name = std::move(name) + " of " + made.name;
    made.storage = storage ? *storage : id_at<StorageId>(graph_.storages++);
    graph_.tensors.push_back(std::move(made));
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  Op with_blocks(Op op) const {
    Tensors inputs;
    for (const TensorId t : op.inputs) {
      const auto found = blocks_.find(t);
      if (found == blocks_.end()) {
        inputs.push_back(t);
      } else {
        inputs.insert(inputs.end(), found->second.begin(), found->second.end());
      }
    }
    if (inputs.size() != op.inputs.size())
      std::erase_if(op.attributes, [](const auto& a) { return a.first == "loop"; });
    op.inputs = std::move(inputs);
    return op;
  }

  void shift(const Op& of, TensorId from, TensorId to) {
    Op op = collective_op("shift over " + axis_ + " of " + graph_[from].name, {CollectiveKind::shift, axis_, true},
                          of.phase);
    op.stage = of.stage;
    op.recomputable = of.recomputable;
    op.inputs = {from};
    op.outputs = {to};
    graph_.ops.push_back(std::move(op));
  }

  /// One of the products, the last of which has the op's name.
  Op block_of(const Op& of, std::uint32_t block, const char* sliced) const {
    Op op = of;
    if (block + 1 < ranks_) op.name = block_name(of.name, block);
    std::erase_if(op.attributes, [](const auto& a) { return a.first == "loop" || a.first == "loop_reduces"; });
    op.attributes.emplace_back(sliced_operand_key, sliced);
    op.attributes.emplace_back(slice_count_key, std::to_string(ranks_));
    state_part(op, of, block);
    op.saved.clear();
    const auto divide = [&](auto& amount) {
      if (amount) *amount = (1.0 / ranks_) * *amount;
    };
    divide(op.duration);
    divide(op.nograd_duration);
    if (op.flops) op.flops = Flops{op.flops->count / ranks_};
    op.alternatives.clear();
    return op;
  }

  void state_part(Op& op, const Op& of, std::uint32_t block) const {
    op.attributes.emplace_back(sliced_part_key, std::to_string(block));
    op.attributes.emplace_back(sliced_axis_key, axis_);
    op.attributes.emplace_back(sliced_of_key, of.name);
  }

  Bytes bytes_of(const Tensors& tensors) const {
    Bytes sum;
    for (const TensorId t : tensors) sum += graph_[t].bytes;
    return sum;
  }
  Bytes part(Bytes whole) const { return Bytes{(whole.count + ranks_ - 1) / ranks_}; }

  void multiply_what_comes(const Op& of, const Op& gather) {
    const TensorId whole = gather.outputs.front();
    TensorId held = gather.inputs.front();
    Tensors& blocks = blocks_[whole];
    Tensors made;
    for (std::uint32_t b = 0; b < ranks_; ++b) {
      const TensorId now = held;
      blocks.push_back(now);
      if (b + 1 < ranks_) {
        held = like(gather.inputs.front(), "block " + std::to_string(b + 1));
        shift(of, now, held);
      }
      Op op = block_of(of, b, "output");
      std::ranges::replace(op.inputs, whole, now);
      op = with_blocks(std::move(op));
      if (op.bytes_moved) op.bytes_moved = bytes_of(op.inputs) + part(bytes_of(of.outputs));
      op.mutates = made;
      op.inputs.insert(op.inputs.end(), made.begin(), made.end());
      made.clear();
      for (const TensorId out : of.outputs) {
        made.push_back(b + 1 == ranks_ ? out : like(out, "blocks to " + std::to_string(b), graph_[out].storage));
      }
      op.outputs = made;
      graph_.ops.push_back(std::move(op));
    }
  }

  void multiply_and_hand_on(const Op& of, const Op& scatter) {
    const TensorId share = scatter.outputs.front();
    std::optional<TensorId> come;
    for (std::uint32_t b = 0; b < ranks_; ++b) {
      const bool is_last = b + 1 == ranks_;
      const auto storage = is_last ? std::optional(graph_[share].storage) : std::nullopt;
      TensorId sum = like(share, "block " + std::to_string(b), storage);
      Op op = with_blocks(block_of(of, b, "input"));
      op.outputs = {sum};
      if (op.bytes_moved) {
        const Bytes sliced = graph_[op.inputs.front()].bytes;
        op.bytes_moved = bytes_of(op.inputs) - sliced + part(sliced) + graph_[sum].bytes;
      }
      graph_.ops.push_back(std::move(op));
      if (come) {
        const TensorId added = is_last ? share : like(share, "sum to block " + std::to_string(b), graph_[sum].storage);
        add(of, b, sum, *come, added);
        sum = added;
      }
      if (is_last) return;
      come = like(share, "sum of blocks to " + std::to_string(b));
      shift(of, sum, *come);
    }
  }

  void add(const Op& of, std::uint32_t block, TensorId changed, TensorId added, TensorId sum) {
    Op op;
    op.name = of.name + " (sum " + std::to_string(block) + ")";
    op.kind = name_of(OpKind::add);
    op.phase = of.phase;
    op.stage = of.stage;
    op.recomputable = of.recomputable;
    state_part(op, of, block);
    op.flops = Flops{0};
    if (of.duration) op.duration = Seconds{0};  // as known: by what it moves
    op.inputs = {changed, added};
    op.mutates = {changed};
    op.outputs = {sum};
    op.bytes_moved = bytes_of(op.inputs) + bytes_of(op.outputs);
    graph_.ops.push_back(std::move(op));
  }

  Graph graph_;
  std::string axis_;
  std::uint32_t ranks_;
  std::map<TensorId, std::vector<std::size_t>> readers_, makers_;
  std::map<std::size_t, std::size_t> gathers_, scatters_;  // by product: the exchange that goes into it
  std::set<std::size_t> is_gone_;                          // exchanges
  std::map<TensorId, Tensors> blocks_;                     // of what was gathered
};

}  // namespace

Graph with_asynchronous_products(Graph graph, const Mesh& mesh, std::string_view axis) {
  return AsynchronousProducts(std::move(graph), mesh, axis).run();
}

}  // namespace plimsoll
