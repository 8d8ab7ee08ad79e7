// Where updates of parameters run: `backward_updates`, `zero_offload`, `twinflow`, `zero_infinity` and
// `deep_optimizer_states`.

#include <cstdint>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

Tape tape_of(const PartTask& task, const Tape* before) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError("backward_updates: works on one device and the whole graph only");
  }
  if (before == nullptr) return tape_of_ops(task.problem.graph, store_all_ops(task));
  if (!before->end.empty()) throw InputError("backward_updates: the pass before places the updates already");
  return *before;
}

std::vector<TapeOutcome> backward_updates_tapes(const PartTask& task, const Options&,
                                                std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Front pool;
  pool.add(simulated(task, with_updates_in_backward(task.problem, tape_of(task, before))));
  return pool.outcomes(budgets, "backward_updates has one schedule, whatever the budget");
}

constexpr auto zero_offload_options = options_of<HostUpdateOptions>(overlap_option);

std::vector<TapeOutcome> zero_offload_tapes(const PartTask& task, const HostUpdateOptions& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, "zero_offload", false);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::host};
  const UpdateCopies copies{.overlaps_backward = options.overlap};
  Front pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_offload has one schedule, whatever the budget");
}

struct TwinflowOptions : HostUpdateOptions {
  std::optional<std::string> host;  ///< such as 40%
};

/// Of "40%": 40.
std::int64_t percent(std::string_view text) {
  std::int64_t number = 0;
  for (const char c : text.substr(0, text.size() - 1)) number = number * 10 + (c - '0');
  return number;
}

/// The first updates of at least `percentage` of the parameter bytes on the host.
std::vector<UpdateGroup> split(const Problem& problem, const std::vector<OpId>& updates, std::int64_t percentage) {
  Bytes all, on_host;
  for (const OpId op : updates) all += parameter_bytes(problem, op);
  std::vector<UpdateGroup> groups{{{}, UpdateSite::host}, {{}, UpdateSite::device}};
  for (const OpId op : updates) {
    const bool enough = on_host.count >= all.count / 100 * percentage + all.count % 100 * percentage / 100;
    groups[enough ? 1 : 0].ops.push_back(op);
    if (!enough) on_host += parameter_bytes(problem, op);
  }
  return groups;
}

Plans twinflow_plans(const PartTask& task, const TwinflowOptions& options, const Tape* before) {
  const Tape tape = tape_to_update(task, before, "twinflow", false);
  const std::vector<OpId> updates = updates_by_gradient(task.problem, tape);
  const UpdateCopies copies{.overlaps_backward = options.overlap};
  std::vector<std::int64_t> percentages;
  if (!options.host) {
    for (std::int64_t tenth = 0; tenth <= 10; ++tenth) percentages.push_back(10 * tenth);
  } else {
    percentages.push_back(percent(*options.host));
  }
  Front pool;
  for (const std::int64_t percentage : percentages) {
    pool.add(simulated(task, with_updates(task.problem, tape, split(task.problem, updates, percentage), copies)));
  }
  return {std::move(pool), "every share of updates on the host needs more memory"};
}

bool is_percentage(std::string_view text) {
  if (text.size() < 2 || text.size() > 4 || text.back() != '%') return false;
  if (text.substr(0, text.size() - 1).find_first_not_of("0123456789") != std::string_view::npos) return false;
  return percent(text) <= 100;
}

constexpr auto twinflow_options = options_of<TwinflowOptions>(
    option_of<&TwinflowOptions::host>({
        .name = "host",
        .values = "auto or a percentage from 0% to 100%",
        .help = "share of the parameter bytes that the host updates, in the order in which gradients arrive; auto: the "
                "share that is the fastest within the budget",
        .allowed = is_percentage,
    }),
    overlap_option);

struct ZeroInfinityOptions {
  std::uint32_t buffers = 2;
};

constexpr auto zero_infinity_options = options_of<ZeroInfinityOptions>(option_of<&ZeroInfinityOptions::buffers>({
    .name = "buffers",
    .least = 1,
    .most = 64,
    .help = "number of updates whose states and parameters are in the host's memory at one time; 2 or more: one "
            "update is read while another runs",
}));

std::vector<TapeOutcome> zero_infinity_tapes(const PartTask& task, const ZeroInfinityOptions& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  Tape tape = tape_to_update(task, before, "zero_infinity", true);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), UpdateSite::disk};
  const UpdateCopies copies{.on_host_at_once = options.buffers};
  Front pool;
  pool.add(simulated(task, with_updates(task.problem, std::move(tape), std::span(&all, 1), copies)));
  return pool.outcomes(budgets, "zero_infinity has one schedule, whatever the budget");
}

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

Plans deep_optimizer_states_plans(const PartTask& task, const DeepOptimizerStatesOptions& options, const Tape* before) {
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
  Front pool;
  for (const std::size_t stride : strides) {
    pool.add(simulated(task, with_updates(task.problem, tape, interleaved(groups, stride), copies)));
  }
  return {std::move(pool), "every stride needs more memory"};
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

}  // namespace

// The strategy `backward_updates`: every update runs within the backward, as soon as its gradient is complete and no op
// reads the old parameter any more; the gradient dies at once. Sources: Lv, Yang, Liu, Gao, Guo, Qiu, "Full parameter
// fine-tuning for large language models with limited resources" (LOMO), ACL 2024; per-layer weight updates of Zhao et
// al., GaLore, ICML 2024; PyTorch, `Tensor.register_post_accumulate_grad_hook`.
extern constinit const StrategyInfo backward_updates_strategy{
    .name = "backward_updates",
    .family = Family::offloading,
    .summary = "updates each parameter within the backward, so that its gradient dies at once",
    .source = "Lv et al., LOMO, ACL 2024; Zhao et al., GaLore, ICML 2024",
    .needs_updates = true,
    .kind = TapeStrategy{.tapes = backward_updates_tapes, .moves_parameters = true},
};

// The strategy `zero_offload`: optimizer states on the host; gradients leave during the backward, the host's processor
// updates its copy of the parameters, which come back. Source: Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li,
// He, "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021.
extern constinit const StrategyInfo zero_offload_strategy{
    .name = "zero_offload",
    .family = Family::offloading,
    .summary = "keeps optimizer states on the host and updates the parameters there",
    .source = "Ren et al., 'ZeRO-Offload: democratizing billion-scale model training', USENIX ATC 2021",
    .needs_updates = true,
    .options = zero_offload_options,
    .kind = TapeStrategy{.tapes = by_options<zero_offload_tapes>, .moves_parameters = true},
};

// The strategy `twinflow`: a fixed share of the updates on the host, the rest on the device with their states.
// Source: "ZeRO-Offload++: TwinFlow", DeepSpeed, 2023.
extern constinit const StrategyInfo twinflow_strategy{
    .name = "twinflow",
    .family = Family::offloading,
    .summary = "updates a share of the parameters on the host and the rest on the device",
    .source = "DeepSpeed, 'ZeRO-Offload++: TwinFlow', 2023",
    .needs_updates = true,
    .options = twinflow_options,
    .kind = planned_at_once<TwinflowOptions, twinflow_plans>({.moves_parameters = true}),
};

// The strategy `zero_infinity`: as zero_offload, with states and the host's copy of the parameters on a disk between
// updates, of which few are in the host's memory at once. Source: Rajbhandari, Ruwase, Rasley, Smith, He,
// "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning", SC 2021.
extern constinit const StrategyInfo zero_infinity_strategy{
    .name = "zero_infinity",
    .family = Family::offloading,
    .summary = "keeps optimizer states on a disk and updates the parameters on the host, a few at a time",
    .source = "Rajbhandari et al., 'ZeRO-Infinity: breaking the GPU memory wall', SC 2021",
    .needs_updates = true,
    .options = zero_infinity_options,
    .kind = TapeStrategy{.tapes = by_options<zero_infinity_tapes>, .moves_parameters = true},
};

// The strategy `deep_optimizer_states`: all states on the host; of every k subgroups of parameters the host updates
// k - 1 while the states of the k-th travel to the device, which updates it. Source: Maurya, Ye, Rafique, Cappello,
// Nicolae, "Deep Optimizer States: towards scalable training of transformer models using interleaved offloading",
// Middleware 2024.
extern constinit const StrategyInfo deep_optimizer_states_strategy{
    .name = "deep_optimizer_states",
    .family = Family::offloading,
    .summary = "interleaves updates on the host with updates on the device, to which optimizer states are copied",
    .source = "Maurya et al., 'Deep Optimizer States', Middleware 2024",
    .needs_updates = true,
    .options = deep_optimizer_states_options,
    .kind = planned_at_once<DeepOptimizerStatesOptions, deep_optimizer_states_plans>({.moves_parameters = true}),
};

}  // namespace plimsoll
