#include "strategies/plan_on_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "strategies/common/same_tape.h"

namespace plimsoll {
namespace {

/// Micro-batches of a part that are between two of its pieces, at most, by the order of its device.
struct Waiting {
  std::uint32_t in_flight = 1, weights = 0;
};

std::vector<Waiting> waiting_in(const Partition& partition) {
  std::vector<Waiting> most(partition.parts.size());
  std::vector<std::uint32_t> in_flight(most.size()), weights(most.size());
  for (const std::vector<Turn>& order : partition.order) {
    for (const Turn& turn : order) {
      const std::size_t p = turn.part.index;
      const Part& part = partition.parts[p];
      if (turn.piece == 0) {
        most[p].in_flight = std::max(most[p].in_flight, ++in_flight[p]);
      } else if (turn.piece == 1) {
        --in_flight[p];
        if (part.cut_before_weights) most[p].weights = std::max(most[p].weights, ++weights[p]);
      } else {
        --weights[p];
      }
    }
  }
  return most;
}

constexpr std::size_t levels = 17;

/// The tapes of a part from the least memory to all that it wants: one a level, some of them the same.
using Menu = std::vector<PlannedTape>;

class PartsPlanner {
 public:
  PartsPlanner(const Problem& problem, std::shared_ptr<const Partition> partition, std::span<const Pass> memory)
      : problem_(problem), partition_(std::move(partition)), memory_(memory), waiting_(waiting_in(*partition_)) {
    judge(problem, memory);
  }

  PartsOutcome within(std::optional<Bytes> budget) {
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

  std::vector<Bytes> peaks_of_levels() {
    fill_menus();
    std::vector<Bytes> peaks;
    for (const PlannedParts& made : same_levels_) peaks.push_back(made.peak);
    return peaks;
  }

 private:
  PartTask task_of(std::size_t p) const {
    return {problem_, *partition_, id_at<PartId>(p), waiting_[p].in_flight, waiting_[p].weights};
  }

  const PlannedTape* tape_within(std::size_t p, Bytes budget, TapeOutcome& outcome) const {
    outcome = tape_of_passes(task_of(p), memory_, budget);
    return std::get_if<PlannedTape>(&outcome);
  }

  /// Once; and what comes of the same level on all devices.
  void fill_menus() {
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

  Menu menu_of(std::size_t p) const {
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
  Bytes least_budget(std::size_t p, Bytes most) const {
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
  PlannedParts simulated(const std::vector<std::size_t>& level) {
    std::vector<Tape> tapes;
    for (std::size_t p = 0; p < menus_.size(); ++p) {
      tapes.push_back(menus_[p][level[partition_->parts[p].device.index]].tape);
    }
    return simulated(std::move(tapes));
  }

  PlannedParts simulated(std::vector<Tape> tapes) {
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
  std::vector<std::size_t> highest_levels(Bytes budget) {
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
  PlannedParts refined(PlannedParts made, const std::vector<std::size_t>& level, Bytes budget) {
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

  const Problem& problem_;
  std::shared_ptr<const Partition> partition_;
  std::span<const Pass> memory_;
  std::vector<Waiting> waiting_;           // by part
  std::vector<Menu> menus_;                // by part
  std::vector<PlannedParts> same_levels_;  // plans with one level on all devices, ascending
  std::vector<Bytes> peaks_;               // by device, of what was simulated last
};

/// Planners of partitions, one each.
class Planners {
 public:
  Planners(const Problem& problem, std::span<const Pass> memory) : problem_(problem), memory_(memory) {}

  PartsPlanner& of(const std::shared_ptr<const Partition>& partition) {
    const auto found = planners_.find(partition);
    if (found != planners_.end()) return found->second;
    return planners_.emplace(partition, PartsPlanner(problem_, partition, memory_)).first->second;
  }

 private:
  const Problem& problem_;
  std::span<const Pass> memory_;
  std::map<std::shared_ptr<const Partition>, PartsPlanner> planners_;
};

std::vector<PartitionOutcome> partitions(const Problem& problem, const Pass& pass,
                                         std::span<const std::optional<Bytes>> budgets) {
  judge(problem, std::span(&pass, 1));
  std::vector<PartitionOutcome> made = pass.strategy->partition(problem, pass.options, budgets);
  EXPECTS(made.size() == budgets.size());
  return made;
}

/// A larger budget never gives a slower plan.
void never_slower_with_more(std::vector<PartsOutcome>& outcomes, std::span<const std::optional<Bytes>> budgets) {
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    for (std::size_t other = 0; other < outcomes.size(); ++other) {
      const PlannedParts* cheaper = std::get_if<PlannedParts>(&outcomes[other]);
      if (cheaper == nullptr || (budgets[b] && cheaper->peak > *budgets[b])) continue;
      const PlannedParts* own = std::get_if<PlannedParts>(&outcomes[b]);
      if (own == nullptr || cheaper->makespan < own->makespan) outcomes[b] = *cheaper;
    }
  }
}

}  // namespace

std::vector<PartsOutcome> plan_on_devices(const Problem& problem, const Pass& partitioning,
                                          std::span<const Pass> memory, std::span<const std::optional<Bytes>> budgets) {
  Planners planners(problem, memory);
  std::vector<PartsOutcome> outcomes;
  std::size_t b = 0;
  for (const PartitionOutcome& partition : partitions(problem, partitioning, budgets)) {
    if (const Infeasible* why = std::get_if<Infeasible>(&partition)) {
      outcomes.emplace_back(*why);
    } else {
      outcomes.push_back(planners.of(std::get<std::shared_ptr<const Partition>>(partition)).within(budgets[b]));
    }
    ++b;
  }
  never_slower_with_more(outcomes, budgets);
  return outcomes;
}

std::vector<Bytes> front_budgets_on_devices(const Problem& problem, const Pass& partitioning,
                                            std::span<const Pass> memory) {
  const std::optional<Bytes> unlimited;
  const PartitionOutcome partition = partitions(problem, partitioning, std::span(&unlimited, 1)).front();
  const auto* made = std::get_if<std::shared_ptr<const Partition>>(&partition);
  if (made == nullptr) return {};
  std::vector<Bytes> peaks = PartsPlanner(problem, *made, memory).peaks_of_levels();
  std::ranges::sort(peaks);
  peaks.erase(std::unique(peaks.begin(), peaks.end()), peaks.end());
  return peaks;
}

}  // namespace plimsoll
