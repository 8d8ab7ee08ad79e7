// What tensors that share a storage may be: names of one given thing, views, and values written over each other.

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "sim/core/names.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

class StorageRules {
 public:
  StorageRules(JsonDocument& document, const Graph& graph)
      : document_(document),
        graph_(graph),
        given_(graph.storages, nobody),
        gradient_(graph.storages, nobody),
        content_(graph.storages),
        names_(graph.storages),
        last_maker_(graph.storages, nobody),
        overwritten_by_(graph.tensors.size(), nobody) {}

  void check() {
    find_names();
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) {
      for (const TensorId t : graph_.ops[i].outputs) {
        if (!shown_by(i, t)) last_maker_[storage(t)] = i;
      }
    }
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) {
      check_reads(i);
      check_update(i);
      check_overwriting(i);
      for (std::size_t k = 0; k < graph_.ops[i].outputs.size(); ++k) check_output(i, k);
    }
  }

 private:
  static constexpr std::uint32_t nobody = 0xFFFFFFFF;

  std::uint32_t storage(TensorId t) const { return graph_[t].storage.index; }
  const std::string& name(std::uint32_t tensor) const { return graph_.tensors[tensor].name; }

  bool reads_storage_of(const Op& op, TensorId t) const {
    return std::ranges::any_of(op.inputs, [&](TensorId in) { return in != t && storage(in) == storage(t); });
  }
  bool overwrites_storage_of(const Op& op, TensorId t) const {
    return std::ranges::any_of(op.mutates, [&](TensorId old) { return storage(old) == storage(t); });
  }
  /// Whether `t` is a view of what the op reads.
  bool shown_by(std::uint32_t op, TensorId t) const {
    return reads_storage_of(graph_.ops[op], t) && !overwrites_storage_of(graph_.ops[op], t);
  }

  void find_names() {
    std::vector<bool> by_update(graph_.tensors.size(), false);
    for (const Op& op : graph_.ops) {
      for (const TensorId t : op.outputs) by_update[t.index] = op.phase == Phase::update;
    }
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      names_[tensor.storage.index].push_back(t);
      if (tensor.kind == TensorKind::parameter_gradient) gradient_[tensor.storage.index] = t;
      if (!is_given(tensor.kind) || by_update[t]) continue;
      std::uint32_t& first = given_[tensor.storage.index];
      if (first == nobody) first = t;
      content_[tensor.storage.index] = {t};
      if (graph_.tensors[first].kind == tensor.kind) continue;
      document_.complain(below("tensors", t, "kind"),
                         fmt::format("shares the storage of '{}', expected {} as that is, found {}", name(first),
                                     written(graph_.tensors[first].kind), written(tensor.kind)));
    }
  }

  void check_reads(std::uint32_t i) {
    const Op& op = graph_.ops[i];
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId t = op.inputs[k];
      const std::uint32_t by = overwritten_by_[t.index], s = storage(t);
      if (by != nobody) {
        document_.complain(below(below("ops", i, "inputs"), k),
                           fmt::format("'{}' was overwritten before, by op '{}'", name(t.index), graph_.ops[by].name));
      }
      const std::uint32_t last = last_maker_[s];
      const bool adds = std::ranges::any_of(op.outputs, [&](TensorId made) { return storage(made) == s; });
      if (gradient_[s] == nobody || last == nobody || last <= i || adds) continue;
      document_.complain(below(below("ops", i, "inputs"), k),
                         fmt::format("'{}' is read before op '{}' (ops[{}]) has made its share of '{}'", name(t.index),
                                     graph_.ops[last].name, last, name(gradient_[s])));
    }
  }

  void check_update(std::uint32_t i) {
    const Op& op = graph_.ops[i];
    const auto is_gradient = [&](TensorId t) { return gradient_[storage(t)] != nobody; };
    const auto is_shown = [&](TensorId t) { return shown_by(i, t); };
    const bool only_views = op.mutates.empty() && !op.outputs.empty() && std::ranges::all_of(op.outputs, is_shown);
    if (op.phase != Phase::update || only_views || std::ranges::any_of(op.inputs, is_gradient)) return;
    document_.complain(below("ops", i),
                       fmt::format("update '{}' reads no parameter gradient: the ops of one update must "
                                   "be one op, which reads the gradient",
                                   op.name));
  }

  /// What an op overwrites lives on as one of its outputs, and the old value is read by nobody later. Of what is given
  /// all names are old then; of a value its views show the new one.
  void check_overwriting(std::uint32_t i) {
    const Op& op = graph_.ops[i];
    for (std::size_t k = 0; k < op.mutates.size(); ++k) {
      const Tensor& old = graph_[op.mutates[k]];
      if (old.kind == TensorKind::input) {
        document_.complain(
            below(below("ops", i, "mutates"), k),
            fmt::format("'{}' is an input, which cannot be overwritten: expected a new output", old.name));
        continue;
      }
      overwritten_by_[op.mutates[k].index] = i;
      if (given_[old.storage.index] != nobody) {
        for (const std::uint32_t t : names_[old.storage.index]) overwritten_by_[t] = i;
      }
      if (is_given(old.kind)) continue;
      const bool lives_on = op.phase == Phase::update || std::ranges::any_of(op.outputs, [&](TensorId t) {
                              return graph_[t].storage == old.storage;
                            });
      if (lives_on) continue;
      document_.complain(below(below("ops", i, "mutates"), k),
                         fmt::format("'{}' is overwritten, but no output shares its storage", old.name));
    }
  }

  void check_output(std::uint32_t i, std::size_t k) {
    const Op& op = graph_.ops[i];
    const TensorId t = op.outputs[k];
    const std::uint32_t s = storage(t), given = given_[s];
    const bool is_gradient = graph_[t].kind == TensorKind::parameter_gradient;
    const auto complain = [&](const std::string& what) {
      document_.complain(below(below("ops", i, "outputs"), k), fmt::format("'{}' {}", name(t.index), what));
    };
    std::vector<std::uint32_t>& content = content_[s];
    if (!reads_storage_of(op, t)) {
      const bool gradients =
          is_gradient && (content.empty() || graph_.tensors[content.front()].kind == TensorKind::parameter_gradient);
      if (given != nobody || (gradient_[s] != nobody && !gradients && !content.empty())) {
        return complain(
            fmt::format("has the storage of '{}', which the op does not read: it is neither a view of it nor "
                        "written over it",
                        name(given != nobody ? given : content.front())));
      }
      if (!gradients) {
        const auto is_new = [&](std::uint32_t made) {
          return std::ranges::find(op.outputs, TensorId{made}) != op.outputs.end();
        };
        std::erase_if(content, [&](std::uint32_t old) {
          if (is_new(old)) return false;
          overwritten_by_[old] = i;
          return true;
        });
      }
    } else if (is_gradient && given != nobody) {
      return complain(
          fmt::format("is a parameter gradient and has the storage of '{}', expected its own", name(given)));
    }
    content.push_back(t.index);
  }

  JsonDocument& document_;
  const Graph& graph_;
  std::vector<std::uint32_t> given_;                 ///< by storage: what is there from the start
  std::vector<std::uint32_t> gradient_;              ///< by storage: a parameter gradient
  std::vector<std::vector<std::uint32_t>> content_;  ///< by storage: the tensors that name what it holds
  std::vector<std::vector<std::uint32_t>> names_;    ///< by storage: all its tensors
  std::vector<std::uint32_t> last_maker_;            ///< by storage: the last op that writes into it
  std::vector<std::uint32_t> overwritten_by_;        ///< by tensor
};

}  // namespace

void check_sharing(JsonDocument& document, const Graph& graph) {
  StorageRules(document, graph).check();
}

}  // namespace plimsoll
