// The strategy `keep_first`: the first stages keep what they save, every later one is recomputed from its input, one by
// one. What is recomputed first is freed last, so that it pays to keep the first stages only where they save little.

#include <algorithm>
#include <cstddef>
#include <optional>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/checkpoint_segments.h"

namespace plimsoll {
namespace {

struct KeepFirstOptions {
  std::optional<std::size_t> stages;
};

/// Plan k keeps `least` + k stages. The last stage is the loss, whose backward comes at once: it is never recomputed.
SequenceFamily keep_first_family(const PartTask& task, const KeepFirstOptions& options) {
  const std::size_t stages = chain_part(task.problem, task.part()).chain.stages.size();
  const std::size_t least = options.stages.value_or(0);
  return {.name = "keep_first", .count = options.stages ? 1 : stages, .sequence = [stages, least](std::size_t k) {
            std::vector<bool> recomputed(stages, true);
            std::fill_n(recomputed.begin(), std::min(least + k, stages), false);
            recomputed.back() = false;
            return segments_sequence(segment_each(recomputed));
          }};
}

constexpr auto keep_first_options = options_of<KeepFirstOptions>(option_of<&KeepFirstOptions::stages>({
    .name = "stages",
    .least = 0,
    .most = 1'000'000,
    .help = "how many stages keep what they save; auto: the number that is the fastest within the budget",
}));

}  // namespace

extern constinit const StrategyInfo keep_first_strategy{
    .name = "keep_first",
    .family = Family::rematerialization,
    .summary = "keeps what the first stages save and recomputes every later one from its input",
    .source = "own, as an example",
    .chains_only = true,
    .options = keep_first_options,
    .kind = best_of_family<KeepFirstOptions, keep_first_family>(),
};

}  // namespace plimsoll
