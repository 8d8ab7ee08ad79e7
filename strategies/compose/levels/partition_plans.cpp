#include "strategies/compose/levels/partition_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "sim/model/same_tape.h"
#include "strategies/api/front.h"
#include "strategies/compose/levels/least_makespan.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/pipelining/turns_away.h"

namespace plimsoll {
namespace {

constexpr std::size_t levels = 17;

/// A part may have nothing to pack where others have; that nothing of the model can be is refused as on one device.
void ask_compression_about_all(const Problem& problem, std::span<const Pass> memory) {
  for (const Pass& pass : memory) {
    if (pass.strategy->family != Family::compression) continue;
    judge(problem, memory);
    Problem once = problem;
    once.micro_batches = 1;
    const Partition whole = one_device(once.graph, once.micro_batches, once.platform.devices.size());
    const std::optional<Bytes> unlimited;
    pass.strategy->tapes({once, whole, PartId{0}}, pass.options, std::span(&unlimited, 1), nullptr);
  }
}

/// By device.
bool fit(const std::vector<Bytes>& peaks, const std::vector<Bytes>& limits) {
  return std::ranges::equal(peaks, limits, std::ranges::less_equal{});
}

/// The least budget for which there is a tape: what the strategy says, else to 1/512 of the most.
Bytes least_budget(const std::function<TapeOutcome(Bytes)>& tape_within, Bytes most) {
  const TapeOutcome none = tape_within(Bytes{0});
  if (const PlannedTape* tape = std::get_if<PlannedTape>(&none)) return tape->peak;
  if (const std::optional<Bytes> smallest = std::get<Infeasible>(none).smallest) return std::min(*smallest, most);
  Bytes below{0}, enough = most;
  for (const Bytes close{most.count / 512}; enough - below > close && enough - below > Bytes{1};) {
    const Bytes middle{below.count + (enough - below).count / 2};
    (std::holds_alternative<PlannedTape>(tape_within(middle)) ? enough : below) = middle;
  }
  return enough;
}

/// By more than the rounding of sums.
bool is_longer(Seconds a, Seconds b) {
  return a.value > b.value * (1 + model_tolerance);
}

}  // namespace

PlansByPartition::PlansByPartition(const Problem& problem, std::span<const Pass> memory, Orders orders)
    : problem_(problem), memory_(memory), orders_(orders), kept_(memory) {
  ask_compression_about_all(problem, memory);
}

PartitionPlans::PartitionPlans(const Problem& problem, std::shared_ptr<const Partition> partition,
                               std::span<const Pass> memory, Orders orders, KnownPartTapes& kept)
    : problem_(problem),
      partition_(std::move(partition)),
      memory_(memory),
      orders_(orders),
      waiting_(waiting_in(*partition_)),
      kept_(kept),
      parts_on_(partition_->order.size()) {
  judge(problem, memory);
  for (std::size_t p = 0; p < partition_->parts.size(); ++p) {
    parts_on_[partition_->parts[p].device.index].push_back(p);
  }
}

PartsOutcome PartitionPlans::within(std::optional<Bytes> budget) {
  fill_levels();
  const std::optional<std::vector<Bytes>> most = limits(budget);
  Bytes smallest = simulated_everywhere(levels - 1).peak;
  std::optional<PlannedParts> mixed;
  if (most && !fit(peaks_, *most)) {
    const std::vector<std::size_t> level = highest_levels(*most);
    PlannedParts made = simulated(level);
    made = or_conserving(refined(std::move(made), level, *most));
    if (fit(peaks_, *most)) mixed = std::move(made);
  }
  std::optional<Seconds> fastest;
  if (mixed) fastest = mixed->makespan;
  const PlannedParts* best = nullptr;
  for (std::size_t l = distinct_levels_.size(); l-- > 0;) {
    // Of the fixed order.
    const bool may_be_faster = orders_ == Orders::or_work_conserving || !fastest ||
                               !is_longer(least_makespan_of(distinct_levels_[l]), *fastest);
    if (!may_be_faster) continue;
    const PlannedParts& made = conserving_everywhere(distinct_levels_[l]);
    smallest = std::min(smallest, made.peak);
    if (most && !fit(peaks_, *most)) continue;
    if (best == nullptr || made.makespan <= best->makespan) best = &made;
    fastest = std::min(fastest.value_or(made.makespan), made.makespan);
  }
  if (mixed && (best == nullptr || mixed->makespan < best->makespan)) return *std::move(mixed);
  if (best != nullptr) return *best;
  if (budget) return Infeasible{"no level of memory that was tried fits every device", smallest, false};
  return Infeasible{"no level of memory that was tried fits the memory of each device", {}};
}

/// By device; nothing where there is none.
std::optional<std::vector<Bytes>> PartitionPlans::limits(std::optional<Bytes> budget) const {
  const Platform& platform = problem_.platform;
  if (budget) return std::vector(platform.devices.size(), *budget);
  const auto capacity_of = [&](const Device& device) { return platform[device.memory].capacity; };
  if (std::ranges::adjacent_find(platform.devices, std::ranges::not_equal_to{}, capacity_of) ==
      platform.devices.end()) {
    return std::nullopt;
  }
  std::vector<Bytes> own;
  for (const Device& device : platform.devices) own.push_back(capacity_of(device).value_or(largest_bytes));
  return own;
}

std::optional<PlannedParts> PartitionPlans::close_to(std::optional<Bytes> budget) {
  const std::optional<std::vector<Bytes>> most = limits(budget);
  std::vector<Bytes> beside(partition_->parts.size());
  constexpr int tries = 3;
  for (int k = 0; k < tries; ++k) {
    std::vector<Tape> tapes;
    std::vector<Bytes> own;
    for (std::size_t p = 0; p < beside.size(); ++p) {
      const std::size_t d = partition_->parts[p].device.index;
      const TapeOutcome outcome = tape_within(p, most ? std::optional((*most)[d] - beside[p]) : std::nullopt);
      const PlannedTape* tape = std::get_if<PlannedTape>(&outcome);
      if (tape == nullptr) return std::nullopt;
      tapes.push_back(tape->tape);
      own.push_back(tape->peak);
    }
    PlannedParts made = or_conserving(simulated(std::move(tapes)));
    if (!most || fit(peaks_, *most)) return made;
    for (std::size_t p = 0; p < beside.size(); ++p) {
      beside[p] = std::max(beside[p], peaks_[partition_->parts[p].device.index] - own[p]);
    }
  }
  return std::nullopt;
}

std::vector<Bytes> PartitionPlans::peaks_of_levels() {
  fill_levels();
  std::vector<Bytes> peaks;
  for (const std::size_t level : distinct_levels_) peaks.push_back(conserving_everywhere(level).peak);
  return peaks;
}

PartTask PartitionPlans::task_of(std::size_t p) const {
  return {problem_, *partition_, id_at<PartId>(p), waiting_[p].in_flight, waiting_[p].weights};
}

void PartitionPlans::refuse(std::string_view why) const {
  throw InputError(fmt::format("'{}' in a part of a pipeline: {}", memory_.back().strategy->name, why));
}

/// Once: these do not depend on the budget.
void PartitionPlans::plan_parts_alone() {
  if (!alone_.empty()) return;
  for (std::size_t p = 0; p < partition_->parts.size(); ++p) {
    if (partition_->parts[p].waits_at) refuse("its micro-batches' values leave the device by the pipeline's order");
    const auto& made = kept_.of(task_of(p));
    if (const std::string* why = std::get_if<std::string>(&made)) refuse(*why);
    alone_.push_back(&std::get<PartTapes>(made));
  }
  const auto needs_updates = [](const Pass& pass) { return pass.strategy->needs_updates; };
  const auto has_updates = [](const PartTapes* plans) { return plans->has_updates; };
  if (std::ranges::any_of(memory_, needs_updates) && std::ranges::none_of(alone_, has_updates)) {
    refuse("every parameter is on several devices, and is updated where its gradients are summed");
  }
}

std::vector<TapeOutcome> PartitionPlans::tapes_within(std::size_t p, std::span<const std::optional<Bytes>> budgets) {
  if (plan_parts_themselves(memory_)) return tapes_of_passes(task_of(p), memory_, budgets);
  plan_parts_alone();
  return alone_[p]->outcomes(budgets);
}

TapeOutcome PartitionPlans::tape_within(std::size_t p, std::optional<Bytes> budget) {
  return std::move(tapes_within(p, std::span(&budget, 1)).front());
}

/// Once.
void PartitionPlans::fill_levels() {
  if (!distinct_levels_.empty()) return;
  for (std::size_t p = 0; p < partition_->parts.size(); ++p) {
    const LevelTapes& tapes = tapes_.emplace_back(tapes_at_levels(p));
    std::vector<std::size_t>& first = first_alike_.emplace_back();
    for (std::size_t level = 0; level < levels; ++level) {
      const bool is_as_before = level > 0 && same(tapes[level].tape, tapes[level - 1].tape);
      first.push_back(is_as_before ? first.back() : level);
    }
  }
  for (std::size_t level = 0; level < levels; ++level) {
    const auto is_as_before = [&](const std::vector<std::size_t>& first) { return first[level] != level; };
    if (!std::ranges::all_of(first_alike_, is_as_before)) distinct_levels_.push_back(level);
  }
}

PartitionPlans::LevelTapes PartitionPlans::tapes_at_levels(std::size_t p) {
  TapeOutcome outcome = tape_within(p, std::nullopt);
  if (const Infeasible* why = std::get_if<Infeasible>(&outcome)) refuse(why->reason);
  auto& all = std::get<PlannedTape>(outcome);
  const Bytes least = least_budget([&](Bytes budget) { return tape_within(p, budget); }, all.peak);
  const std::vector<Bytes> between = budgets_between(least, all.peak, levels - 1);
  const std::vector<std::optional<Bytes>> budgets(between.begin(), between.end());
  LevelTapes tapes;
  if (least < all.peak) {
    for (TapeOutcome& each : tapes_within(p, budgets)) {
      PlannedTape* tape = std::get_if<PlannedTape>(&each);
      if (tape != nullptr) {
        tapes.push_back(std::move(*tape));
      } else if (!tapes.empty()) {  // a search that found nothing here
        tapes.push_back(tapes.back());
      }
    }
  }
  tapes.push_back(std::move(all));
  const PlannedTape first = tapes.front();
  tapes.insert(tapes.begin(), levels - tapes.size(), first);
  return tapes;
}

/// The parts' tapes at the levels of their devices, on their device together with the others.
const PlannedParts& PartitionPlans::simulated(const std::vector<std::size_t>& level) {
  std::vector<std::size_t> key;
  for (std::size_t p = 0; p < tapes_.size(); ++p) {
    key.push_back(first_alike_[p][level[partition_->parts[p].device.index]]);
  }
  const auto known = simulated_.find(key);
  if (known != simulated_.end()) {
    peaks_ = known->second.peaks;
    return known->second.made;
  }
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < tapes_.size(); ++p) tapes.push_back(tapes_[p][key[p]].tape);
  PlannedParts made = simulated(std::move(tapes));
  return simulated_.emplace(std::move(key), SimulatedParts{std::move(made), peaks_}).first->second.made;
}

const PlannedParts& PartitionPlans::simulated_everywhere(std::size_t level) {
  return simulated(std::vector(partition_->order.size(), level));
}

const PlannedParts& PartitionPlans::conserving_everywhere(std::size_t level) {
  const PlannedParts& fixed = simulated_everywhere(level);
  if (orders_ == Orders::fixed) return fixed;
  const auto known = conserving_.find(level);
  const SimulatedParts& parts =
      known != conserving_.end()
          ? known->second
          : conserving_.emplace(level, or_work_conserving(problem_, {fixed, peaks_})).first->second;
  peaks_ = parts.peaks;
  return parts.made;
}

/// Of what was simulated last.
PlannedParts PartitionPlans::or_conserving(PlannedParts fixed) {
  if (orders_ == Orders::fixed) return fixed;
  SimulatedParts parts = or_work_conserving(problem_, {std::move(fixed), peaks_});
  peaks_ = std::move(parts.peaks);
  return std::move(parts.made);
}

Seconds PartitionPlans::least_makespan_of(std::size_t level) {
  const auto [known, is_new] = least_makespans_.try_emplace(level);
  if (is_new) {
    std::vector<Tape> tapes;
    for (std::size_t p = 0; p < tapes_.size(); ++p) tapes.push_back(tapes_[p][first_alike_[p][level]].tape);
    known->second = least_makespan(problem_, *partition_, tapes);
  }
  return known->second;
}

PlannedParts PartitionPlans::simulated(std::vector<Tape> tapes) {
  for (std::size_t p = 0; p < tapes.size(); ++p) {
    const bool may_leave = partition_->parts[p].waits_at && !has_piece(tapes[p], PieceName::leave);
    if (may_leave) tapes[p] = with_absence(problem_, *partition_, id_at<PartId>(p), tapes[p]);
  }
  const auto arrives = [](const Tape& tape) { return has_piece(tape, PieceName::arrive); };
  std::shared_ptr<const Partition> partition = partition_;
  if (std::ranges::any_of(tapes, arrives)) {
    partition = std::make_shared<const Partition>(with_arrivals(problem_, *partition_, tapes));
  }
  PlannedParts made{std::move(partition), std::move(tapes), {}, {}, {}};
  const Schedule schedule = plan_of(problem_, made, std::nullopt).schedule;
  const Timeline timeline = simulate_event(schedule, problem_.platform);
  peaks_.clear();
  for (const Device& device : problem_.platform.devices) {
    peaks_.push_back(timeline.peaks[device.memory.index].bytes);
    made.peak = std::max(made.peak, peaks_.back());
  }
  made.makespan = timeline.makespan;
  EXPECTS(!is_longer(least_makespan(problem_, *made.partition, made.tapes), made.makespan));
  made.note = partition_->note;
  return made;
}

/// On all devices at once, since what one of them keeps hardly changes what another one needs: from all that they want
/// to the level at which the parts' own peaks say that a device fits, and from there up or down.
std::vector<std::size_t> PartitionPlans::highest_levels(const std::vector<Bytes>& limits) {
  constexpr std::size_t guesses = 4;
  std::vector<std::size_t> fits(partition_->order.size(), 0), too_high(fits.size(), levels), tried = fits;
  for (std::size_t d = 0; d < fits.size(); ++d) {
    const std::vector<std::size_t> all = levels_between(d, 0, levels);
    if (!all.empty()) tried[d] = all.back();
  }
  for (std::size_t round = 0;; ++round) {
    simulated(tried);
    bool is_known = true;
    for (std::size_t d = 0; d < fits.size(); ++d) {
      (peaks_[d] <= limits[d] ? fits[d] : too_high[d]) = tried[d];
      const std::vector<std::size_t> between = levels_between(d, fits[d], too_high[d]);
      is_known &= between.empty();
      if (between.empty()) {
        tried[d] = fits[d];
      } else if (round >= guesses) {
        tried[d] = between[between.size() / 2];
      } else {
        const auto is_over = [&](std::size_t level) {
          return peaks_[d] + own_peaks(d, level) > limits[d] + own_peaks(d, tried[d]);
        };
        const auto over = std::ranges::partition_point(between, std::not_fn(is_over));
        tried[d] = over == between.begin() ? between.front() : *(over - 1);
      }
    }
    if (is_known) return fits;
  }
}

/// With other tapes for the device than at the first one, ascending; of levels with the same tapes the first.
std::vector<std::size_t> PartitionPlans::levels_between(std::size_t device, std::size_t low, std::size_t high) const {
  std::vector<std::size_t> between;
  for (std::size_t level = low + 1; level < high; ++level) {
    const auto is_new = [&](std::size_t p) { return first_alike_[p][level] == level; };
    if (std::ranges::any_of(parts_on_[device], is_new)) between.push_back(level);
  }
  return between;
}

/// Of the device's parts, each by itself.
Bytes PartitionPlans::own_peaks(std::size_t device, std::size_t level) const {
  Bytes sum;
  for (const std::size_t p : parts_on_[device]) sum += tapes_[p][level].peak;
  return sum;
}

/// Where a device has one part, a tape for the very budget, less what is on its way to it, may be faster than a
/// level's.
PlannedParts PartitionPlans::refined(PlannedParts made, const std::vector<std::size_t>& level,
                                     const std::vector<Bytes>& limits) {
  const std::vector<Bytes> peaks = peaks_;
  std::vector<Tape> tapes = made.tapes;
  bool has_other = false;
  for (std::size_t p = 0; p < tapes.size(); ++p) {
    const std::size_t d = partition_->parts[p].device.index;
    if (parts_on_[d].size() > 1) continue;
    const Bytes beside = peaks[d] - tapes_[p][level[d]].peak;
    const TapeOutcome outcome = tape_within(p, limits[d] - beside);
    const PlannedTape* tape = std::get_if<PlannedTape>(&outcome);
    if (tape == nullptr || same(tape->tape, tapes_[p][level[d]].tape)) continue;
    tapes[p] = tape->tape;
    has_other = true;
  }
  if (!has_other) return made;
  PlannedParts closer = simulated(std::move(tapes));
  const bool is_better = fit(peaks_, limits) && (!fit(peaks, limits) || closer.makespan <= made.makespan);
  if (is_better) return closer;
  peaks_ = peaks;
  return made;
}

TapeOutcome PlansByPartition::tape_of(const PartTask& task, const std::optional<Bytes>& budget) {
  if (plan_parts_themselves(memory_)) return tape_of_passes(task, memory_, budget);
  const auto& made = kept_.of(task);
  if (const std::string* why = std::get_if<std::string>(&made)) return Infeasible{*why, std::nullopt};
  return std::get<PartTapes>(made).outcomes(std::span(&budget, 1)).front();
}

std::optional<Bytes> PlansByPartition::least_budget_of(const PartTask& task) {
  const TapeOutcome all = tape_of(task, std::nullopt);
  const PlannedTape* tape = std::get_if<PlannedTape>(&all);
  if (tape == nullptr) return std::nullopt;
  return least_budget([&](Bytes budget) { return tape_of(task, budget); }, tape->peak);
}

}  // namespace plimsoll
