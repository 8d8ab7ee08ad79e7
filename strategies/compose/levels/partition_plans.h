#pragma once
// What memory strategies make of one partition's parts within a budget of each device.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "strategies/compose/levels/planned_parts.h"
#include "strategies/compose/levels/work_conserving.h"
#include "strategies/compose/parts/part_tapes.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// Whether devices keep to a partition's order, or also what comes of it work-conserving is tried, of every choice of
/// tapes: it may be faster, and need less.
enum class Orders { fixed, or_work_conserving };

class PartitionPlans {
 public:
  /// Throws InputError where a strategy cannot treat a part.
  PartitionPlans(const Problem&, std::shared_ptr<const Partition>, std::span<const Pass> memory, Orders,
                 KnownPartTapes&);

  /// Of levels of memory, from the least that the strategies can do with to all they want, each device has the highest
  /// that fits: the budget, or without one, where devices have unequal memories, its own memory.
  PartsOutcome within(std::optional<Bytes> budget);

  /// Sooner known: tapes for the very budget, less what is beside them on a device of one part. Nothing where that does
  /// not fit, though levels may.
  std::optional<PlannedParts> close_to(std::optional<Bytes> budget);

  std::vector<Bytes> peaks_of_levels();

 private:
  /// The tapes of a part from the least memory to all that it wants: one a level, some of them the same.
  using LevelTapes = std::vector<PlannedTape>;

  PartTask task_of(std::size_t p) const;
  [[noreturn]] void refuse(std::string_view why) const;
  void plan_parts_alone();
  std::vector<TapeOutcome> tapes_within(std::size_t p, std::span<const std::optional<Bytes>> budgets);
  TapeOutcome tape_within(std::size_t p, std::optional<Bytes> budget);
  void fill_levels();
  LevelTapes tapes_at_levels(std::size_t p);
  const PlannedParts& simulated(const std::vector<std::size_t>& level);
  const PlannedParts& simulated_everywhere(std::size_t level);
  const PlannedParts& conserving_everywhere(std::size_t level);
  PlannedParts or_conserving(PlannedParts);
  Seconds least_makespan_of(std::size_t level);
  PlannedParts simulated(std::vector<Tape> tapes);
  std::optional<std::vector<Bytes>> limits(std::optional<Bytes> budget) const;
  std::vector<std::size_t> highest_levels(const std::vector<Bytes>& limits);
  std::vector<std::size_t> levels_between(std::size_t device, std::size_t low, std::size_t high) const;
  Bytes own_peaks(std::size_t device, std::size_t level) const;
  PlannedParts refined(PlannedParts made, const std::vector<std::size_t>& level, const std::vector<Bytes>& limits);

  const Problem& problem_;
  std::shared_ptr<const Partition> partition_;
  std::span<const Pass> memory_;
  Orders orders_;
  std::vector<Waiting> waiting_;  // by part
  KnownPartTapes& kept_;
  std::vector<std::vector<std::size_t>> parts_on_;     // by device
  std::vector<const PartTapes*> alone_;                // by part, where a pass does not plan parts itself
  std::vector<LevelTapes> tapes_;                      // by part
  std::vector<std::vector<std::size_t>> first_alike_;  // by part and level: the first level with the same tape
  std::vector<std::size_t> distinct_levels_;           // ascending: those with other tapes than the one before
  std::map<std::size_t, Seconds> least_makespans_;     // by level on all devices, once asked
  std::vector<Bytes> peaks_;                           // by device, of what was simulated last
  std::map<std::vector<std::size_t>, SimulatedParts> simulated_;  // by the first levels of parts with these tapes
  std::map<std::size_t, SimulatedParts> conserving_;              // by level on all devices, once asked
};

/// One for each partition.
class PlansByPartition {
 public:
  /// Throws InputError where compression finds nothing to pack in the whole model.
  PlansByPartition(const Problem&, std::span<const Pass> memory, Orders);

  PartitionPlans& of(const std::shared_ptr<const Partition>& partition) {
    return plans_.try_emplace(partition, problem_, partition, memory_, orders_, kept_).first->second;
  }

  /// Of a part by itself, of any partition.
  TapeOutcome tape_of(const PartTask&, const std::optional<Bytes>& budget);

  /// The least that there is a tape for; nothing where there is none at all.
  std::optional<Bytes> least_budget_of(const PartTask&);

 private:
  const Problem& problem_;
  std::span<const Pass> memory_;
  Orders orders_;
  KnownPartTapes kept_;
  std::map<std::shared_ptr<const Partition>, PartitionPlans> plans_;
};

}  // namespace plimsoll
