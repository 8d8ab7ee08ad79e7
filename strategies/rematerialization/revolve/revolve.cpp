#include "strategies/rematerialization/revolve/revolve.h"

#include <algorithm>
#include <memory>

#include "strategies/common/best_of_sequences.h"
#include "strategies/rematerialization/revolve/revolve_schedule.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_slots = 1000;

SequenceFamily revolve_family(const PartTask& task, const Options& options) {
  const std::size_t stages = chain_part(task.problem, task.partition.parts[task.part.index]).chain.stages.size();
  const std::size_t useful = std::min(stages, most_slots);
  const bool any = options.text("slots") == "auto";
  const std::size_t slots = any ? useful : std::min(useful, static_cast<std::size_t>(options.integer("slots")));
  const auto schedule = std::make_shared<const RevolveSchedule>(stages, slots);
  return {.name = revolve_strategy.name, .count = any ? slots : 1, .sequence = [schedule, any, slots](std::size_t k) {
            return schedule->sequence(any ? k + 1 : slots);
          }};
}

}  // namespace

std::vector<TapeOutcome> revolve_tapes(const PartTask& task, const Options& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, revolve_family(task, options), budgets);
}

std::vector<Bytes> revolve_candidates(const PartTask& task, const Options& options) {
  return budgets_of_sequences(task, revolve_family(task, options));
}

}  // namespace plimsoll
