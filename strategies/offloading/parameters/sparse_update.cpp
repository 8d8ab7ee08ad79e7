// The transform `sparse_update`: only chosen parameters are trained. The others are frozen: they have no gradients, no
// optimizer states and no updates, and what comes before the first trained stage needs no backward.
// Source: Lin, Zhu, Chen, Wang, Gan, Han, "On-device training under 256 KB memory", NeurIPS 2022 (biases of the last
// convolutions and the weights of chosen ones).

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "sim/core/schedule.h"
#include "strategies/common/option_rules.h"
#include "strategies/offloading/parameters/frozen_graph.h"
#include "strategies/rematerialization/policies/selective.h"
#include "strategies/strategy.h"

namespace plimsoll {
namespace {

std::vector<std::string_view> terms(std::string_view choice) {
  std::vector<std::string_view> list;
  while (true) {
    const std::size_t plus = choice.find('+');
    list.push_back(choice.substr(0, plus));
    if (plus == std::string_view::npos) return list;
    choice.remove_prefix(plus + 1);
  }
}

/// Of `last:3`: 3.
std::size_t number_in(std::string_view term) {
  std::size_t number = 0;
  const std::string_view digits = term.substr(term.find(':') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

/// What a choice can name of a problem.
class SparseChoice {
 public:
  explicit SparseChoice(const Problem& problem) : problem_(problem) {
    for (const Op& op : problem.graph.ops) {
      if (op.phase != Phase::forward) continue;
      for (const TensorId t : op.inputs) {
        if (problem.graph[t].kind == TensorKind::parameter) of_stage_[op.stage].insert(t);
      }
    }
  }

  bool has_parameters() const { return !of_stage_.empty(); }
  const std::string& first_name() const { return problem_.graph[*of_stage_.begin()->second.begin()].name; }

  std::set<TensorId> chosen(std::string_view term) const {
    const bool last = term.starts_with("last:"), biases = term == "biases" || term.starts_with("biases:");
    std::size_t stages = of_stage_.size();
    if (last || term.starts_with("biases:")) stages = number_in(term);
    std::set<TensorId> parameters;
    for (auto stage = of_stage_.rbegin(); stage != of_stage_.rend() && stages > 0; ++stage, --stages) {
      for (const TensorId t : stage->second) {
        const std::string& name = problem_.graph[t].name;
        const bool is_chosen =
            last || term == "all" || (biases ? name.ends_with("bias") : named(term, stage->first, name));
        if (is_chosen) parameters.insert(t);
      }
    }
    return parameters;
  }

 private:
  bool named(std::string_view pattern, std::uint32_t stage, std::string_view parameter) const {
    return matches(pattern, parameter) || (problem_.chain && matches(pattern, problem_.chain->stages[stage].name));
  }

  const Problem& problem_;
  std::map<std::uint32_t, std::set<TensorId>> of_stage_;  // parameters that its forwards read
};

/// The op takes this share of its time, and of what a time on another device follows from.
void take_share(Op& op, double share) {
  if (op.duration) op.duration = share * *op.duration;
  if (op.flops) op.flops = Flops{share * op.flops->count};
  if (op.bytes_moved)
    op.bytes_moved = Bytes{static_cast<std::int64_t>(share * static_cast<double>(op.bytes_moved->count))};
}

/// Makes the chain, its index and the times of its ops those of the frozen graph.
class FrozenChain {
 public:
  FrozenChain(Problem& problem, const FrozenGraph& frozen, const std::vector<bool>& trained) : problem_(problem) {
    ChainGraph& index = *problem.index;
    for (auto* list : {&index.forward, &index.backward, &index.weight, &index.updates}) {
      for (OpId& op : *list) op = op == no_op ? no_op : frozen.ops[op.index];
    }
    std::erase(index.updates, no_op);
    std::size_t next = 0;
    for (std::size_t t = 0; t < trained.size() && next < problem.chain->parameters.size(); ++t) {
      if (problem.graph.tensors[t].kind == TensorKind::parameter)
        problem.chain->parameters[next++].trained = trained[t];
    }
    problem.graph = frozen.graph;
    std::vector<Stage>& stages = problem.chain->stages;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (has_backward(i)) break;
      first_ = i + 1;
      leave_out_backward(i);
    }
    for (std::size_t i = first_; i < stages.size(); ++i) shorten_backward(i);
    for (std::size_t i = 0; i < stages.size(); ++i) take_times(i);
  }

 private:
  Op& op(OpId id) { return problem_.graph.ops[id.index]; }

  bool has_backward(std::size_t i) const {
    const ChainGraph& index = *problem_.index;
    return index.backward[i] != no_op || (!index.weight.empty() && index.weight[i] != no_op);
  }

  /// The forward keeps nothing and takes what it takes then.
  void leave_out_backward(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    stage.has_backward = false;
    stage.saved = stage.output;
    stage.backward = stage.backward_weight = Seconds{0};
    stage.input_gradient = stage.backward_workspace = stage.backward_accumulate_workspace = Bytes{0};
    stage.forward_workspace = stage.forward_nograd_workspace;
    Op& forward = op(problem_.index->forward[i]);
    if (forward.duration && forward.nograd_duration && forward.duration->value > 0) {
      take_share(forward, *forward.nograd_duration / *forward.duration);
    }
    forward.workspace = forward.nograd_workspace.value_or(forward.workspace);
    forward.nograd_duration.reset();
    forward.nograd_workspace.reset();
  }

  bool is_trained(std::size_t i) {
    const ChainGraph& index = *problem_.index;
    const OpId id = index.weight.empty() ? index.backward[i] : index.weight[i];
    if (id == no_op) return false;
    return std::ranges::any_of(op(id).outputs,
                               [&](TensorId t) { return problem_.graph[t].kind == TensorKind::parameter_gradient; });
  }

  /// By the part that is not needed, where the trace says how long that is: the gradients of the parameters of a frozen
  /// stage, and that of the input of the first one.
  void shorten_backward(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    const bool trained = is_trained(i), is_first = i == first_ && i > 0;
    if (is_first) stage.input_gradient = Bytes{0};
    if (!trained && stage.parameter_gradient) stage.parameter_gradient = Bytes{0};
    const bool is_split = !problem_.index->weight.empty(), is_whole = trained && !is_first;
    if (is_split || is_whole || !stage.has_backward_weight || stage.backward.value <= 0) return;
    const double weight = stage.backward_weight / stage.backward, share = trained ? weight : 1 - weight;
    take_share(op(problem_.index->backward[i]), share);
    weight_share_.try_emplace(i, trained ? 1 : 0);
  }

  void take_times(std::size_t i) {
    Stage& stage = problem_.chain->stages[i];
    const ChainGraph& index = *problem_.index;
    if (!stage.has_backward) stage.forward = stage.forward_nograd = seconds(index.forward[i]);
    if (!weight_share_.contains(i)) return;
    stage.backward = seconds(index.backward[i]);
    stage.backward_weight = weight_share_.at(i) * stage.backward;
  }

  Seconds seconds(OpId id) const { return duration_on(problem_, id, DeviceId{0}, Saving::keep); }

  Problem& problem_;
  std::size_t first_ = 0;                       // stage with a backward
  std::map<std::size_t, double> weight_share_;  // of the backward that is left, where that is not the trace's
};

bool is_choice_of_parameters(std::string_view text) {
  return std::ranges::all_of(terms(text), [](std::string_view term) {
    const std::size_t colon = term.find(':');
    if (colon == std::string_view::npos) return !term.empty();
    const std::string_view what = term.substr(0, colon);
    return (what == "last" || what == "biases") && integer_between<1, 1'000'000>(term.substr(colon + 1));
  });
}

constexpr std::array sparse_update_options{OptionInfo{
    .name = "train",
    .default_value = "last:1",
    .values = "all, last:N, biases, biases:N or patterns such as head.*, joined by '+'",
    .help = "parameters that are trained: last:N: those of the last N stages that have any; biases, biases:N: all "
            "biases, or those of the last N such stages; a pattern: parameters or stages of a chain whose name, or a "
            "part of the name between dots, matches it",
    .allowed = is_choice_of_parameters,
}};

std::variant<Problem, std::string> sparse_update(const Problem& problem, const Options& options) {
  const SparseChoice choice(problem);
  if (!choice.has_parameters()) return "'" + problem.graph.name + "' has no parameters that could be trained";
  std::vector<bool> trained(problem.graph.tensors.size(), false);
  for (const std::string_view term : terms(options.text("train"))) {
    const std::set<TensorId> chosen = choice.chosen(term);
    if (chosen.empty()) {
      return "no parameter of '" + problem.graph.name + "' is '" + std::string(term) + "'; its first parameter is '" +
             choice.first_name() + "'";
    }
    for (const TensorId t : chosen) trained[t.index] = true;
  }
  if (choice.chosen("all").size() == static_cast<std::size_t>(std::ranges::count(trained, true))) return problem;
  std::variant<FrozenGraph, std::string> made = freeze(problem.graph, trained);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  const auto& frozen = std::get<FrozenGraph>(made);
  Problem changed = problem;
  if (changed.chain) {
    FrozenChain(changed, frozen, trained);
  } else {
    changed.graph = frozen.graph;
  }
  return changed;
}

}  // namespace

extern constinit const StrategyInfo sparse_update_strategy{
    .name = "sparse_update",
    .family = Family::transform,
    .summary = "trains only the chosen parameters: the others have no gradients, optimizer states or updates",
    .source = "Lin et al., 'On-device training under 256 KB memory', NeurIPS 2022",
    .chains_only = false,
    .options = sparse_update_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .transform = sparse_update,
};

}  // namespace plimsoll
