#include "strategies/least_makespan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "sim/core/collective_op.h"

namespace plimsoll {
namespace {

/// What a part's device computes for every micro-batch.
struct PieceTimes {
  std::array<Seconds, piece_names> all{};
  Seconds forward, backward;  ///< of the pieces of these names, without what is recomputed, which waits for nobody
};

PieceTimes piece_times(const Problem& problem, const Part& part, const Tape& tape) {
  PieceTimes times;
  const std::array<Piece, piece_names> pieces = pieces_of(tape);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    for (std::size_t a = pieces[k].first; a < pieces[k].last; ++a) {
      const Action& action = tape.actions[a];
      if (action.kind != ActionKind::run || action.last_only || action.at != place::device) continue;
      const Op& op = problem.graph[action.op];
      if (op.is_view || collective_of(op)) continue;
      const Seconds time = duration_on(problem, action.op, part.device, action.saving, action.implementation);
      times.all[k] += time;
      if (k == number_of(PieceName::forward) && op.phase == Phase::forward) times.forward += time;
      if (k == number_of(PieceName::backward) && op.phase != Phase::forward) times.backward += time;
    }
  }
  return times;
}

/// Of a chain: what every micro-batch goes through before and behind a part. Of copies of a part the fastest.
class Ways {
 public:
  Ways(const Problem& problem, const Partition& partition, std::span<const PieceTimes> times) {
    for (std::size_t p = 0; p < times.size(); ++p) {
      std::uint32_t first = problem.graph[partition.parts[p].ops.front()].stage;
      for (const OpId op : partition.parts[p].ops) first = std::min(first, problem.graph[op].stage);
      first_stage_.push_back(first);
      const auto [known, is_new] = fastest_.try_emplace(first, times[p]);
      known->second.forward = std::min(known->second.forward, times[p].forward);
      known->second.backward = std::min(known->second.backward, times[p].backward);
    }
  }

  /// Of the parts before.
  Seconds before(std::size_t part, Seconds PieceTimes::*piece) const {
    Seconds sum;
    for (const auto& [first, times] : fastest_) {
      if (first < first_stage_[part]) sum += times.*piece;
    }
    return sum;
  }

 private:
  std::vector<std::uint32_t> first_stage_;       // by part
  std::map<std::uint32_t, PieceTimes> fastest_;  // by first stage
};

}  // namespace

Seconds least_makespan(const Problem& problem, const Partition& partition, std::span<const Tape> tapes) {
  std::vector<PieceTimes> times;
  for (std::size_t p = 0; p < tapes.size(); ++p) times.push_back(piece_times(problem, partition.parts[p], tapes[p]));
  std::optional<Ways> ways;
  if (problem.chain) ways.emplace(problem, partition, times);
  Seconds most;
  for (const std::vector<Turn>& turns : partition.order) {
    if (turns.empty()) continue;
    Seconds sum;
    for (const Turn& turn : turns) sum += times[turn.part.index].all[turn.piece];
    const Turn &first = turns.front(), &last = turns.back();
    if (ways && first.piece == number_of(PieceName::forward))
      sum += ways->before(first.part.index, &PieceTimes::forward);
    if (ways && last.piece == number_of(PieceName::backward))
      sum += ways->before(last.part.index, &PieceTimes::backward);
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace plimsoll
