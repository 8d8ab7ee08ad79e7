#include "strategies/transforms/changed_states.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/names.h"
#include "sim/core/optimizer.h"
#include "strategies/transforms/kept_tensors.h"

namespace plimsoll {
namespace {

constexpr std::string_view copy_of_parameter = "fp32 copy of ";

/// Of one update, what belongs to one of its parameters.
struct StatesOfOne {
  std::optional<TensorId> copy;
  std::vector<TensorId> adams;
};

class OptimizerChange {
 public:
  OptimizerChange(const Problem& problem, const OtherOptimizer& other) : other_(other), made_(problem) {}

  std::variant<Problem, std::string> run() {
    std::size_t updates = 0;
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      if (graph().ops[o].phase != Phase::update) continue;
      if (std::optional<std::string> why = change(graph().ops[o])) return *std::move(why);
      ++updates;
    }
    if (updates == 0) return "it takes the place of Adam's updates, and there are none: give --optimizer adam";
    state_in_chain();
    std::vector<bool> keeps(graph().tensors.size(), true);
    for (const TensorId t : gone_) keeps[t.index] = false;
    keep_tensors(graph(), keeps);
    if (other_.shared) add_shared();
    return std::move(made_);
  }

 private:
  Graph& graph() { return made_.graph; }
  bool is_of(TensorId t, TensorKind kind) { return graph()[t].kind == kind; }

  TensorId add(const std::string& name, TensorKind kind, const KeptState& state) {
    graph().tensors.push_back({.name = name,
                               .kind = kind,
                               .bytes = state.bytes,
                               .storage = id_at<StorageId>(graph().storages++),
                               .shape = {},
                               .dtype = state.dtype});
    return id_at<TensorId>(graph().tensors.size() - 1);
  }

  /// By the names that states have where --optimizer made them; all of an update of one parameter.
  StatesOfOne states_of_one(const Op& update, TensorId parameter, bool is_only_one) {
    StatesOfOne found;
    for (const TensorId t : update.inputs) {
      if (!is_of(t, TensorKind::optimizer_state)) continue;
      const std::string &name = graph()[t].name, &of = graph()[parameter].name;
      if (name == std::string(copy_of_parameter) + of) {
        found.copy = t;
      } else if (is_only_one || name.ends_with(" of " + of)) {
        found.adams.push_back(t);
      }
    }
    return found;
  }

  std::string not_adams(const Op& update, const std::string& what) {
    return "'" + update.name + "' " + what + ": it takes the place of Adam's updates only (--optimizer adam)";
  }

  std::optional<std::string> change(Op& update) {
    const auto named = std::ranges::find(update.attributes, optimizer_attribute, [](const auto& a) { return a.first; });
    if (named != update.attributes.end() && named->second != written(Optimizer::adam)) {
      return not_adams(update, "is one of " + named->second);
    }
    std::vector<TensorId> parameters, gradients, states;
    for (const TensorId t : update.inputs) {
      if (is_of(t, TensorKind::parameter_gradient)) gradients.push_back(t);
      const bool is_updated = std::ranges::find(update.mutates, t) != update.mutates.end();
      if (is_of(t, TensorKind::parameter) && is_updated) parameters.push_back(t);
    }
    const Bytes before = moved_by(update);
    ChangedStates sum;
    for (const TensorId parameter : parameters) {
      const StatesOfOne old = states_of_one(update, parameter, parameters.size() == 1);
      std::variant<ChangedStates, std::string> changed = changed_states(update, parameter, old);
      if (std::string* why = std::get_if<std::string>(&changed)) return std::move(*why);
      const auto& given = std::get<ChangedStates>(changed);
      std::vector<TensorId> own;
      if (old.copy) own.push_back(*old.copy);
      for (const KeptState& state : given.states) {
        own.push_back(add(state.name + " of " + graph()[parameter].name, TensorKind::optimizer_state, state));
      }
      for (const TensorId t : own) kept_[parameter] += graph()[t].bytes;
      states.insert(states.end(), own.begin(), own.end());
      gone_.insert(gone_.end(), old.adams.begin(), old.adams.end());
      sum.workspace = std::max(sum.workspace, given.workspace);
      sum.also_moved += given.also_moved;
      sum.flops = Flops{sum.flops.count + given.flops.count};
    }
    return take(update, parameters, gradients, states, sum, before);
  }

  std::variant<ChangedStates, std::string> changed_states(const Op& update, TensorId t, const StatesOfOne& old) {
    const Tensor& parameter = graph()[t];
    const std::string dtype = dtype_of(graph(), parameter);
    if (old.adams.size() != 2 || graph()[old.adams[0]].bytes != graph()[old.adams[1]].bytes) {
      return not_adams(update,
                       "keeps " + std::to_string(old.adams.size()) + " states for '" + parameter.name + "', not two");
    }
    const std::optional<std::int64_t> each = bytes_of_dtype(dtype);
    if (!each) {
      return "the number of elements of '" + parameter.name + "' is not known, whose dtype is '" + dtype + "'";
    }
    const Tensor& state = graph()[old.adams[0]];
    return other_.states({parameter, parameter.bytes.count / *each, state.bytes, dtype_of(graph(), state)});
  }

  Bytes moved_by(const Op& update) {
    if (update.bytes_moved) return *update.bytes_moved;
    Bytes moved;
    for (const auto* list : {&update.inputs, &update.mutates}) {
      for (const TensorId t : *list) moved += graph()[t].bytes;
    }
    return moved;
  }

  /// A time that was measured follows the bytes, which is what an update is bound by.
  std::optional<std::string> take(Op& update, const std::vector<TensorId>& parameters,
                                  const std::vector<TensorId>& gradients, const std::vector<TensorId>& states,
                                  const ChangedStates& sum, Bytes before) {
    const bool computes = sum.flops.count > 0;
    if (update.duration && computes) {
      return "'" + update.name + "' has a time of its own, and how long " + other_.name + "'s products take is unknown";
    }
    const Op made =
        update_op(graph(), made_.states.value_or(States::by_dtype), update.name, parameters, gradients, states);
    update.inputs = made.inputs;
    update.mutates = made.mutates;
    update.bytes_moved = *made.bytes_moved + sum.also_moved;
    update.workspace = sum.workspace;
    if (computes) update.flops = Flops{update.flops.value_or(Flops{}).count + sum.flops.count};
    if (update.duration && before > Bytes{0}) {
      const double share = static_cast<double>(update.bytes_moved->count) / static_cast<double>(before.count);
      update.duration = share * *update.duration;
    }
    std::erase_if(update.attributes, [](const auto& a) { return a.first == optimizer_attribute; });
    update.attributes.emplace_back(optimizer_attribute, other_.name);
    if (other_.shared) update.attributes.emplace_back(shared_state_attribute, other_.shared->name);
    return std::nullopt;
  }

  /// Parameters of the graph are those of the chain, in their order.
  void state_in_chain() {
    if (!made_.chain) return;
    std::size_t next = 0;
    for (std::size_t t = 0; t < graph().tensors.size() && next < made_.chain->parameters.size(); ++t) {
      if (graph().tensors[t].kind != TensorKind::parameter) continue;
      const auto found = kept_.find(id_at<TensorId>(t));
      if (found != kept_.end()) made_.chain->parameters[next].states = found->second;
      ++next;
    }
  }

  /// As a parameter that nothing trains, beside those of the first part.
  void add_shared() {
    add(other_.shared->name, TensorKind::parameter, *other_.shared);
    if (!made_.chain) return;
    made_.chain->parameters.push_back(
        {.name = other_.shared->name, .bytes = other_.shared->bytes, .dtype = other_.shared->dtype, .trained = false});
  }

  const OtherOptimizer& other_;
  Problem made_;
  std::vector<TensorId> gone_;
  std::map<TensorId, Bytes> kept_;  // by parameter: its states
};

}  // namespace

std::variant<Problem, std::string> with_optimizer(const Problem& problem, const OtherOptimizer& other) {
  return OptimizerChange(problem, other).run();
}

}  // namespace plimsoll
