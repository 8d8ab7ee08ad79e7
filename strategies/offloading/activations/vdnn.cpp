// The strategy `vdnn`: while a layer's forward runs, its input leaves for the host; the next layer waits for that.
// While a layer's backward runs, the input of the next layer to need one comes back. Source: Rhu, Gimelshein, Clemons,
// Zulfiqar, Keckler, "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design",
// MICRO 2016.

#include <algorithm>
#include <map>

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/conv_layers.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {
namespace {

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

TapePool vdnn_plans(const PartTask& task, const OffloadModel& model, VdnnMode mode) {
  const std::vector<bool> conv = conv_positions(task, model);
  TapePool pool;
  if (mode == VdnnMode::fastest) pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  if (mode != VdnnMode::all) pool.add(planned_moves(task, model, vdnn_moves(model, conv, false)));
  if (mode != VdnnMode::conv) pool.add(planned_moves(task, model, vdnn_moves(model, conv, true)));
  return pool;
}

constexpr auto vdnn_options = options_of<VdnnOptions>(option_of<&VdnnOptions::mode>({
    .name = "mode",
    .words = "dyn all conv",
    .help = "layers whose inputs are offloaded: all; conv: layers that convolve or multiply matrices; dyn: none, conv "
            "or all, whichever is the fastest within the budget",
}));

std::vector<TapeOutcome> vdnn_tapes(const PartTask& task, const VdnnOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&model)) return refused(*why, budgets);
  const TapePool pool = vdnn_plans(task, std::get<OffloadModel>(model), options.mode);
  if (pool.empty()) return refused(no_host(task), budgets);
  return pool.outcomes(budgets, "vdnn does not offload more");
}

std::vector<Bytes> vdnn_candidates(const PartTask& task, const VdnnOptions& options) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(model)) return {};
  return vdnn_plans(task, std::get<OffloadModel>(model), options.mode).peaks();
}

}  // namespace

extern constinit const StrategyInfo vdnn_strategy{
    .name = "vdnn",
    .family = Family::offloading,
    .summary = "offloads each layer's input during its forward and prefetches it one layer ahead of its backward",
    .source = "Rhu, Gimelshein, Clemons, Zulfiqar, Keckler, \"vDNN\", MICRO 2016",
    .options = vdnn_options,
    .kind = TapeStrategy{.tapes = by_options<vdnn_tapes>, .candidates = by_options<vdnn_candidates>},
};

}  // namespace plimsoll
