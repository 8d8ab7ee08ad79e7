#include "strategies/compose/levels/work_conserving.h"

#include <algorithm>
#include <array>
#include <set>

#include "sim/core/places.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/models/tape_cost.h"
#include "strategies/pipelining/cuts/line_options.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/greedy_turns.h"
#include "strategies/pipelining/orders/orders.h"

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

/// Turns that only wait for what they read: values that come back to the device do so ahead of their reader.
bool may_change_places(const Partition& partition) {
  const auto only_computes = [](const Turn& turn) { return turn.piece <= piece::weights; };
  return std::ranges::all_of(partition.order,
                             [&](const auto& turns) { return std::ranges::all_of(turns, only_computes); });
}

SimulatedParts with_note(SimulatedParts parts, std::string_view which) {
  parts.made.note += (parts.made.note.empty() ? "" : "; ") + std::string(which);
  return parts;
}

}  // namespace

bool is_work_conserving(const Pass& pass) {
  const LineOptions* line = pass.options.get_if<LineOptions>();
  return line != nullptr && line->work_conserving;
}

SimulatedParts or_work_conserving(const Problem& problem, SimulatedParts fixed) {
  if (!may_change_places(*fixed.made.partition)) {
    return with_note(std::move(fixed), "the fixed order: returning micro-batches have their place in it");
  }
  auto turns = greedy_turns(*fixed.made.partition, turn_costs(problem, fixed.made));
  if (!turns) return with_note(std::move(fixed), "the fixed order: without it devices come to wait for each other");
  Partition partition = *fixed.made.partition;
  partition.order = *std::move(turns);
  SimulatedParts greedy{fixed.made, {}};
  greedy.made.partition = std::make_shared<const Partition>(std::move(partition));
  const Timeline timeline = simulate_event(plan_of(problem, greedy.made, std::nullopt).schedule, problem.platform);
  for (const Device& device : problem.platform.devices) {
    greedy.peaks.push_back(timeline.peaks[device.memory.index].bytes);
  }
  if (!std::ranges::equal(greedy.peaks, fixed.peaks, std::ranges::less_equal{})) {
    return with_note(std::move(fixed), "the fixed order: the work-conserving one needs more memory");
  }
  if (!(timeline.makespan < fixed.made.makespan)) {
    return with_note(std::move(fixed), "the fixed order: the work-conserving one is not faster");
  }
  greedy.made.makespan = timeline.makespan;
  greedy.made.peak = std::ranges::max(greedy.peaks);
  return with_note(std::move(greedy), "the work-conserving order");
}

}  // namespace plimsoll
