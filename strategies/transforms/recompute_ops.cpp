#include "strategies/transforms/recompute_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/op_attribute.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "sim/ops/operators.h"
#include "strategies/api/strategy.h"
#include "strategies/models/runs_again.h"
#include "strategies/rematerialization/policies/policies.h"

namespace plimsoll {
namespace {

class Recomputing {
 public:
  Recomputing(const Graph& graph, const std::vector<bool>& runs_again)
      : graph_(graph), made_(graph), makers_(graph.tensors.size()), second_(graph.tensors.size()) {
    made_.ops.clear();
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (!runs_again[o]) continue;
      for (const TensorId t : graph.ops[o].outputs) makers_[t.index] = id_at<OpId>(o);
    }
    for (const Operator& each : operators_of(graph)) {
      for (const OpId backward : each.backward) operator_of_[backward] = each.forward;
    }
  }

  Graph run() {
    std::vector<OpId> place(graph_.ops.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      Op op = graph_.ops[o];
      if (is_backward(op.phase)) read_second_runs(op, id_at<OpId>(o));
      place[o] = id_at<OpId>(made_.ops.size());
      made_.ops.push_back(std::move(op));
    }
    for (std::vector<OpId>& group : made_.colocate) move_group(group, place);
    std::vector<bool> is_read(made_.tensors.size(), false);
    for (const Op& op : made_.ops) {
      for (const TensorId t : op.inputs) is_read[t.index] = true;
    }
    for (const auto& [first, again] : again_) save_less(made_.ops[place[first.index].index], is_read);
    return std::move(made_);
  }

 private:
  void read_second_runs(Op& op, OpId id) {
    bool changed = false;
    for (TensorId& t : op.inputs) changed |= replace(t, op.phase);
    for (TensorId& t : op.mutates) replace(t, op.phase);
    const auto of = operator_of_.find(id);
    if (changed && of != operator_of_.end()) belong_to(op, of->second);
  }

  /// By what a second run makes in its place; whether there is one.
  bool replace(TensorId& t, Phase phase) {
    const std::optional<OpId> maker = makers_[t.index];
    if (!maker) return false;
    if (!second_[t.index]) run_again(*maker, phase);
    t = *second_[t.index];
    return true;
  }

  void run_again(OpId first, Phase phase) {
    Op op = graph_[first];
    for (TensorId& t : op.inputs) replace(t, phase);
    op.name = "second " + op.name;
    op.phase = phase;
    for (TensorId& t : op.outputs) t = copy_of(t);
    op.saved.clear();  // the backward that reads them is at hand
    belong_to(op, first);
    again_.emplace(first, id_at<OpId>(made_.ops.size()));
    made_.ops.push_back(std::move(op));
  }

  TensorId copy_of(TensorId t) {
    Tensor copy = graph_[t];
    copy.name = "second " + copy.name;
    copy.storage = id_at<StorageId>(made_.storages++);
    made_.tensors.push_back(std::move(copy));
    second_[t.index] = id_at<TensorId>(made_.tensors.size() - 1);
    return *second_[t.index];
  }

  void belong_to(Op& op, OpId forward) const {
    if (!attribute_of(op, "of")) op.attributes.emplace_back("of", graph_[forward].name);
  }

  void move_group(std::vector<OpId>& group, const std::vector<OpId>& place) const {
    std::vector<OpId> more;
    for (OpId& op : group) {
      if (const auto found = again_.find(op); found != again_.end()) more.push_back(found->second);
      op = place[op.index];
    }
    group.insert(group.end(), more.begin(), more.end());
  }

  /// The first run, without what only the backward reads of it.
  static void save_less(Op& op, const std::vector<bool>& is_read) {
    const std::vector<TensorId> saved = std::exchange(op.saved, {});
    for (const TensorId t : saved) {
      if (is_read[t.index]) {
        op.saved.push_back(t);
      } else {
        std::erase(op.outputs, t);
      }
    }
    if (saved.empty() || !op.saved.empty()) return;
    if (op.nograd_duration) op.duration = std::exchange(op.nograd_duration, std::nullopt);
    if (op.nograd_workspace) op.workspace = *std::exchange(op.nograd_workspace, std::nullopt);
  }

  const Graph& graph_;
  Graph made_;
  std::vector<std::optional<OpId>> makers_;      // by tensor: the op that runs again and makes it
  std::vector<std::optional<TensorId>> second_;  // by tensor: what the second run makes
  std::map<OpId, OpId> operator_of_;             // of a backward op: the forward
  std::map<OpId, OpId> again_;                   // by op: its second run, in made_
};

struct RecomputeOpsOptions {
  std::string ops = "score+softmax+dropout";
  std::string file;
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

/// By op: whether a line of the file is its name.
std::vector<bool> named_in(const std::string& file, const Graph& graph) {
  std::map<std::string_view, std::size_t> forward;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase == Phase::forward) forward.emplace(graph.ops[o].name, o);
  }
  std::vector<std::string_view> names;
  for (const auto& each : forward) names.push_back(each.first);
  std::vector<bool> named(graph.ops.size(), false);
  const std::string text = read_text_file(file);
  Complaints complaints(file, text);
  std::uint32_t line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    ++line;
    if (name.empty()) continue;
    if (const auto op = forward.find(name); op != forward.end()) {
      named[op->second] = true;
    } else {
      complaints.add({line, 1}, "",
                     fmt::format("no forward op of '{}' is called '{}'{}", graph.name, name, suggestion(name, names)));
    }
  }
  complaints.throw_if_any();
  return named;
}

/// By op: whether it is a forward op whose name matches.
std::vector<bool> named_like(std::string_view patterns, const Graph& graph) {
  std::vector<bool> named;
  for (const Op& op : graph.ops) named.push_back(op.phase == Phase::forward && matches(patterns, op.name));
  return named;
}

std::variant<Problem, std::string> recompute_ops(const Problem& problem, const RecomputeOpsOptions& options) {
  if (problem.chain) {
    return fmt::format("'{}' is a chain, whose ops are whole stages: 'selective' chooses among these",
                       problem.graph.name);
  }
  const std::vector<bool> runs_again =
      options.file.empty() ? named_like(options.ops, problem.graph) : named_in(options.file, problem.graph);
  if (std::ranges::count(runs_again, true) == 0) {
    if (!options.file.empty()) return fmt::format("'{}' names no op", options.file);
    return fmt::format("no forward op of '{}' is named like '{}'{}", problem.graph.name, options.ops,
                       suggestion(options.ops, last_parts(problem.graph)));
  }
  std::variant<Graph, std::string> made = with_recomputed_ops(problem.graph, runs_again);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  Problem changed = problem;
  changed.graph = std::get<Graph>(std::move(made));
  return changed;
}

constexpr auto recompute_ops_options = options_of<RecomputeOpsOptions>(
    option_of<&RecomputeOpsOptions::ops>({
        .name = "ops",
        .values = "patterns of names joined by '+'",
        .help = "which ops run again: whole names or parts of them between dots, with * and ?",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }),
    option_of<&RecomputeOpsOptions::file>({
        .name = "file",
        .values = "the path of a text file",
        .help = "the names of the ops that run again, one a line, in place of ops",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }));

}  // namespace

std::variant<Graph, std::string> with_recomputed_ops(const Graph& graph, const std::vector<bool>& runs_again) {
  const std::vector<bool> overwritten = overwritten_tensors(graph);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (!runs_again[o]) continue;
    if (std::optional<std::string> why = why_not_again(graph, op, overwritten)) return *std::move(why);
  }
  return Recomputing(graph, runs_again).run();
}

// The transform `recompute_ops`: some ops of the forward, by default the core of attentions, run again right before the
// backward that reads what they make, so that this does not wait. In a transformer of s positions, width h and a heads,
// a layer of b samples keeps 34 s b h bytes instead of 34 s b h + 5 a s^2 b, for 2 s^2 b h more operations (forward:
// 24 s b h^2 + 4 s^2 b h). Source: Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro, "Reducing activation
// recomputation in large transformer models", MLSys 2023, section 5 (selective activation recomputation).
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
