// The strategy `deep_optimizer_states`: all states on the host; of every k subgroups of parameters the host updates
// k - 1 while the states of the k-th travel to the device, which updates it. Source: Maurya, Ye, Rafique, Cappello,
// Nicolae, "Deep Optimizer States: towards scalable training of transformer models using interleaved offloading",
// Middleware 2024.

#include "sim/io/quantity.h"
#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

struct DeepOptimizerStatesOptions : HostUpdateOptions {
  std::optional<std::size_t> stride;
  std::optional<Bytes> subgroup;
  bool turns = true;
};

constexpr std::size_t longest_stride_tried = 16;

std::vector<std::vector<OpId>> subgroups(const Problem& problem, const std::vector<OpId>& updates, Bytes size) {
  std::vector<std::vector<OpId>> groups;
  Bytes bytes = size;
  for (const OpId op : updates) {
    if (bytes >= size) {
      groups.emplace_back();
      bytes = Bytes{0};
    }
    groups.back().push_back(op);
    bytes += parameter_bytes(problem, op);
  }
  return groups;
}

std::vector<UpdateGroup> interleaved(const std::vector<std::vector<OpId>>& groups, std::size_t stride) {
  std::vector<UpdateGroup> placed;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    placed.push_back({groups[g], (g + 1) % stride == 0 ? UpdateSite::streamed : UpdateSite::host});
  }
  return placed;
}

TapePool strided_pool(const PartTask& task, const DeepOptimizerStatesOptions& options, const Tape* before) {
  const Tape tape = tape_to_update(task, before, "deep_optimizer_states", false);
  const Bytes size = options.subgroup.value_or(Bytes{0});
  const auto groups = subgroups(task.problem, updates_by_gradient(task.problem, tape), size);
  const UpdateCopies copies{.overlaps_backward = options.overlap, .takes_turns = options.turns};
  std::vector<std::size_t> strides;
  if (!options.stride) {
    for (std::size_t k = 1; k <= std::min(groups.size(), longest_stride_tried); ++k) strides.push_back(k);
    strides.push_back(groups.size() + 1);
  } else {
    strides.push_back(*options.stride);
  }
  TapePool pool;
  for (const std::size_t stride : strides) {
    pool.add(simulated(task, with_updates(task.problem, tape, interleaved(groups, stride), copies)));
  }
  return pool;
}

constexpr auto deep_optimizer_states_options = options_of<DeepOptimizerStatesOptions>(
    option_of<&DeepOptimizerStatesOptions::stride>({
        .name = "stride",
        .least = 1,
        .most = 1000,
        .help = "update every stride-th subgroup on the device, the others on the host (1: all on the device; more "
                "than there are subgroups: none); auto: the stride that is the fastest within the budget",
    }),
    option_of<&DeepOptimizerStatesOptions::subgroup>({
        .name = "subgroup",
        .values = "auto or a size, such as 400MB",
        .help = "size of a subgroup: updates join one until their parameters have this many bytes; auto: each update "
                "is a subgroup",
    }),
    option_of<&DeepOptimizerStatesOptions::turns>({
        .name = "turns",
        .words = "off on",
        .values = "on or off",
        .help = "on: the host waits while the device updates, as the authors' loop does; off: both update at once",
    }),
    overlap_option);

std::vector<TapeOutcome> deep_optimizer_states_tapes(const PartTask& task, const DeepOptimizerStatesOptions& options,
                                                     std::span<const std::optional<Bytes>> budgets,
                                                     const Tape* before) {
  return strided_pool(task, options, before).outcomes(budgets, "every stride needs more memory");
}

std::vector<Bytes> deep_optimizer_states_candidates(const PartTask& task, const DeepOptimizerStatesOptions& options) {
  return strided_pool(task, options, nullptr).peaks();
}

}  // namespace

extern constinit const StrategyInfo deep_optimizer_states_strategy{
    .name = "deep_optimizer_states",
    .family = Family::offloading,
    .summary = "interleaves updates on the host with updates on the device, to which optimizer states are copied",
    .source = "Maurya et al., 'Deep Optimizer States', Middleware 2024",
    .needs_updates = true,
    .options = deep_optimizer_states_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<deep_optimizer_states_tapes>,
            .candidates = by_options<deep_optimizer_states_candidates>,
            .moves_parameters = true,
        },
};

}  // namespace plimsoll
