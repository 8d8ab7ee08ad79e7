// What makes a graph a training iteration: references that exist, values produced once and before they are read, sizes
// that agree, and something to compute every op's duration from.

#include <fmt/format.h>

#include <algorithm>

#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t nobody = 0xFFFFFFFF;

class Rules {
 public:
  Rules(JsonDocument& document, const Graph& graph)
      : document_(document), graph_(graph), producer_(graph.tensors.size(), nobody) {}

  void check() {
    if (graph_.ops.empty()) document_.complain("ops", "expected at least one op");
    check_storages();
    check_references();
    check_owners();
    check_colocation();
    document_.throw_if_any();  // the order is meaningful only among ops and tensors that exist
    check_work();
    find_producers();
    document_.throw_if_any();
    check_order();
    check_reads_by_updates();
  }

 private:
  void check_storages() {
    std::vector<std::uint32_t> first(graph_.storages, nobody);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      std::uint32_t& owner = first[graph_.tensors[t].storage.index];
      if (owner == nobody) owner = static_cast<std::uint32_t>(t);
      const Tensor &tensor = graph_.tensors[t], &other = graph_.tensors[owner];
      if (tensor.bytes == other.bytes) continue;
      document_.complain(below("tensors", t, "bytes"),
                         fmt::format("differs from '{}' of the same storage, expected {}, found {}", other.name,
                                     other.bytes.count, tensor.bytes.count));
    }
  }

  /// Only parameter gradients are the gradient of a parameter.
  void check_owners() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const std::optional<TensorId>& owner = graph_.tensors[t].gradient_of;
      if (!owner) continue;
      const std::string path = below("tensors", t, "gradient_of");
      if (!check_index(document_, path, owner->index, graph_.tensors.size(), "tensor")) continue;
      if (graph_.tensors[t].kind != TensorKind::parameter_gradient) {
        document_.complain(path, fmt::format("'{}' is not a parameter gradient", graph_.tensors[t].name));
      } else if (graph_[*owner].kind != TensorKind::parameter) {
        document_.complain(path, fmt::format("'{}' is not a parameter", graph_[*owner].name));
      }
    }
  }

  void check_references() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      check_tensors(i, "inputs", op.inputs);
      check_tensors(i, "outputs", op.outputs);
      check_subset(i, "saved", op.saved, "outputs", op.outputs);
      check_subset(i, "mutates", op.mutates, "inputs", op.inputs);
    }
  }

  void check_tensors(std::size_t op, std::string_view key, const std::vector<TensorId>& list) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (list[k].index < graph_.tensors.size()) continue;
      check_index(document_, below(below("ops", op, key), k), list[k].index, graph_.tensors.size(), "tensor");
    }
  }

  void check_subset(std::size_t op, std::string_view key, const std::vector<TensorId>& list, std::string_view whole_key,
                    const std::vector<TensorId>& whole) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (std::ranges::find(whole, list[k]) != whole.end()) continue;
      document_.complain(below(below("ops", op, key), k),
                         fmt::format("tensor {} is not among the {} of the op", list[k].index, whole_key));
    }
  }

  void check_colocation() {
    for (std::size_t g = 0; g < graph_.colocate.size(); ++g) {
      for (std::size_t k = 0; k < graph_.colocate[g].size(); ++k) {
        check_index(document_, below(below("colocate", g), k), graph_.colocate[g][k].index, graph_.ops.size(), "op");
      }
    }
  }

  void check_work() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const bool is_update = op.phase == Phase::update;
      check_load(op, i);
      for (std::size_t k = 0; k < op.alternatives.size(); ++k) {
        const Alternative& way = op.alternatives[k];
        if (way.duration || (way.flops && way.bytes_moved)) continue;
        document_.complain(
            below(below("ops", i, "alternatives"), k),
            fmt::format("alternative '{}' of op '{}' has neither time_s nor flops and bytes", way.name, op.name));
      }
      if (op.duration || (op.bytes_moved && (op.flops || is_update))) continue;
      document_.complain(below("ops", i), fmt::format("op '{}' has neither time_s nor flops and bytes", op.name));
    }
  }

  void check_load(const Op& op, std::size_t i) {
    const auto is_input = [&](TensorId t) {
      return t.index < graph_.tensors.size() && graph_[t].kind == TensorKind::input;
    };
    const bool may_load = op.phase == Phase::forward && std::ranges::any_of(op.inputs, is_input);
    const Seconds most = may_load ? op.duration.value_or(Seconds{0}) : Seconds{0};
    if (op.load <= most) return;
    document_.complain(below("ops", i, "load_s"),
                       may_load ? fmt::format("more than the op, of which it is a part, expected at most {}, found {}",
                                              most.value, op.load.value)
                                : "only a forward op that reads an input of the network loads it");
  }

  void find_producers() {
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        const TensorId t = op.outputs[k];
        const Tensor& tensor = graph_[t];
        if (is_given(tensor.kind) && op.phase != Phase::update) {
          document_.complain(below(below("ops", i, "outputs"), k),
                             fmt::format("'{}' is there from the start and cannot be produced", tensor.name));
        } else if (producer_[t.index] == nobody) {
          producer_[t.index] = i;
        } else if (tensor.kind != TensorKind::parameter_gradient || producer_[t.index] == i) {
          document_.complain(below(below("ops", i, "outputs"), k),
                             fmt::format("'{}' is produced a second time, after op '{}'", tensor.name,
                                         graph_.ops[producer_[t.index]].name));
        }
      }
    }
  }

  /// Where a read comes too early, either the ops are merely in the wrong order or no order exists at all.
  /// A graph recorded while gradients existed reads them.
  static std::string_view reason_of(TensorKind kind) {
    if (kind != TensorKind::parameter_gradient) return "";
    return ": parameter gradients begin with the iteration; an op that adds to one that exists before it has the "
           "gradient "
           "as an output only (and --gradients existing says that it exists)";
  }

  /// By storage: whether it is there once, not once a micro-batch, whatever its views are called.
  std::vector<bool> stored_once() const {
    std::vector<bool> once(graph_.storages, false);
    for (const Tensor& tensor : graph_.tensors) {
      if (!per_micro_batch(tensor.kind)) once[tensor.storage.index] = true;
    }
    return once;
  }

  /// Updates run once an iteration, when values of micro-batches are gone; what updates make is of none.
  void check_reads_by_updates() {
    const std::vector<bool> once = stored_once();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      for (std::size_t k = 0; op.phase == Phase::update && k < op.inputs.size(); ++k) {
        const Tensor& tensor = graph_[op.inputs[k]];
        const std::uint32_t producer = producer_[op.inputs[k].index];
        const bool is_of_update = producer == nobody || graph_.ops[producer].phase == Phase::update;
        if (once[tensor.storage.index] || (is_of_update && !is_given(tensor.kind))) continue;
        document_.complain(below(below("ops", i, "inputs"), k),
                           fmt::format("'{}' is of a micro-batch, and update '{}' runs once an iteration: expected a "
                                       "parameter, a parameter gradient, a state or what an update makes",
                                       tensor.name, op.name));
      }
    }
  }

  void check_order() {
    bool too_early = false;
    const std::vector<std::uint32_t> cycle = find_cycle();
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        const Tensor& tensor = graph_[op.inputs[k]];
        const std::uint32_t producer = producer_[op.inputs[k].index];
        if (is_given(tensor.kind) || producer < i) continue;
        const bool accumulates = producer == i && tensor.kind == TensorKind::parameter_gradient;
        if (accumulates) continue;
        if (producer == nobody) {
          document_.complain(below(below("ops", i, "inputs"), k),
                             fmt::format("'{}' is never produced{}", tensor.name, reason_of(tensor.kind)));
        } else if (cycle.empty()) {
          document_.complain(below(below("ops", i, "inputs"), k),
                             fmt::format("'{}' is read before it is produced, by op '{}' (ops[{}])", tensor.name,
                                         graph_.ops[producer].name, producer));
        }
        too_early = true;
      }
    }
    if (!too_early || cycle.empty()) return;
    std::string names;
    constexpr std::size_t most = 8;
    for (std::size_t k = 0; k < cycle.size() && k < most; ++k)
      names += fmt::format("'{}' -> ", graph_.ops[cycle[k]].name);
    if (cycle.size() > most) names += "... -> ";
    document_.complain(below("ops", cycle.front()),
                       fmt::format("cyclic, no order exists: {}'{}'", names, graph_.ops[cycle.front()].name));
  }

  /// The op whose result `op` reads as its k-th input and must wait for, or nobody.
  std::uint32_t needed(std::uint32_t op, std::size_t k) const {
    const TensorId t = graph_.ops[op].inputs[k];
    const std::uint32_t producer = producer_[t.index];
    const bool accumulates = producer == op && graph_[t].kind == TensorKind::parameter_gradient;
    return is_given(graph_[t].kind) || accumulates ? nobody : producer;
  }

  /// Ops that need each other, each the result of the one before it; empty where the ops can be ordered.
  std::vector<std::uint32_t> find_cycle() const {
    enum class Mark : std::uint8_t { fresh, open, done };
    std::vector<Mark> marks(graph_.ops.size(), Mark::fresh);
    struct Visit {
      std::uint32_t op;
      std::size_t next_input;
    };
    for (std::uint32_t start = 0; start < graph_.ops.size(); ++start) {
      if (marks[start] != Mark::fresh) continue;
      std::vector<Visit> path{{start, 0}};
      marks[start] = Mark::open;
      while (!path.empty()) {
        Visit& visit = path.back();
        if (visit.next_input == graph_.ops[visit.op].inputs.size()) {
          marks[visit.op] = Mark::done;
          path.pop_back();
          continue;
        }
        const std::uint32_t other = needed(visit.op, visit.next_input++);
        if (other == nobody || marks[other] == Mark::done) continue;
        if (marks[other] == Mark::fresh) {
          marks[other] = Mark::open;
          path.push_back({other, 0});
          continue;
        }
        std::vector<std::uint32_t> cycle;  // the path runs from readers to producers: turn it round
        while (path.back().op != other) {
          cycle.push_back(path.back().op);
          path.pop_back();
        }
        cycle.push_back(other);
        return cycle;
      }
    }
    return {};
  }

  JsonDocument& document_;
  const Graph& graph_;
  std::vector<std::uint32_t> producer_;  ///< of each tensor: the first op that makes it
};

}  // namespace

void check_graph(JsonDocument& document, const Graph& graph) {
  Rules(document, graph).check();
  document.throw_if_any();
  check_sharing(document, graph);
}

}  // namespace plimsoll
