#include "strategies/rematerialization/policies/full_recompute.h"

#include <algorithm>

#include "strategies/common/best_of_sequences.h"

namespace plimsoll {
namespace {

SequenceFamily full_recompute_family(const PartTask& task, const Options& options) {
  const std::size_t stages = chain_part(task.problem, task.partition.parts[task.part.index]).chain.stages.size();
  const RecomputeMethod method = options.text("method") == "block" ? RecomputeMethod::block : RecomputeMethod::uniform;
  const bool any = options.text("layers") == "auto";
  const std::size_t least =
      any ? (method == RecomputeMethod::block ? 0 : 1) : static_cast<std::size_t>(options.integer("layers"));
  return {.name = full_recompute_strategy.name,
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

std::vector<TapeOutcome> full_recompute_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, full_recompute_family(task, options), budgets);
}

std::vector<Bytes> full_recompute_candidates(const PartTask& task, const Options& options) {
  return budgets_of_sequences(task, full_recompute_family(task, options));
}

}  // namespace plimsoll
