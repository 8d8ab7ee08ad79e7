// The strategy `pipeoffload`: an interleaved pipeline in which a share of the (part, micro-batch) pairs wait for their
// backward on the host, those that wait longest first.
// Equation: what waits no longer than 3 (d + h) stays, d and h the times of its copies to the host and back; what comes
// back starts h and the time of one backward before the backward that needs it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/pipelining/turns_away.h"

namespace plimsoll {
namespace {

struct PipeOffloadOptions : LineOptions {
  std::uint32_t chunks = 2;
  double share = 0.5;
};

/// A micro-batch of a part between its forward and its backward, by their places in the device's order.
struct WaitingTurn {
  std::size_t rank = 0, forward = 0, backward = 0;
  double waits = 0;  ///< time of the turns between them
};

class HostWaits {
 public:
  /// Of a partition whose parts' micro-batches may wait elsewhere.
  HostWaits(const Problem& problem, const Partition& partition, const PartCosts& costs)
      : order_(partition.order), costs_(costs) {
    for (std::size_t g = 0; g < partition.parts.size(); ++g) {
      const PartId id = id_at<PartId>(g);
      absences_.push_back(absence_cost(problem, partition, id, plain_tape({problem, partition, id})));
    }
    for (std::size_t r = 0; r < order_.size(); ++r) note_waits(r);
    std::ranges::stable_sort(found_, std::ranges::greater{}, &WaitingTurn::waits);
  }

  std::size_t pairs() const { return pairs_; }
  std::size_t long_enough() const { return found_.size(); }

  /// The order with the longest `count` waits on the host, as far as there are so many that are long enough.
  std::vector<std::vector<Turn>> with_longest(std::size_t count) const {
    std::vector<std::vector<std::vector<Turn>>> before;  // by rank and place
    for (const std::vector<Turn>& turns : order_) before.emplace_back(turns.size() + 1);
    std::vector<WaitingTurn> chosen(found_.begin(),
                                    found_.begin() + static_cast<std::ptrdiff_t>(std::min(count, found_.size())));
    std::ranges::sort(chosen, {}, &WaitingTurn::backward);
    for (const WaitingTurn& wait : chosen) {
      const Turn turn = order_[wait.rank][wait.backward];
      before[wait.rank][wait.forward + 1].push_back({turn.part, turn.micro_batch, piece::leave});
      before[wait.rank][returns_at(wait)].push_back({turn.part, turn.micro_batch, piece::arrive});
    }
    std::vector<std::vector<Turn>> all(order_.size());
    for (std::size_t r = 0; r < order_.size(); ++r) {
      for (std::size_t k = 0; k < order_[r].size(); ++k) {
        all[r].insert(all[r].end(), before[r][k].begin(), before[r][k].end());
        all[r].push_back(order_[r][k]);
      }
    }
    return all;
  }

 private:
  double time(const Turn& turn) const {
    const std::size_t g = turn.part.index;
    return turn.piece == piece::forward ? costs_.f[g] : turn.piece == piece::backward ? costs_.b[g] : costs_.w[g];
  }

  void note_waits(std::size_t r) {
    const std::vector<Turn>& turns = order_[r];
    for (std::size_t f = 0; f < turns.size(); ++f) {
      if (turns[f].piece != piece::forward) continue;
      ++pairs_;
      WaitingTurn wait{r, f, f + 1, 0};
      const auto ends = [&](const Turn& t) {
        return t.part == turns[f].part && t.micro_batch == turns[f].micro_batch && t.piece == piece::backward;
      };
      for (; !ends(turns[wait.backward]); ++wait.backward) wait.waits += time(turns[wait.backward]);
      const AbsenceCost& cost = absences_[turns[f].part.index];
      if (wait.waits > 3 * (cost.leaving + cost.returning).value) found_.push_back(wait);
    }
  }

  std::size_t returns_at(const WaitingTurn& wait) const {
    const std::vector<Turn>& turns = order_[wait.rank];
    const Turn& backward = turns[wait.backward];
    const double needed = absences_[backward.part.index].returning.value + costs_.b[backward.part.index];
    std::size_t at = wait.backward;
    for (double ahead = 0; at > wait.forward + 2 && ahead < needed; --at) ahead += time(turns[at - 1]);
    return at;
  }

  const std::vector<std::vector<Turn>>& order_;
  const PartCosts& costs_;
  std::vector<AbsenceCost> absences_;  // by part
  std::vector<WaitingTurn> found_;     // long enough, the longest first
  std::size_t pairs_ = 0;
};

std::vector<PartitionOutcome> pipeoffload_partition(const Problem& problem, const PipeOffloadOptions& options,
                                                    std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t chunks = options.chunks;
  const std::uint32_t ranks = ranks_of(problem, options, "pipeoffload", chunks);
  const PipelineOrder order = interleaved_order(ranks, chunks, problem.micro_batches, WarmUp::megatron);
  return each_changed(pipeline(problem, options, "pipeoffload", order, budgets), [&](Partition& partition) {
    for (Part& part : partition.parts) part.waits_at = place::host;
    const PartCosts costs = part_costs(problem, partition);
    const HostWaits waits(problem, partition, costs);
    const double share = options.share * static_cast<double>(waits.pairs());
    const auto asked = static_cast<std::size_t>(std::llround(share));
    partition.note = fmt::format("{} of {} wait on the host, and {} were asked for",
                                 std::min(asked, waits.long_enough()), waits.pairs(), asked);
    std::vector<std::vector<Turn>> turns = waits.with_longest(asked);
    partition.order = std::move(turns);
  });
}

constexpr auto pipeoffload_options = options_of<PipeOffloadOptions>(
    stages_option, cut_option, shared_updates_option, backward_option, chunks_option<PipeOffloadOptions>,
    option_of<&PipeOffloadOptions::share>({
        .name = "share",
        .least = 0,
        .most = 1,
        .help = "share of the parts' micro-batches that wait on the host, longest wait first; micro-batches that wait "
                "for less time than their copies take stay on the device",
    }));

}  // namespace

extern constinit const StrategyInfo pipeoffload_strategy{
    .name = "pipeoffload",
    .family = Family::pipelining,
    .summary =
        "an interleaved pipeline whose micro-batches wait for their backward on the host, the longest waits first",
    .source = "Wan et al., 'PipeOffload: improving scalability of pipeline parallelism with memory optimization', 2025",
    .chains_only = true,
    .options = pipeoffload_options,
    .kind = PartitionStrategy{.partition = by_options<pipeoffload_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
