// What the turns of a point's own order take and keep at least. The order is the one that is simulated: the point's
// schedule has made it from the same chain. Its turns run one after the other on each device, as in the simulation.
//
// Time: a turn begins when the one before it has ended on its device, and when what it reads has been made and has come
// over, each transfer taking its time alone. A turn takes its stages' times: with full_recompute forwards those of the
// shorter way to run them, and backwards also all of these but the longest again. In the simulation turns take that at
// least, and wait for the same: other savers and what offloads say themselves what runs in a turn. Behind a device's
// last turn come
//  - the updates of that turn's part: their gradients are complete in that turn, not before it;
//  - where the device has one part and replicas exchange gradients once, these exchanges, beside that turn.
//
// Memory: after a forward a part has kept what its plain tape keeps, after a backward apart from its weight gradients
// what these wait with, until they are made. Where two parts in a row are on one device, the value between them is
// counted once. full_recompute keeps what enters the stages; in a backward a stage has run again. Beside these is what
// is there all the time, and of each part the gradients that it has made, where updates wait for the end of the
// backward.
//
// Copies: where values leave, all that is kept beyond the budget when a backward begins is away, and comes back before
// the turn that reads it, by a lone copy at the fastest. What must be away at an instant is taken from what is read
// last: that is away at most of the later instants, so that no other choice brings back less.

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "strategies/hybrid/cluster/bounds.h"
#include "strategies/hybrid/cluster/least_away.h"
#include "strategies/list.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/order_times.h"

namespace plimsoll {
namespace {

/// Bytes of one micro-batch that a part keeps, by what has run of it.
struct PartKeeps {
  Bytes after_forward, after_backward;  ///< the latter until its weight gradients, where these are apart
  Bytes while_backward;                 ///< more than after the forward
  Bytes gradients;                      ///< of parameters that no earlier part of the device has
};

class BoundOfOrder {
 public:
  BoundOfOrder(const BoundedPoint& of, const Problem& problem, const Partition& partition)
      : of_(of),
        problem_(problem),
        costs_(part_costs(problem, partition)),
        order_(order_of(partition)),
        updates_(costs_.parts()),
        keeps_(costs_.parts()) {
    std::vector<std::set<std::uint32_t>> on_device(of.point.stages);
    for (std::size_t g = 0; g < costs_.parts(); ++g) {
      const auto [first, last] = stages_of(partition.parts[g]);
      add_part(g, first, last, on_device[order_.rank_of[g]]);
    }
    if (!problem.chain->boundaries.empty()) {  // several values cross, of which not every turn waits for all
      std::ranges::fill(costs_.sent, 0.0);
      std::ranges::fill(costs_.returned, 0.0);
    }
  }

  Seconds time() const {
    const OrderTimes times = time_order(costs_, of_.micro_batches, order_, TransferTimes::alone);
    double longest = 0;
    for (std::size_t r = 0; r < of_.point.stages; ++r) {
      const Turn& last = order_.turns[r].back();
      longest = std::max(longest, times.last[r] + updates_[last.part.index].value);
      if (of_.point.chunks > 1 || of_.point.zero > 1) continue;
      longest = std::max(longest, times.last[r] - seconds_of(last) + of_.shared[r].once.value);
    }
    return times.stuck.empty() ? Seconds{longest} : Seconds{};
  }

  MemoryBound memory() const {
    MemoryBound fullest;
    for (std::size_t r = 0; r < of_.point.stages; ++r) fullest = larger(fullest, memory_of(r));
    return fullest;
  }

  Seconds copies() const {
    Seconds longest;
    for (std::size_t r = 0; r < of_.hosts.size(); ++r) longest = std::max(longest, returning(r) / of_.hosts[r].in);
    return longest;
  }

 private:
  struct StageRange {
    std::size_t first, last;
  };

  static MemoryBound larger(const MemoryBound& a, const MemoryBound& b) { return a.total() < b.total() ? b : a; }

  StageRange stages_of(const Part& part) const {
    StageRange range{problem_.chain->stages.size(), 0};
    for (const OpId op : part.ops) {
      range.first = std::min<std::size_t>(range.first, problem_.graph[op].stage);
      range.last = std::max<std::size_t>(range.last, problem_.graph[op].stage + 1);
    }
    return range;
  }

  void add_part(std::size_t g, std::size_t first, std::size_t last, std::set<std::uint32_t>& parameters) {
    Seconds again, longest_again;
    Bytes inputs, at_repeat;
    PartKeeps& keeps = keeps_[g];
    for (std::size_t s = first; s < last; ++s) {
      const RankStage& stage = of_.costs.stages[s];
      again += stage.again;
      longest_again = std::max(longest_again, stage.again);
      if (s > first) inputs += of_.costs.stages[s - 1].output;
      at_repeat = std::max(at_repeat, inputs + stage.inner);
      const auto is_had = [&](std::uint32_t p) { return parameters.contains(p); };
      if (std::ranges::none_of(stage.parameters, is_had)) keeps.gradients += stage.gradients;
      for (const std::uint32_t p : stage.parameters) {
        if (parameters.insert(p).second) updates_[g] += of_.costs.parameters[p].update;
      }
    }
    updates_[g] = updates_bound_of(updates_[g]);
    const bool repeats = of_.point.saving().behind == &full_recompute_strategy;
    if (repeats) {
      costs_.f[g] = std::min(costs_.f[g], again.value);
      costs_.b[g] += (again - longest_again).value;
      keeps.after_forward = inputs;
      keeps.while_backward = std::max(at_repeat - inputs, Bytes{});
    } else {
      const bool follows = g > 0 && order_.rank_of[g] == order_.rank_of[g - 1];
      const Bytes twice = follows ? boundary_bytes(*problem_.chain, first) : Bytes{};
      keeps.after_forward = std::max(Bytes{costs_.kept[g]} - twice, Bytes{});
      keeps.after_backward = std::max(Bytes{costs_.kept_for_weights[g]} - twice, Bytes{});
    }
  }

  Seconds updates_bound_of(Seconds own) const {
    DeviceCosts alone{};
    alone.updates = own;
    return updates_bound(of_.point, alone);
  }

  double seconds_of(const Turn& turn) const {
    const std::size_t g = turn.part.index;
    if (turn.piece == piece::forward) return costs_.f[g];
    if (turn.piece == piece::weights) return costs_.w[g];
    return order_.weights_apart ? costs_.b[g] : costs_.b[g] + costs_.w[g];
  }

  static Bytes share(Bytes whole, std::uint32_t ranks) { return Bytes{whole.count / ranks}; }

  /// All the time.
  MemoryBound at_rest(std::size_t r) const {
    const DeviceCosts& device = of_.devices[r];
    const std::uint32_t d = of_.point.sharers(), z = of_.point.zero;
    return {.parameters = share(device.parameters, z > 2 ? d : 1),
            .gradients = {},
            .states = of_.point.keeps_states() ? share(device.states, z > 0 ? d : 1) : Bytes{},
            .activations = {}};
  }

  /// What is there behind the turn, of what was before it.
  void pass(const Turn& turn, MemoryBound& now) const {
    const PartKeeps& keeps = keeps_[turn.part.index];
    if (turn.piece == piece::forward) now.activations += keeps.after_forward;
    if (turn.piece == piece::backward) {
      now.activations += (order_.weights_apart ? keeps.after_backward : Bytes{}) - keeps.after_forward;
    }
    if (turn.piece == piece::weights) now.activations -= keeps.after_backward;
    const std::uint32_t ends = order_.weights_apart ? piece::weights : piece::backward;
    if (turn.piece == ends && turn.micro_batch == 0 && of_.point.updates == 0)
      now.gradients += share(keeps.gradients, of_.point.zero > 1 ? of_.point.sharers() : 1);
  }

  MemoryBound memory_of(std::size_t r) const {
    MemoryBound now = at_rest(r), most = now;
    for (const Turn& turn : order_.turns[r]) {
      MemoryBound within = now;
      within.activations += turn.piece == piece::backward ? keeps_[turn.part.index].while_backward : Bytes{};
      most = larger(most, within);
      pass(turn, now);
      most = larger(most, now);
    }
    return most;
  }

  /// Bytes that come back to the device within an iteration.
  Bytes returning(std::size_t r) const {
    const std::vector<Turn>& turns = order_.turns[r];
    std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> reader;  // the last, by part and micro-batch
    for (std::size_t i = 0; i < turns.size(); ++i) reader[{turns[i].part.index, turns[i].micro_batch}] = i;
    MemoryBound now = at_rest(r);
    LeastAway least;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const std::size_t last = reader.at({turns[i].part.index, turns[i].micro_batch});
      if (turns[i].piece == piece::backward) least.need(now.total() - *of_.budget);
      const PartKeeps& keeps = keeps_[turns[i].part.index];
      if (i == last) least.end(i);
      if (i != last) least.keep(turns[i].piece == piece::forward ? keeps.after_forward : keeps.after_backward, last);
      pass(turns[i], now);
    }
    return least.moved();
  }

  const BoundedPoint& of_;
  const Problem& problem_;
  PartCosts costs_;
  PipelineOrder order_;
  std::vector<Seconds> updates_;  // by part: of parameters that no earlier part of its device has
  std::vector<PartKeeps> keeps_;  // by part
};

}  // namespace

OrderBound order_bound(const BoundedPoint& of, const Problem& of_stages, const Partition& partition) {
  const BoundOfOrder bound(of, of_stages, partition);
  if (of.point.offload == 0) return {bound.time(), bound.memory()};
  return {of.budget ? std::max(bound.time(), bound.copies()) : bound.time(), {}};
}

}  // namespace plimsoll
