#include "strategies/work_conserving.h"

#include <algorithm>
#include <array>
#include <set>

#include "sim/core/places.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/common/tape_cost.h"
#include "strategies/pipelining/greedy_turns.h"
#include "strategies/pipelining/stage_parts.h"

namespace plimsoll {
namespace {

std::array<double, 3> seconds_of_pieces(const Problem& problem, const Part& part, const Tape& tape) {
  const std::array<Piece, piece_names> pieces = pieces_of(tape);
  std::array<double, 3> seconds{};
  for (std::size_t k = 0; k < seconds.size(); ++k) {
    for (std::size_t a = pieces[k].first; a < pieces[k].last; ++a) {
      const Action& action = tape.actions[a];
      if (action.kind != ActionKind::run || action.at != place::device) continue;
      seconds[k] += duration_on(problem, action.op, part.device, action.saving, action.implementation).value;
    }
  }
  return seconds;
}

/// Copies of a stage are taken to be as far from the others as its first part is.
TurnCosts turn_costs(const Problem& problem, const PlannedParts& made) {
  const std::vector<Part>& parts = made.partition->parts;
  const auto first_stage = [&](std::size_t p) { return problem.graph[parts[p].ops.front()].stage; };
  std::set<std::size_t> first;
  for (std::size_t p = 0; p < parts.size(); ++p) first.insert(first_stage(p));
  const PartCosts plain = part_costs(problem, *made.partition);
  TurnCosts costs;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    costs.stage.push_back(static_cast<std::uint32_t>(std::distance(first.begin(), first.find(first_stage(p)))));
    costs.seconds.push_back(seconds_of_pieces(problem, parts[p], made.tapes[p]));
    const TapeCost cost = tape_cost(problem, parts[p], made.tapes[p]);
    costs.kept.push_back(cost.kept.count);
    costs.kept_for_weights.push_back(cost.kept_for_weights.count);
    costs.sent.push_back(p == 0 ? 0 : plain.sent[p - 1]);
    costs.returned.push_back(p + 1 == parts.size() ? 0 : plain.returned[p]);
  }
  return costs;
}

Timeline timeline_of(const Problem& problem, const PlannedParts& parts) {
  return simulate_event(plan_of(problem, parts, std::nullopt).schedule, problem.platform);
}

PlannedParts with_note(PlannedParts made, std::string_view which) {
  made.note += (made.note.empty() ? "" : "; ") + std::string(which);
  return made;
}

}  // namespace

PlannedParts or_work_conserving(const Problem& problem, PlannedParts fixed) {
  auto turns = greedy_turns(*fixed.partition, turn_costs(problem, fixed));
  if (!turns) return with_note(std::move(fixed), "the fixed order: without it devices come to wait for each other");
  Partition partition = *fixed.partition;
  partition.order = *std::move(turns);
  PlannedParts greedy = fixed;
  greedy.partition = std::make_shared<const Partition>(std::move(partition));
  const Timeline before = timeline_of(problem, fixed), after = timeline_of(problem, greedy);
  for (const Device& device : problem.platform.devices) {
    if (after.peaks[device.memory.index].bytes <= before.peaks[device.memory.index].bytes) continue;
    return with_note(std::move(fixed), "the fixed order: the work-conserving one needs more memory");
  }
  if (!(after.makespan < before.makespan)) {
    return with_note(std::move(fixed), "the fixed order: the work-conserving one is not faster");
  }
  greedy.makespan = after.makespan;
  greedy.peak = Bytes{0};
  for (const Device& device : problem.platform.devices) {
    greedy.peak = std::max(greedy.peak, after.peaks[device.memory.index].bytes);
  }
  return with_note(std::move(greedy), "the work-conserving order");
}

}  // namespace plimsoll
