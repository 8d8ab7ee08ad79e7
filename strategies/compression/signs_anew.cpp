#include "strategies/compression/signs_anew.h"

#include <algorithm>
#include <optional>

#include "sim/ops/layers.h"

namespace plimsoll {
namespace {

class SignChains {
 public:
  SignChains(const Graph& graph, std::span<const SavedTensor> saved, const CodecChoice& choice)
      : graph_(graph), saved_(saved), choice_(choice), makers_(graph.tensors.size()) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase != Phase::forward) continue;
      for (const TensorId t : graph.ops[o].outputs) makers_[t.index] = id_at<OpId>(o);
    }
  }

  /// From batch norms to the ReLU that has made the value; empty where that cannot run again at the position.
  std::vector<OpId> chain(const SavedTensor& made, std::uint32_t position) const {
    const std::optional<OpId> relu = relu_of(made);
    if (!relu || graph_[*relu].inputs.size() != 1) return {};
    const std::optional<OpId> before = makers_[graph_[*relu].inputs[0].index];
    if (!before) return {};
    std::vector<OpId> ops;
    const bool adds = graph_[*before].kind == "add" || graph_[*before].kind == "add_";
    if (adds) {
      for (const TensorId t : graph_[*before].inputs) {
        const std::optional<OpId> maker = makers_[t.index];
        if (!maker || !runs_again(*maker, position)) return {};
        ops.push_back(*maker);
      }
    } else if (!runs_again(*before, position)) {
      return {};
    }
    ops.push_back(*before);
    ops.push_back(*relu);
    return ops;
  }

  /// The ops in order, each followed by drops of what only the chain reads.
  std::vector<Action> actions(const std::vector<OpId>& chain) const {
    std::vector<Action> made;
    for (std::size_t k = 0; k < chain.size(); ++k) {
      made.push_back(run(chain[k], Saving::nothing));
      for (const TensorId t : graph_[chain[k]].inputs) {
        const auto makes = [&](OpId op) { return has_storage(graph_[op].outputs, t); };
        const bool of_chain = std::any_of(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(k), makes);
        if (of_chain && !makes(chain[k])) made.push_back(on_tensor(ActionKind::drop, t));
      }
    }
    return made;
  }

 private:
  bool has_storage(const std::vector<TensorId>& tensors, TensorId t) const {
    return std::ranges::any_of(tensors, [&](TensorId each) { return graph_[each].storage == graph_[t].storage; });
  }

  std::optional<OpId> relu_of(const SavedTensor& made) const {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      const bool is_relu = op.phase == Phase::forward && layer_of(op) == SavedBy::relu;
      if (is_relu && has_storage(op.outputs, made.tensor)) return id_at<OpId>(o);
    }
    return std::nullopt;
  }

  bool runs_again(OpId id, std::uint32_t position) const {
    const Op& op = graph_[id];
    if (layer_of(op) != SavedBy::bn || !op.recomputable || !op.mutates.empty()) return false;
    return std::ranges::all_of(
        op.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter || waits(t, position); });
  }

  /// As it is, from before the position to after it.
  bool waits(TensorId t, std::uint32_t position) const {
    return std::ranges::any_of(saved_, [&](const SavedTensor& each) {
      return graph_[each.tensor].storage == graph_[t].storage && each.from < position &&
             std::ranges::any_of(each.uses, [&](const SavedUse& use) {
               return use.position > position && use.by == SavedBy::bn && !choice_(each, use);
             });
    });
  }

  const Graph& graph_;
  std::span<const SavedTensor> saved_;
  const CodecChoice& choice_;
  std::vector<std::optional<OpId>> makers_;  // by tensor: in the forward
};

}  // namespace

Reruns signs_anew(const Graph& graph, std::span<const SavedTensor> saved, const CodecChoice& choice) {
  const SignChains chains(graph, saved, choice);
  Reruns reruns;
  for (const SavedTensor& made : saved) {
    for (const SavedUse& use : made.uses) {
      if (use.by != SavedBy::relu || !use.is_result) continue;
      const std::vector<OpId> chain = chains.chain(made, use.position);
      if (!chain.empty()) reruns.emplace(use.position, chains.actions(chain));
    }
  }
  return reruns;
}

}  // namespace plimsoll
