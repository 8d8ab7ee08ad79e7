#include "strategies/rematerialization/saving/min_cut.h"

#include <algorithm>
#include <cmath>

#include "sim/bound/max_flow.h"
#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t farthest = 100;

/// By value of the forward: ops from its maker to the nearest reader in the backward.
std::vector<std::uint32_t> distances(const OpModel& model) {
  std::vector<std::uint32_t> of_op(model.ops.size(), farthest), of_value(model.values.size(), farthest);
  const auto measure = [&](std::uint32_t v) {
    for (const std::uint32_t reader : model.values[v].readers) {
      of_value[v] = std::min(of_value[v], model.ops[reader].forward ? of_op[reader] : 1);
    }
  };
  for (std::size_t o = model.ops.size(); o-- > 0;) {
    if (!model.ops[o].forward) continue;
    std::uint32_t nearest = farthest;
    for (const std::uint32_t v : model.ops[o].ways.front().makes) {
      measure(v);
      nearest = std::min(nearest, of_value[v]);
    }
    of_op[o] = std::min(nearest + 1, farthest);
  }
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    if (!model.values[v].maker) measure(v);
  }
  return of_value;
}

bool of_forward(const OpModel& model, const ModelValue& value) {
  return !value.maker || model.ops[*value.maker].forward;
}

enum class MinCutBan : std::uint8_t { both, compute, none };

struct MinCutOptions {
  MinCutBan ban = MinCutBan::both;
  std::optional<std::size_t> row;
  bool by_distance = true;
};

PlanPool min_cut_plans(const PartTask& task, const MinCutOptions& options) {
  PlanPool pool(task);
  const OpModel model = op_model(task);
  const CutWeight weight = options.by_distance ? CutWeight::bytes_by_distance : CutWeight::bytes;
  const auto add_cut = [&](const Banned& banned, const Pinned& pinned) {
    const Evicted evicted = evicted_by_min_cut(model, banned, weight, pinned);
    if (const std::optional<OpSequence> sequence = recompute_order(model, evicted)) pool.add(*sequence);
  };
  const auto add = [&](const Banned& banned) {
    if (options.row) {
      return add_cut(banned, pinned_after(model, banned, *options.row));
    }
    for (std::size_t row = 1;; row *= 2) {
      const Pinned pinned = pinned_after(model, banned, row);
      add_cut(banned, pinned);
      if (std::ranges::find(pinned, true) == pinned.end()) return;
    }
  };
  if (options.ban != MinCutBan::none) add(banned_with_compute(task, model));
  if (options.ban != MinCutBan::compute) add(banned_anyway(model));
  if (options.ban == MinCutBan::both || pool.empty()) pool.add(store_all_ops(task));
  return pool;
}

constexpr auto min_cut_options = options_of<MinCutOptions>(
    option_of<&MinCutOptions::ban>({
        .name = "ban",
        .words = "auto compute none",
        .help = "ops that are never recomputed: compute: matrix products, convolutions and attention, as in PyTorch; "
                "none: every op may be recomputed; auto: compute, none or saving everything, whichever is the fastest "
                "within the budget",
    }),
    option_of<&MinCutOptions::row>({
        .name = "row",
        .least = 1,
        .most = 1'000'000,
        .help = "longest row of ops that is recomputed before a value is saved (PyTorch: about 100 small ops); auto: "
                "1, 2, 4, ... or no limit, whichever is the fastest within the budget",
    }),
    option_of<&MinCutOptions::by_distance>({
        .name = "distance",
        .words = "off on",
        .values = "on or off",
        .help = "on: the bytes of a value count 1.1 times more for every op between it and its reader in the backward, "
                "as in PyTorch; off: bytes only",
    }));

std::vector<TapeOutcome> min_cut_tapes(const PartTask& task, const MinCutOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return or_plain_training(task, budgets, min_cut_plans(task, options).outcomes(budgets, "the cut saves more"));
}

std::vector<Bytes> min_cut_candidates(const PartTask& task, const MinCutOptions& options) {
  std::vector<Bytes> budgets = min_cut_plans(task, options).budgets();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

Banned banned_anyway(const OpModel& model) {
  Banned banned(model.ops.size(), false);
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    const ModelOp& op = model.ops[o];
    banned[o] = op.once || !op.forward || std::ranges::any_of(op.ways.front().makes, [&](std::uint32_t v) {
                  return model.in_storage[model.values[v].storage].size() > 1;
                });
  }
  return banned;
}

Pinned pinned_after(const OpModel& model, const Banned& banned, std::size_t longest) {
  Pinned pinned(model.values.size(), false);
  std::vector<std::size_t> row(model.values.size(), 0);  // ops in a row that make the value from what is saved
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    const ModelOp& op = model.ops[o];
    if (!op.forward || banned[o]) continue;
    std::size_t longest_input = 0;
    for (const std::uint32_t v : op.reads) longest_input = std::max(longest_input, row[v]);
    for (const std::uint32_t v : op.ways.front().makes) {
      row[v] = longest_input + 1;
      const auto forward = [&](std::uint32_t reader) { return model.ops[reader].forward; };
      pinned[v] = row[v] >= longest && std::ranges::any_of(model.values[v].readers, forward);
      if (pinned[v]) row[v] = 0;
    }
  }
  return pinned;
}

// Nodes: source, sink, ops, and two a value, between which it is cut if it is saved.
Evicted evicted_by_min_cut(const OpModel& model, const Banned& banned, CutWeight weight, const Pinned& pinned) {
  EXPECTS(banned.size() == model.ops.size());
  EXPECTS(pinned.empty() || pinned.size() == model.values.size());
  constexpr std::size_t source = 0, sink = 1, first_op = 2;
  const std::size_t first_value = first_op + model.ops.size();
  const auto made = [&](std::uint32_t v) { return first_value + std::size_t{2} * v; };
  const auto kept = [&](std::uint32_t v) { return made(v) + 1; };
  FlowGraph network(first_value + 2 * model.values.size());
  const std::vector<std::uint32_t> distance = distances(model);
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!of_forward(model, value)) continue;
    const double far = weight == CutWeight::bytes ? 1 : std::pow(1.1, distance[v]);
    network.edge(made(v), kept(v), static_cast<double>(model.storages[value.storage].count) * far);
    network.edge(value.maker ? first_op + *value.maker : source, made(v), FlowGraph::unlimited);
    if (!pinned.empty() && pinned[v]) network.edge(source, made(v), FlowGraph::unlimited);
    bool needed = false;
    for (const std::uint32_t reader : value.readers) {
      if (model.ops[reader].forward) {
        network.edge(kept(v), first_op + reader, FlowGraph::unlimited);
      } else if (!std::exchange(needed, true)) {
        network.edge(kept(v), sink, FlowGraph::unlimited);
      }
    }
  }
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    if (banned[o] && model.ops[o].forward) network.edge(source, first_op + o, FlowGraph::unlimited);
  }
  const std::vector<bool> reached = network.cut(source, sink).source_side;
  Evicted evicted(model.values.size(), false);
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    evicted[v] = of_forward(model, model.values[v]) && !(reached[made(v)] && !reached[kept(v)]);
  }
  return evicted;
}

bool is_compute_intensive(std::string_view name) {
  const std::optional<OpKind> kind = nearest_kind(name);
  return kind && row_of(*kind).work == OpWork::heavy;
}

Banned banned_with_compute(const PartTask& task, const OpModel& model) {
  Banned banned = banned_anyway(model);
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    if (is_compute_intensive(task.problem.graph[model.ops[o].id].kind)) banned[o] = true;
  }
  return banned;
}

extern constinit const StrategyInfo min_cut_strategy{
    .name = "min_cut",
    .family = Family::rematerialization,
    .summary = "saves the fewest bytes from which the inputs of the backward can be recomputed, by a minimum cut",
    .source = "PyTorch, torch/_functorch/partitioners.py: the min-cut recomputation partitioner",
    .options = min_cut_options,
    .kind = TapeStrategy{.tapes = by_options<min_cut_tapes>, .candidates = by_options<min_cut_candidates>},
};

}  // namespace plimsoll
