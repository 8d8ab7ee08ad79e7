// Offloading for convolutional networks, which singles out their heavy layers: `vdnn` and `superneurons`.

#include <algorithm>
#include <map>
#include <vector>

#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/rematerialization/saving/min_cut.h"

namespace plimsoll {
namespace {

// Which positions of a tape are the heavy layers that offloading for convolutional networks singles out.

bool is_conv_kind(std::string_view kind) {
  constexpr std::string_view backward = "_backward";
  return is_compute_intensive(kind.ends_with(backward) ? kind.substr(0, kind.size() - backward.size()) : kind);
}

/// By op of a graph; a backward is told by its kind or by the parameter that it reads.
std::vector<bool> conv_ops(const Graph& graph) {
  std::vector<bool> conv, weight(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    const auto reads_weight = [&](TensorId t) { return weight[t.index]; };
    conv.push_back(is_conv_kind(op.kind) || (is_backward(op.phase) && std::ranges::any_of(op.inputs, reads_weight)));
    if (!conv.back() || op.phase != Phase::forward) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) weight[t.index] = true;
    }
  }
  return conv;
}

/// Ops that convolve or multiply matrices, and backwards that read the parameters of such. In a chain: stages with
/// "conv" in their names, or all but the loss where no stage has.
std::vector<bool> conv_positions(const PartTask& task, const OffloadModel& model) {
  const Graph& graph = task.problem.graph;
  std::vector<bool> conv;
  if (!task.problem.chain) {
    const std::vector<bool> ops = conv_ops(graph);
    for (const Action& action : model.computes) conv.push_back(ops[action.op.index]);
    return conv;
  }
  const std::vector<Stage>& stages = task.problem.chain->stages;
  const auto named = [](const Stage& stage) { return stage.name.find("conv") != std::string::npos; };
  const bool any_named = std::ranges::any_of(stages, named);
  for (const Action& action : model.computes) {
    const std::size_t stage = graph[action.op].stage;
    conv.push_back(any_named ? named(stages[stage]) : stage + 1 < stages.size());
  }
  return conv;
}

enum class VdnnMode : std::uint8_t { fastest, all, conv };

struct VdnnOptions {
  VdnnMode mode = VdnnMode::fastest;
};

/// A layer's input leaves while the layer runs. What a layer makes for its own backward cannot leave before it is made:
/// it goes while the next layer runs.
OffloadMove leaving(const OffloadModel& model, std::uint32_t g) {
  const OffloadGap& gap = model.gaps[g];
  const bool is_input = gap.made < gap.from;
  return {.item = {g, {}, gap.bytes},
          .issue = is_input ? gap.from - 1 : gap.from,
          .gone = std::min(gap.from + (is_input ? 1U : 2U), gap.until),
          .back = gap.until,
          .copied = {},
          .arrived = {}};
}

/// While a backward runs, the values of the nearest layer before it that needs some come back, but none from beyond the
/// next convolution; the next backward waits for them.
void prefetch_ahead(const OffloadModel& model, const std::vector<bool>& conv, std::vector<OffloadMove>& moves) {
  std::map<std::uint32_t, std::vector<std::size_t>> of_layer;  // by the position that needs them: moves
  for (std::size_t m = 0; m < moves.size(); ++m) of_layer[model.gaps[moves[m].item.gap].until].push_back(m);
  for (std::uint32_t p = model.turn; p < model.positions() && !of_layer.empty(); ++p) {
    of_layer.erase(p);  // not there yet: fetched when it is needed
    const auto next = of_layer.upper_bound(p);
    if (next == of_layer.end()) return;
    const auto beyond = std::find(conv.begin() + p + 1, conv.end(), true) - conv.begin();
    if (next->first > beyond) continue;
    for (const std::size_t m : next->second) {
      moves[m].back = std::max(p, moves[m].gone);
      if (moves[m].back + 1 < next->first) moves[m].arrived = moves[m].back + 1;
    }
    of_layer.erase(next);
  }
}

std::vector<OffloadMove> vdnn_moves(const OffloadModel& model, const std::vector<bool>& conv, bool all) {
  std::vector<OffloadMove> moves;
  for (const std::uint32_t g : saved_gaps(model)) {
    if (all || conv[model.gaps[g].from]) moves.push_back(leaving(model, g));
  }
  std::ranges::stable_sort(moves, {}, &OffloadMove::issue);
  prefetch_ahead(model, conv, moves);
  return moves;
}

Plans vdnn_plans(const PartTask& task, const VdnnOptions& options, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return {{}, *why};
  const auto& model = std::get<OffloadModel>(made);
  const VdnnMode mode = options.mode;
  const std::vector<bool> conv = conv_positions(task, model);
  Front pool;
  if (mode == VdnnMode::fastest) pool.add(planned_moves(task, model, {}));
  for (const bool all : {false, true}) {
    if (!model.has_host || mode == (all ? VdnnMode::conv : VdnnMode::all)) continue;
    pool.add(planned_moves(task, model, vdnn_moves(model, conv, all)));
  }
  std::string none_fits = pool.empty() ? no_host(task) : "vdnn does not offload more";
  return {std::move(pool), std::move(none_fits)};
}

constexpr auto vdnn_options = options_of<VdnnOptions>(option_of<&VdnnOptions::mode>({
    .name = "mode",
    .words = "dyn all conv",
    .help = "layers whose inputs are offloaded: all; conv: layers that convolve or multiply matrices; dyn: none, conv "
            "or all, whichever is the fastest within the budget",
}));

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
                            Front& pool) {
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
class ConvSegments {
 public:
  ConvSegments(const PartTask& task, const OffloadModel& tape, const OpModel& model) : model_(model) {
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

Plans superneurons_plans(const PartTask& task, const SuperneuronsOptions& options, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return {{}, *why};
  const auto& model = std::get<OffloadModel>(made);
  Plans plans{{}, "no more than this can be offloaded or recomputed"};
  Front& pool = plans.front;
  const Recompute recompute = options.recompute;
  const std::optional<std::int64_t> levels = options.levels;
  const bool alone = before == nullptr;
  if (recompute == Recompute::off || recompute == Recompute::fastest || !alone)
    add_superneurons_plans(task, model, levels, pool);
  if (recompute == Recompute::off || !alone) return plans;
  const OpModel ops = op_model(task);
  const ConvSegments segments(task, model, ops);
  for (const Recompute mode : {Recompute::cost_aware, Recompute::speed, Recompute::memory}) {
    if (recompute != Recompute::fastest && recompute != mode) continue;
    const std::optional<OpSequence> sequence = segments.sequence(mode);
    if (!sequence) continue;
    const PlannedTape tape = planned_ops(task, *sequence);
    add_superneurons_plans(task, std::get<OffloadModel>(offload_model(task, &tape.tape)), levels, pool);
  }
  if (pool.empty()) add_superneurons_plans(task, model, levels, pool);
  return plans;
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

}  // namespace

// The strategy `vdnn`: while a layer's forward runs, its input leaves for the host; the next layer waits for that.
// While a layer's backward runs, the input of the next layer to need one comes back. Source: Rhu, Gimelshein, Clemons,
// Zulfiqar, Keckler, "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design",
// MICRO 2016.
extern constinit const StrategyInfo vdnn_strategy{
    .name = "vdnn",
    .family = Family::offloading,
    .summary = "offloads each layer's input during its forward and prefetches it one layer ahead of its backward",
    .source = "Rhu, Gimelshein, Clemons, Zulfiqar, Keckler, \"vDNN\", MICRO 2016",
    .options = vdnn_options,
    .kind = planned_at_once<VdnnOptions, vdnn_plans>(),
};

// The strategy `superneurons`: values die after their last use; what convolutions make is a cache on the device, from
// which the least recently made leave for the host; what the cheap layers between them make is computed again.
// Source: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: dynamic GPU memory management for training deep
// neural networks", PPoPP 2018.
extern constinit const StrategyInfo superneurons_strategy{
    .name = "superneurons",
    .family = Family::offloading,
    .summary =
        "offloads the outputs of convolutions, least recently used first, and recomputes the layers between them",
    .source = "Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, \"SuperNeurons\", PPoPP 2018",
    .options = superneurons_options,
    .kind = planned_at_once<SuperneuronsOptions, superneurons_plans>(),
};

}  // namespace plimsoll
