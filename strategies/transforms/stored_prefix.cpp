#include "strategies/transforms/stored_prefix.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/core/schedule.h"
#include "strategies/transforms/kept_tensors.h"

namespace plimsoll {
namespace {

class PrefixCut {
 public:
  PrefixCut(Problem problem, std::uint32_t first) : made_{std::move(problem), {}}, first_(first) {}

  std::variant<WithoutPrefix, std::string> run() {
    Graph& graph = made_.problem.graph;
    std::vector<bool> keeps_op(graph.ops.size()), was_read = named_tensors(graph);
    std::set<TensorId> made_before;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      keeps_op[o] = op.phase != Phase::forward || op.stage >= first_;
      if (!keeps_op[o]) made_before.insert(op.outputs.begin(), op.outputs.end());
    }
    const std::vector<OpId> ops = keep_ops(graph, keeps_op);
    if (std::optional<std::string> why = store(made_before)) return *std::move(why);
    std::vector<bool> keeps = named_tensors(graph);
    for (std::size_t t = 0; t < keeps.size(); ++t) {
      if (!was_read[t] && graph.tensors[t].kind == TensorKind::parameter) keeps[t] = true;
    }
    if (made_.problem.chain) cut_chain(ops, keeps);
    keep_tensors(graph, keeps);
    return std::move(made_);
  }

 private:
  /// What later ops read of it.
  std::optional<std::string> store(const std::set<TensorId>& made_before) {
    Graph& graph = made_.problem.graph;
    std::map<StorageId, TensorId> stored;
    for (const Op& op : graph.ops) {
      for (const TensorId t : op.mutates) {
        if (made_before.contains(t)) return no_store(op, t);
      }
      for (const TensorId t : op.inputs) {
        if (!made_before.contains(t)) continue;
        const auto [other, is_first] = stored.try_emplace(graph[t].storage, t);
        if (other->second != t) {
          return "'" + graph[t].name + "' and '" + graph[other->second].name + "' share a storage, and both are read";
        }
        if (!is_first) continue;
        graph.tensors[t.index].kind = TensorKind::input;
        made_.stored += graph[t].bytes;
      }
    }
    return std::nullopt;
  }

  std::string no_store(const Op& op, TensorId t) const {
    return "'" + op.name + "' overwrites '" + made_.problem.graph[t].name + "', which would be stored";
  }

  /// Stages and boundaries count from the first one that is left; so do the ops, and the names of boundaries.
  void cut_chain(const std::vector<OpId>& ops, const std::vector<bool>& keeps) {
    Chain& chain = *made_.problem.chain;
    ChainGraph& index = *made_.problem.index;
    const auto cut = static_cast<std::ptrdiff_t>(first_);
    const bool are_numbered = has_numbered_boundaries(chain);
    chain.input = boundary_bytes(chain, first_);
    keep_parameters(chain, keeps);
    chain.stages.erase(chain.stages.begin(), chain.stages.begin() + cut);
    if (!chain.boundaries.empty()) chain.boundaries.erase(chain.boundaries.begin(), chain.boundaries.begin() + cut);
    for (auto* list : {&index.forward, &index.backward, &index.weight}) {
      if (!list->empty()) list->erase(list->begin(), list->begin() + cut);
    }
    for (auto* list : {&index.forward, &index.backward, &index.weight, &index.updates}) {
      for (OpId& op : *list) op = op == no_op ? no_op : ops[op.index];
    }
    Graph& graph = made_.problem.graph;
    for (Op& op : graph.ops) op.stage -= op.phase == Phase::update ? 0 : first_;
    keep_input_for(index.backward.front());
    if (!index.weight.empty()) keep_input_for(index.weight.front());
    if (are_numbered) rename_boundaries();
  }

  /// Whether boundaries are called by their place.
  static bool has_numbered_boundaries(const Chain& chain) {
    for (std::size_t i = 0; i < chain.boundaries.size(); ++i) {
      const auto has_number = [&](std::uint32_t t) { return chain.tensors[t].name == "x" + std::to_string(i); };
      if (!std::ranges::all_of(chain.boundaries[i], has_number)) return false;
    }
    return true;
  }

  /// The input of a chain stays until the first stage's backward.
  void keep_input_for(OpId backward) {
    if (backward == no_op) return;
    Graph& graph = made_.problem.graph;
    std::vector<TensorId>& inputs = graph.ops[backward.index].inputs;
    for (const TensorId t : graph[made_.problem.index->forward.front()].inputs) {
      const bool is_new = graph[t].kind == TensorKind::input && std::ranges::find(inputs, t) == inputs.end();
      if (is_new) inputs.push_back(t);
    }
  }

  void keep_parameters(Chain& chain, const std::vector<bool>& keeps) {
    std::vector<std::uint32_t> place(chain.parameters.size());
    std::vector<Parameter> kept;
    std::size_t next = 0;
    for (std::size_t t = 0; t < keeps.size() && next < place.size(); ++t) {
      if (made_.problem.graph.tensors[t].kind != TensorKind::parameter) continue;
      place[next] = static_cast<std::uint32_t>(kept.size());
      if (keeps[t]) kept.push_back(chain.parameters[next]);
      ++next;
    }
    chain.parameters = std::move(kept);
    for (std::size_t s = first_; s < chain.stages.size(); ++s) {
      for (std::uint32_t& p : chain.stages[s].parameters) p = place[p];
    }
    std::erase_if(chain.shared, [&](const SharedParameter& shared) {
      return std::ranges::any_of(shared.stages, [&](std::uint32_t s) { return s < first_; });
    });
    for (SharedParameter& shared : chain.shared) {
      shared.parameter = place[shared.parameter];
      for (std::uint32_t& s : shared.stages) s -= first_;
    }
  }

  void rename_boundaries() {
    Chain& chain = *made_.problem.chain;
    for (std::size_t i = 0; i < chain.boundaries.size(); ++i) {
      for (const std::uint32_t t : chain.boundaries[i]) chain.tensors[t].name = "x" + std::to_string(i);
    }
    const std::size_t stages = chain.stages.size();
    for (const std::string before : {"x", "gradient of x"}) {
      std::map<std::string, std::string> names;
      for (std::size_t i = 0; i <= stages; ++i) {
        names[before + std::to_string(i + first_)] = before + std::to_string(i);
      }
      for (Tensor& tensor : made_.problem.graph.tensors) {
        const bool is_boundary = tensor.kind != TensorKind::parameter && tensor.kind != TensorKind::optimizer_state;
        const auto found = names.find(tensor.name);
        if (is_boundary && found != names.end()) tensor.name = found->second;
      }
    }
  }

  WithoutPrefix made_;
  std::uint32_t first_;
};

}  // namespace

std::vector<std::uint32_t> forward_stages(const Graph& graph) {
  std::set<std::uint32_t> stages;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) stages.insert(op.stage);
  }
  return {stages.begin(), stages.end()};
}

std::variant<WithoutPrefix, std::string> without_prefix(Problem problem, std::uint32_t first) {
  return PrefixCut(std::move(problem), first).run();
}

}  // namespace plimsoll
