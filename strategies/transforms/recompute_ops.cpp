// The transform `recompute_ops`: some ops of the forward, by default the core of attentions, run again right before the
// backward that reads what they make, so that this does not wait. In a transformer of s positions, width h and a heads,
// a layer of b samples keeps 34 s b h bytes instead of 34 s b h + 5 a s^2 b, for 2 s^2 b h more operations (forward:
// 24 s b h^2 + 4 s^2 b h). Source: Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro, "Reducing activation
// recomputation in large transformer models", MLSys 2023, section 5 (selective activation recomputation).

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "sim/io/input_error.h"
#include "strategies/api/strategy.h"
#include "strategies/rematerialization/policies/policies.h"
#include "strategies/transforms/recomputed_ops.h"

namespace plimsoll {
namespace {

struct RecomputeOpsOptions {
  std::string ops = "score+softmax+dropout";
};

/// The last parts of names of forward ops, each once.
std::vector<std::string_view> last_parts(const Graph& graph) {
  std::vector<std::string_view> parts;
  for (const Op& op : graph.ops) {
    const std::string_view name = op.name;
    if (op.phase == Phase::forward) parts.push_back(name.substr(name.rfind('.') + 1));
  }
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

std::variant<Problem, std::string> recompute_ops(const Problem& problem, const RecomputeOpsOptions& options) {
  if (problem.chain) {
    return fmt::format("'{}' is a chain, whose ops are whole stages: 'selective' chooses among these",
                       problem.graph.name);
  }
  const std::string_view patterns = options.ops;
  std::vector<bool> runs_again;
  for (const Op& op : problem.graph.ops) {
    runs_again.push_back(op.phase == Phase::forward && matches(patterns, op.name));
  }
  if (std::ranges::count(runs_again, true) == 0) {
    return fmt::format("no forward op of '{}' is named like '{}'{}", problem.graph.name, patterns,
                       suggestion(patterns, last_parts(problem.graph)));
  }
  std::variant<Graph, std::string> made = with_recomputed_ops(problem.graph, runs_again);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  Problem changed = problem;
  changed.graph = std::get<Graph>(std::move(made));
  return changed;
}

constexpr auto recompute_ops_options = options_of<RecomputeOpsOptions>(option_of<&RecomputeOpsOptions::ops>({
    .name = "ops",
    .values = "patterns of names joined by '+'",
    .help = "which ops run again: whole names or parts of them between dots, with * and ?",
    .allowed = [](std::string_view text) { return !text.empty(); },
}));

}  // namespace

extern constinit const StrategyInfo recompute_ops_strategy{
    .name = "recompute_ops",
    .family = Family::transform,
    .summary = "some ops, by default the core of attentions, run again right before their backward",
    .source =
        "Korthikanti et al., 'Reducing activation recomputation in large transformer models', MLSys 2023 (selective "
        "activation recomputation)",
    .options = recompute_ops_options,
    .kind = TransformStrategy{.transform = by_options<recompute_ops>},
};

}  // namespace plimsoll
