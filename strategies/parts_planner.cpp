#include "strategies/parts_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "strategies/common/same_tape.h"

namespace plimsoll {
namespace {

constexpr std::size_t levels = 17;

}  // namespace

PartsPlanner::PartsPlanner(const Problem& problem, std::shared_ptr<const Partition> partition,
                           std::span<const Pass> memory)
    : problem_(problem), partition_(std::move(partition)), memory_(memory), waiting_(waiting_in(*partition_)) {
  judge(problem, memory);
}

PartsOutcome PartsPlanner::within(std::optional<Bytes> budget) {
  fill_menus();
  const PlannedParts* best = nullptr;
  Bytes smallest = same_levels_.front().peak;
  for (const PlannedParts& made : same_levels_) {
    smallest = std::min(smallest, made.peak);
    if (budget && made.peak > *budget) continue;
    if (best == nullptr || made.makespan < best->makespan) best = &made;
  }
  if (best == nullptr) return Infeasible{"no level of memory that was tried fits every device", smallest, false};
  if (!budget || same_levels_.back().peak <= *budget) return *best;
  const std::vector<std::size_t> level = highest_levels(*budget);
  PlannedParts mixed = refined(simulated(level), level, *budget);
  return mixed.peak <= *budget && mixed.makespan < best->makespan ? mixed : *best;
}

std::optional<PlannedParts> PartsPlanner::close_to(std::optional<Bytes> budget) {
  std::vector<Bytes> beside(partition_->parts.size());
  constexpr int tries = 3;
  for (int k = 0; k < tries; ++k) {
    std::vector<Tape> tapes;
    std::vector<Bytes> own;
    for (std::size_t p = 0; p < beside.size(); ++p) {
      TapeOutcome outcome;
      const PlannedTape* tape = tape_within(p, budget ? std::optional(*budget - beside[p]) : std::nullopt, outcome);
      if (tape == nullptr) return std::nullopt;
      tapes.push_back(tape->tape);
      own.push_back(tape->peak);
    }
    PlannedParts made = simulated(std::move(tapes));
    if (!budget || made.peak <= *budget) return made;
    for (std::size_t p = 0; p < beside.size(); ++p) {
      beside[p] = std::max(beside[p], peaks_[partition_->parts[p].device.index] - own[p]);
    }
  }
  return std::nullopt;
}

std::vector<Bytes> PartsPlanner::peaks_of_levels() {
  fill_menus();
  std::vector<Bytes> peaks;
  for (const PlannedParts& made : same_levels_) peaks.push_back(made.peak);
  return peaks;
}

PartTask PartsPlanner::task_of(std::size_t p) const {
  return {problem_, *partition_, id_at<PartId>(p), waiting_[p].in_flight, waiting_[p].weights};
}

const PlannedTape* PartsPlanner::tape_within(std::size_t p, std::optional<Bytes> budget, TapeOutcome& outcome) const {
  outcome = tape_of_passes(task_of(p), memory_, budget);
  return std::get_if<PlannedTape>(&outcome);
}

/// Once; and what comes of the same level on all devices.
void PartsPlanner::fill_menus() {
  if (!same_levels_.empty()) return;
  for (std::size_t p = 0; p < partition_->parts.size(); ++p) menus_.push_back(menu_of(p));
  for (std::size_t level = 0; level < levels; ++level) {
    const auto is_as_before = [&](const Menu& menu) {
      return level > 0 && same(menu[level].tape, menu[level - 1].tape);
    };
    if (std::ranges::all_of(menus_, is_as_before)) continue;
    same_levels_.push_back(simulated(std::vector(partition_->order.size(), level)));
  }
}

PartsPlanner::Menu PartsPlanner::menu_of(std::size_t p) const {
  TapeOutcome outcome = tape_of_passes(task_of(p), memory_, std::nullopt);
  if (const Infeasible* why = std::get_if<Infeasible>(&outcome)) {
    throw InputError(fmt::format("'{}' in a part of a pipeline: {}", memory_.back().strategy->name, why->reason));
  }
  auto& all = std::get<PlannedTape>(outcome);
  const Bytes least = least_budget(p, all.peak);
  std::vector<std::optional<Bytes>> budgets;
  for (std::uint32_t level = 0; level + 1 < levels; ++level) {
    budgets.emplace_back(least + range_of(all.peak - least, {level, levels - 1}).offset);
  }
  Menu menu;
  if (least < all.peak) {
    for (TapeOutcome& each : tapes_of_passes(task_of(p), memory_, budgets)) {
      PlannedTape* tape = std::get_if<PlannedTape>(&each);
      if (tape != nullptr) {
        menu.push_back(std::move(*tape));
      } else if (!menu.empty()) {  // a search that found nothing here
        menu.push_back(menu.back());
      }
    }
  }
  menu.push_back(std::move(all));
  const PlannedTape first = menu.front();
  menu.insert(menu.begin(), levels - menu.size(), first);
  return menu;
}

/// The least budget of a part for which there is a tape: what the strategy says, else to 1/512 of the most.
Bytes PartsPlanner::least_budget(std::size_t p, Bytes most) const {
  TapeOutcome outcome;
  if (const PlannedTape* tape = tape_within(p, Bytes{0}, outcome)) return tape->peak;
  if (const std::optional<Bytes> smallest = std::get<Infeasible>(outcome).smallest) return std::min(*smallest, most);
  Bytes below{0}, enough = most;
  for (const Bytes close{most.count / 512}; enough - below > close && enough - below > Bytes{1};) {
    const Bytes middle{below.count + (enough - below).count / 2};
    (tape_within(p, middle, outcome) != nullptr ? enough : below) = middle;
  }
  return enough;
}

/// The parts' tapes at the levels of their devices, on their device together with the others.
PlannedParts PartsPlanner::simulated(const std::vector<std::size_t>& level) {
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < menus_.size(); ++p) {
    tapes.push_back(menus_[p][level[partition_->parts[p].device.index]].tape);
  }
  return simulated(std::move(tapes));
}

PlannedParts PartsPlanner::simulated(std::vector<Tape> tapes) {
  PlannedParts made{partition_, std::move(tapes), {}, {}, {}};
  const Schedule schedule = plan_of(problem_, made, std::nullopt).schedule;
  const Timeline timeline = simulate_event(schedule, problem_.platform);
  peaks_.clear();
  for (const Device& device : problem_.platform.devices) {
    peaks_.push_back(timeline.peaks[device.memory.index].bytes);
    made.peak = std::max(made.peak, peaks_.back());
  }
  made.makespan = timeline.makespan;
  made.note = partition_->note;
  return made;
}

/// By halving, on all devices at once: what one of them keeps hardly changes what another one needs.
std::vector<std::size_t> PartsPlanner::highest_levels(Bytes budget) {
  std::vector<std::size_t> fits(partition_->order.size(), 0), too_high(fits.size(), levels), tried(fits.size());
  for (std::size_t step = levels; step > 1; step = (step + 1) / 2) {
    for (std::size_t d = 0; d < fits.size(); ++d) tried[d] = std::midpoint(fits[d], too_high[d]);
    simulated(tried);
    for (std::size_t d = 0; d < fits.size(); ++d) (peaks_[d] <= budget ? fits[d] : too_high[d]) = tried[d];
  }
  return fits;
}

/// Where a device has one part, a tape for the very budget, less what is on its way to it, may be faster than a
/// level's.
PlannedParts PartsPlanner::refined(PlannedParts made, const std::vector<std::size_t>& level, Bytes budget) {
  const std::vector<Bytes> peaks = peaks_;
  std::vector<std::size_t> parts_on(partition_->order.size());
  for (const Part& part : partition_->parts) ++parts_on[part.device.index];
  std::vector<Tape> tapes = made.tapes;
  for (std::size_t p = 0; p < tapes.size(); ++p) {
    const std::size_t d = partition_->parts[p].device.index;
    if (parts_on[d] > 1) continue;
    const Bytes beside = peaks[d] - menus_[p][level[d]].peak;
    TapeOutcome outcome;
    if (const PlannedTape* tape = tape_within(p, budget - beside, outcome)) tapes[p] = tape->tape;
  }
  PlannedParts closer = simulated(std::move(tapes));
  const bool is_better = closer.peak <= budget && (made.peak > budget || closer.makespan <= made.makespan);
  return is_better ? closer : made;
}

}  // namespace plimsoll
