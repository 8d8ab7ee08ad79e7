#include "strategies/rematerialization/policies/full_recompute.h"

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"

namespace plimsoll {
namespace {

struct FullRecomputeOptions {
  RecomputeMethod method = RecomputeMethod::uniform;
  std::optional<std::size_t> layers = 1;
};

SequenceFamily full_recompute_family(const PartTask& task, const FullRecomputeOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const RecomputeMethod method = options.method;
  const bool any = !options.layers;
  const std::size_t least = any ? (method == RecomputeMethod::block ? 0 : 1) : *options.layers;
  return {.name = "full_recompute",
          .count = any ? std::max<std::size_t>(1, stages - least) : 1,
          .sequence = [stages, method, least](std::size_t k) {
            return segments_sequence(full_recompute_segments(stages, method, least + k));
          }};
}

}  // namespace

std::vector<Segment> full_recompute_segments(std::size_t stages, RecomputeMethod method, std::size_t layers) {
  const std::size_t all = stages - 1;
  const std::size_t recomputed = method == RecomputeMethod::block ? std::min(layers, all) : all;
  const std::size_t size = method == RecomputeMethod::block ? 1 : layers;
  std::vector<Segment> segments;
  for (std::size_t first = 0; first < recomputed; first += size) {
    segments.push_back({first, std::min(first + size, recomputed), true});
  }
  segments.push_back({recomputed, stages, false});
  return segments;
}

namespace {

constexpr auto full_recompute_options = options_of<FullRecomputeOptions>(
    option_of<&FullRecomputeOptions::method>({
        .name = "method",
        .words = "uniform block",
        .help = "uniform: recompute all layers, in groups of `layers`; block: recompute the first `layers` layers "
                "only, one by one",
    }),
    option_of<&FullRecomputeOptions::layers>({
        .name = "layers",
        .least = 1,
        .most = 1'000'000,
        .values = "auto or a whole number from 1",
        .help = "Megatron-LM's --recompute-num-layers: layers in a group (uniform), or layers that are recomputed "
                "(block); auto: the number that is the fastest within the budget",
    }));

std::vector<TapeOutcome> full_recompute_tapes(const PartTask& task, const FullRecomputeOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, full_recompute_family(task, options), budgets);
}

std::vector<Bytes> full_recompute_candidates(const PartTask& task, const FullRecomputeOptions& options) {
  return budgets_of_sequences(task, full_recompute_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo full_recompute_strategy{
    .name = "full_recompute",
    .family = Family::rematerialization,
    .summary = "recomputes every layer from its input, as Megatron-LM's full activation recomputation does",
    .source =
        "Megatron-LM, --recompute-granularity full; Korthikanti et al., 'Reducing Activation Recomputation in "
        "Large Transformer Models', 2022",
    .chains_only = true,
    .options = full_recompute_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<full_recompute_tapes>,
            .candidates = by_options<full_recompute_candidates>,
            .plans_parts = true,
        },
};

}  // namespace plimsoll
