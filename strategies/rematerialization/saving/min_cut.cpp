#include "strategies/rematerialization/saving/min_cut.h"

#include <algorithm>
#include <array>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

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

}  // namespace

bool is_compute_intensive(std::string_view kind) {
  constexpr std::array<std::string_view, 8> kinds{"mm",     "bmm",         "addmm", "baddbmm",
                                                  "matmul", "convolution", "conv",  "linear"};
  return std::ranges::find(kinds, kind) != kinds.end() || kind.find("attention") != std::string_view::npos;
}

Banned banned_with_compute(const PartTask& task, const OpModel& model) {
  Banned banned = banned_anyway(model);
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    if (is_compute_intensive(task.problem.graph[model.ops[o].id].kind)) banned[o] = true;
  }
  return banned;
}

namespace {

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
  std::vector<Bytes> budgets = min_cut_plans(task, options).peaks();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo min_cut_strategy{
    .name = "min_cut",
    .family = Family::rematerialization,
    .summary = "saves the fewest bytes from which the inputs of the backward can be recomputed, by a minimum cut",
    .source = "PyTorch, torch/_functorch/partitioners.py: the min-cut recomputation partitioner",
    .options = min_cut_options,
    .kind = TapeStrategy{.tapes = by_options<min_cut_tapes>, .candidates = by_options<min_cut_candidates>},
};

}  // namespace plimsoll
