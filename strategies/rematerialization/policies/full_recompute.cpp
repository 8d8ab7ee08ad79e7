#include "strategies/rematerialization/policies/full_recompute.h"

#include <algorithm>
#include <array>

#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"

namespace plimsoll {
namespace {

SequenceFamily full_recompute_family(const PartTask& task, const Options& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const RecomputeMethod method = options.text("method") == "block" ? RecomputeMethod::block : RecomputeMethod::uniform;
  const bool any = options.text("layers") == "auto";
  const std::size_t least =
      any ? (method == RecomputeMethod::block ? 0 : 1) : static_cast<std::size_t>(options.integer("layers"));
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

constexpr std::array full_recompute_options{
    OptionInfo{
        .name = "method",
        .default_value = "uniform",
        .values = "uniform or block",
        .help = "uniform: recompute all layers, in groups of `layers`; block: recompute the first `layers` layers "
                "only, one by one",
        .allowed = [](std::string_view text) { return text == "uniform" || text == "block"; },
    },
    OptionInfo{
        .name = "layers",
        .default_value = "1",
        .values = "auto or a whole number from 1",
        .help = "Megatron-LM's --recompute-num-layers: layers in a group (uniform), or layers that are recomputed "
                "(block); auto: the number that is the fastest within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
    }};

std::vector<TapeOutcome> full_recompute_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, full_recompute_family(task, options), budgets);
}

std::vector<Bytes> full_recompute_candidates(const PartTask& task, const Options& options) {
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
    .tapes = full_recompute_tapes,
    .candidates = full_recompute_candidates,
    .plans_parts = true,
};

}  // namespace plimsoll
