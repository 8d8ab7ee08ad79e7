#include "sim/ops/padding.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <variant>
#include <vector>

#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

class LargerDim {
 public:
  LargerDim(Graph graph, std::string_view name, std::int64_t from, std::int64_t to)
      : graph_(std::move(graph)), name_(name), from_(from), to_(to) {}

  Graph run() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) note(id_at<OpId>(o));
    note_relatives();
    for (const auto& [t, dims] : dims_) enlarge(graph_.tensors[t.index], dims);
    for (Op& op : graph_.ops) {
      if (op.phase == Phase::update) enlarge_update(op);
    }
    for (const OpId op : ops_) more_work(graph_.ops[op.index]);
    return std::move(graph_);
  }

 private:
  void note(OpId id) {
    const Op& op = graph_[id];
    if (op.phase == Phase::update) return;
    const std::variant<OpLoop, std::string> read = loop_of(graph_, id);
    const OpLoop* loop = std::get_if<OpLoop>(&read);
    const auto dim = loop == nullptr ? std::nullopt : loop->dim(name_);
    if (!dim || loop->dims[*dim].size != from_) return;
    ops_.insert(id);
    const auto note_all = [&](const std::vector<TensorId>& tensors,
                              const std::vector<std::vector<std::uint8_t>>& dims) {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        for (std::size_t d = 0; d < dims[k].size(); ++d) {
          if (dims[k][d] == *dim) dims_[tensors[k]].insert(d);
        }
      }
    };
    note_all(op.inputs, loop->inputs);
    note_all(op.outputs, loop->outputs);
  }

  /// Values of one storage, and a parameter and its gradient, are alike.
  void note_relatives() {
    std::map<StorageId, TensorId> padded;
    for (const auto& [t, dims] : dims_) padded.emplace(graph_[t].storage, t);
    const auto like = [&](TensorId t, TensorId other) {
      if (!dims_.contains(t) && graph_[t].shape == graph_[other].shape) dims_[t] = dims_.at(other);
    };
    for (std::size_t k = 0; k < graph_.tensors.size(); ++k) {
      const TensorId t = id_at<TensorId>(k);
      const auto found = padded.find(graph_[t].storage);
      if (found != padded.end()) like(t, found->second);
      const std::optional<TensorId> parameter = graph_[t].gradient_of;
      if (parameter && dims_.contains(*parameter)) like(t, *parameter);
      if (parameter && dims_.contains(t)) like(*parameter, t);
    }
  }

  Bytes more(Bytes bytes) const { return Bytes{(bytes.count * to_ + from_ - 1) / from_}; }

  void enlarge(Tensor& tensor, const std::set<std::size_t>& dims) const {
    for (const std::size_t d : dims) {
      tensor.shape[d] = tensor.shape[d] / from_ * to_;
      tensor.bytes = more(tensor.bytes);
    }
  }

  /// Of a parameter that is larger now: so are its states.
  void enlarge_update(const Op& op) {
    const bool is_larger = std::ranges::any_of(
        op.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter && dims_.contains(t); });
    if (!is_larger) return;
    ops_.insert(id_at<OpId>(static_cast<std::size_t>(&op - graph_.ops.data())));
    for (const TensorId t : op.inputs) {
      Tensor& state = graph_.tensors[t.index];
      if (state.kind != TensorKind::optimizer_state || !states_.insert(state.storage).second) continue;
      state.bytes = more(state.bytes);
      state.shape.clear();
    }
  }

  void more_work(Op& op) const {
    const double ratio = static_cast<double>(to_) / static_cast<double>(from_);
    if (op.duration) op.duration = ratio * *op.duration;
    if (op.flops) op.flops = Flops{ratio * op.flops->count};
    if (op.bytes_moved) op.bytes_moved = more(*op.bytes_moved);
    op.workspace = more(op.workspace);
  }

  Graph graph_;
  std::string_view name_;
  std::int64_t from_, to_;
  std::map<TensorId, std::set<std::size_t>> dims_;  // that are larger
  std::set<OpId> ops_;                              // that have more to do
  std::set<StorageId> states_;
};

}  // namespace

Graph padded(Graph graph, std::string_view name, std::int64_t from, std::int64_t to) {
  return LargerDim(std::move(graph), name, from, to).run();
}

}  // namespace plimsoll
