// The strategy `superneurons`: values die after their last use; what convolutions make is a cache on the device, from
// which the least recently made leave for the host; what the cheap layers between them make is computed again.
// Source: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: dynamic GPU memory management for training deep
// neural networks", PPoPP 2018.

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/conv_layers.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {
namespace {

enum class Recompute : std::uint8_t { fastest, cost_aware, speed, memory, off };

struct SuperneuronsOptions : OffloadOptions {
  Recompute recompute = Recompute::fastest;
};

/// The prefetch of a value begins with the backward of the convolution before the one that needs it.
std::vector<std::uint32_t> at_convolution_before(const OffloadModel& model, const std::vector<bool>& conv,
                                                 std::span<const OffloadItem> items) {
  std::vector<std::uint32_t> positions;
  for (const OffloadItem& item : items) {
    std::uint32_t p = model.gaps[item.gap].until;
    while (p > model.turn && !conv[p - 1]) --p;
    positions.push_back(p > model.turn ? p - 1 : p);
  }
  return positions;
}

/// From a tape: at each level of memory what convolutions made leaves in the order in which it was made, no more than
/// must.
void add_superneurons_plans(const PartTask& task, const OffloadModel& model, std::optional<std::int64_t> levels,
                            TapePool& pool) {
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return;
  const std::vector<bool> conv = conv_positions(task, model);
  std::vector<OffloadItem> items;
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    if (conv[gap.made] && gap.holds_positions()) items.push_back({g, {}, gap.bytes});
  }
  const Selection selection = select_items(model, std::move(items), SelectionRule::first_made);
  for (const Bytes budget : memory_levels(selection.peaks.back(), selection.peaks.front(), levels, model.positions())) {
    std::vector<OffloadItem> chosen(selection.items.begin(),
                                    selection.items.begin() + static_cast<std::ptrdiff_t>(*selection.needed(budget)));
    std::ranges::stable_sort(chosen, {}, &OffloadItem::gap);
    const std::vector<std::uint32_t> wanted = at_convolution_before(model, conv, chosen);
    if (const std::optional<PlacedCopies> made = placed_items(model, chosen, budget, wanted)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
}

/// What the layers between convolutions make goes, and of segments that are forgotten it goes again after each use.
class Segments {
 public:
  Segments(const PartTask& task, const OffloadModel& tape, const OpModel& model) : model_(model) {
    const std::vector<bool> conv = conv_positions(task, tape);
    bool open = false;
    for (std::size_t o = 0; o <= last_forward(model); ++o) {
      if (conv[o]) {
        open = false;
        continue;
      }
      if (!open) segments_.emplace_back();
      open = true;
      for (const std::uint32_t v : model.ops[o].ways.front().makes) {
        if (can_evict(model, v) && model.in_storage[model.values[v].storage].size() == 1) segments_.back().push_back(v);
      }
    }
    for (const ModelOp& op : model.ops) largest_layer_ = std::max(largest_layer_, layer(op));
  }

  std::optional<OpSequence> sequence(Recompute mode) const {
    Evicted evicted(model_.values.size(), false), forgotten = evicted;
    for (const std::vector<std::uint32_t>& segment : segments_) {
      Bytes kept;
      for (const std::uint32_t v : segment) kept += model_.storages[model_.values[v].storage];
      const bool fits = mode == Recompute::speed || (mode == Recompute::cost_aware && kept <= largest_layer_);
      for (const std::uint32_t v : segment) {
        evicted[v] = true;
        forgotten[v] = !fits;
      }
    }
    return recompute_order(model_, evicted, forgotten);
  }

 private:
  Bytes layer(const ModelOp& op) const {
    Bytes bytes = op.ways.front().workspace;
    for (const std::uint32_t v : op.reads) bytes += model_.storages[model_.values[v].storage];
    for (const std::uint32_t v : op.ways.front().makes) bytes += model_.storages[model_.values[v].storage];
    return bytes;
  }

  const OpModel& model_;
  std::vector<std::vector<std::uint32_t>> segments_;  // values
  Bytes largest_layer_;
};

TapePool superneurons_plans(const PartTask& task, const SuperneuronsOptions& options, const Tape* before,
                            const OffloadModel& model) {
  TapePool pool;
  const Recompute recompute = options.recompute;
  const std::optional<std::int64_t> levels = options.levels;
  const bool alone = before == nullptr;
  if (recompute == Recompute::off || recompute == Recompute::fastest || !alone)
    add_superneurons_plans(task, model, levels, pool);
  if (recompute == Recompute::off || !alone) return pool;
  const OpModel ops = op_model(task);
  const Segments segments(task, model, ops);
  for (const Recompute mode : {Recompute::cost_aware, Recompute::speed, Recompute::memory}) {
    if (recompute != Recompute::fastest && recompute != mode) continue;
    const std::optional<OpSequence> sequence = segments.sequence(mode);
    if (!sequence) continue;
    const PlannedTape tape = planned_ops(task, *sequence);
    add_superneurons_plans(task, std::get<OffloadModel>(offload_model(task, &tape.tape)), levels, pool);
  }
  if (pool.empty()) add_superneurons_plans(task, model, levels, pool);
  return pool;
}

constexpr auto superneurons_options = options_of<SuperneuronsOptions>(
    option_of<&SuperneuronsOptions::recompute>({
        .name = "recompute",
        .words = "auto cost_aware speed memory off",
        .help = "how the layers between convolutions are recomputed: speed: once for the segment, then kept; memory: "
                "anew for each backward; cost_aware: speed where the segment is no larger than the largest layer, else "
                "memory; off: not at all; auto: whichever is the fastest within the budget",
    }),
    levels_option);

std::vector<TapeOutcome> superneurons_tapes(const PartTask& task, const SuperneuronsOptions& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&model)) return refused(*why, budgets);
  return superneurons_plans(task, options, before, std::get<OffloadModel>(model))
      .outcomes(budgets, "no more than this can be offloaded or recomputed");
}

std::vector<Bytes> superneurons_candidates(const PartTask& task, const SuperneuronsOptions& options) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(model)) return {};
  return superneurons_plans(task, options, nullptr, std::get<OffloadModel>(model)).peaks();
}

}  // namespace

extern constinit const StrategyInfo superneurons_strategy{
    .name = "superneurons",
    .family = Family::offloading,
    .summary =
        "offloads the outputs of convolutions, least recently used first, and recomputes the layers between them",
    .source = "Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, \"SuperNeurons\", PPoPP 2018",
    .options = superneurons_options,
    .kind = TapeStrategy{.tapes = by_options<superneurons_tapes>, .candidates = by_options<superneurons_candidates>},
};

}  // namespace plimsoll
