// The strategy `bpipe`: 1F1B whose first stages, which keep the most micro-batches, leave some of them with the last
// ones, which keep the fewest.
// Equation: stages s and p - 1 - s have p + 1 micro-batches in flight together; each device holds at most
// ceil((p + 2) / 2). In 1F1B's order a device that would hold more sends the newest away after its forward.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

/// A device's turns of 1F1B, with a micro-batch sent away whenever it holds `most`, and each back one turn before its
/// backward.
std::vector<Turn> evicting(const std::vector<Turn>& turns, std::uint32_t most) {
  std::vector<Turn> all;
  std::set<std::uint32_t> away;
  std::uint32_t held = 0;
  const auto returns = [&](const Turn& turn) {
    if (turn.piece != piece::backward || away.erase(turn.micro_batch) == 0) return;
    all.push_back({turn.part, turn.micro_batch, piece::arrive});
    ++held;
  };
  for (std::size_t k = 0; k < turns.size(); ++k) {
    const Turn& turn = turns[k];
    if (k + 1 < turns.size() && held + 1 < most) returns(turns[k + 1]);
    returns(turn);
    all.push_back(turn);
    if (turn.piece == piece::backward) --held;
    if (turn.piece != piece::forward) continue;
    ++held;
    const bool forward_next = k + 1 < turns.size() && turns[k + 1].piece == piece::forward;
    if (held + (forward_next ? 1 : 0) < most) continue;  // what leaves is still there while the next forward runs
    all.push_back({turn.part, turn.micro_batch, piece::leave});
    away.insert(turn.micro_batch);
    --held;
  }
  EXPECTS(away.empty());
  return all;
}

std::vector<PartitionOutcome> bpipe_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  if (problem.mesh && std::ranges::any_of(problem.mesh->axes, &Axis::scatters)) {
    throw InputError("bpipe: megatron's scatter=yes: each device hands its partner values of its own");
  }
  const std::uint32_t p = ranks_of(problem, options, "bpipe"), most = (p + 3) / 2;
  std::vector<std::uint32_t> warm_up;
  for (std::uint32_t r = 0; r < p; ++r) warm_up.push_back(p - r - 1);
  PipelineOrder order = one_forward_one_backward_order(problem.micro_batches, warm_up);
  std::vector<std::uint32_t> evicts;
  for (std::uint32_t r = 0; r < p; ++r) {
    if (std::min(p - r, problem.micro_batches) <= most) continue;
    evicts.push_back(r);
    order.turns[r] = evicting(order.turns[r], most);
  }
  return each_changed(pipeline(problem, options, "bpipe", order, budgets), [&](Partition& partition) {
    for (const std::uint32_t r : evicts) {
      partition.parts[r].waits_at = problem.platform[DeviceId{p - 1 - r}].memory;
    }
  });
}

constexpr auto bpipe_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, backward_option);

}  // namespace

extern constinit const StrategyInfo bpipe_strategy{
    .name = "bpipe",
    .family = Family::pipelining,
    .summary = "1f1b whose first devices lend micro-batches to the last ones, so that all keep about the same number",
    .source = "Kim et al., 'BPipe: memory-balanced pipeline parallelism for training large language models', ICML 2023",
    .chains_only = true,
    .options = bpipe_options,
    .kind =
        PartitionStrategy{.partition = by_options<bpipe_partition>, .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
