// The transform `sparse_update`: only chosen parameters are trained. The others are frozen: they have no gradients, no
// optimizer states and no updates, and what comes before the first trained stage needs no backward.
// Source: Lin, Zhu, Chen, Wang, Gan, Han, "On-device training under 256 KB memory", NeurIPS 2022 (biases of the last
// convolutions and the weights of chosen ones).

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/policies/policies.h"
#include "strategies/transforms/smaller_problem.h"

namespace plimsoll {
namespace {

struct SparseUpdateOptions {
  std::string train = "last:1";
};

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

bool is_choice_of_parameters(std::string_view text) {
  return std::ranges::all_of(terms(text), [](std::string_view term) {
    const std::size_t colon = term.find(':');
    if (colon == std::string_view::npos) return !term.empty();
    const std::string_view what = term.substr(0, colon);
    return (what == "last" || what == "biases") && integer_between<1, 1'000'000>(term.substr(colon + 1));
  });
}

constexpr auto sparse_update_options = options_of<SparseUpdateOptions>(option_of<&SparseUpdateOptions::train>({
    .name = "train",
    .values = "all, last:N, biases, biases:N or patterns such as head.*, joined by '+'",
    .help = "parameters that are trained: last:N: parameters of the last N stages that have any; biases, biases:N: all "
            "biases, or biases of the last N such stages; a pattern: parameters or stages of a chain whose name, or a "
            "part of the name between dots, matches it",
    .allowed = is_choice_of_parameters,
}));

std::variant<Problem, std::string> sparse_update(const Problem& problem, const SparseUpdateOptions& options) {
  const SparseChoice choice(problem);
  if (!choice.has_parameters()) return "'" + problem.graph.name + "' has no parameters that could be trained";
  std::vector<bool> trained(problem.graph.tensors.size(), false);
  for (const std::string_view term : terms(options.train)) {
    const std::set<TensorId> chosen = choice.chosen(term);
    if (chosen.empty()) {
      return "no parameter of '" + problem.graph.name + "' is '" + std::string(term) + "'; its first parameter is '" +
             choice.first_name() + "'";
    }
    for (const TensorId t : chosen) trained[t.index] = true;
  }
  if (choice.chosen("all").size() == static_cast<std::size_t>(std::ranges::count(trained, true))) return problem;
  return with_frozen(problem, trained);
}

}  // namespace

extern constinit const StrategyInfo sparse_update_strategy{
    .name = "sparse_update",
    .family = Family::transform,
    .summary = "trains only the chosen parameters: the others have no gradients, optimizer states or updates",
    .source = "Lin et al., 'On-device training under 256 KB memory', NeurIPS 2022",
    .options = sparse_update_options,
    .kind = TransformStrategy{.transform = by_options<sparse_update>},
};

}  // namespace plimsoll
