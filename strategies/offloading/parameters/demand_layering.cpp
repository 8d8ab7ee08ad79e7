// The strategy `demand_layering`: parameters live on the host or a disk and stream to the device layer by layer, ahead
// of their use in the forward and again in the backward. Source: Ji, Lee, Kim, Kim, Ahn, Kim, Kim, "Demand Layering for
// real-time DNN inference with minimized memory usage", RTSS 2022; the backward and the updates are own.

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/parameters/streamed_parameters.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

struct DemandLayeringOptions : HostUpdateOptions {
  std::optional<std::uint32_t> lead;
  bool from_disk = false;
};

constexpr std::uint32_t buffers_on_host = 2;  // of updates by way of a disk

std::size_t computes(const Tape& tape) {
  return static_cast<std::size_t>(std::ranges::count(tape.actions, ActionKind::run, &Action::kind));
}

/// 0, 1, 2, 4, .. until everything is there from the start.
std::vector<std::uint32_t> leads(const DemandLayeringOptions& options, std::size_t positions) {
  if (options.lead) return {*options.lead};
  std::vector<std::uint32_t> list{0};
  for (std::uint32_t lead = 1; lead < 2 * positions; lead *= 2) list.push_back(lead);
  return list;
}

TapePool layering_pool(const PartTask& task, const DemandLayeringOptions& options, const Tape* before) {
  const bool from_disk = options.from_disk;
  const Tape tape = tape_to_update(task, before, "demand_layering", from_disk);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), from_disk ? UpdateSite::disk : UpdateSite::host};
  const UpdateCopies copies{.overlaps_backward = options.overlap, .on_host_at_once = buffers_on_host};
  TapePool pool;
  for (const std::uint32_t lead : leads(options, computes(tape))) {
    Tape made = with_streamed_parameters(
        task.problem, tape, {.parameters = parameters_read(task.problem, tape), .lead = lead, .from_disk = from_disk});
    made = all.ops.empty() ? with_gradients_on_host(task.problem, std::move(made))
                           : with_updates(task.problem, std::move(made), std::span(&all, 1), copies);
    pool.add(simulated(task, std::move(made)));
  }
  return pool;
}

constexpr auto demand_layering_options = options_of<DemandLayeringOptions>(
    option_of<&DemandLayeringOptions::lead>({
        .name = "lead",
        .least = 0,
        .most = 1'000'000,
        .values = "auto or a whole number",
        .help = "how many layers ahead copying starts: 0 only when needed, 1 double buffering, 2 triple; auto: the "
                "lead that is the fastest within the budget",
    }),
    option_of<&DemandLayeringOptions::from_disk>({
        .name = "from",
        .words = "host disk",
        .help = "memory where parameters and optimizer states live between iterations; from a disk they are copied to "
                "the host first, with the same lead",
    }),
    overlap_option);

std::vector<TapeOutcome> demand_layering_tapes(const PartTask& task, const DemandLayeringOptions& options,
                                               std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return layering_pool(task, options, before).outcomes(budgets, "not even one layer's parameters at a time fit");
}

std::vector<Bytes> demand_layering_candidates(const PartTask& task, const DemandLayeringOptions& options) {
  return layering_pool(task, options, nullptr).peaks();
}

}  // namespace

extern constinit const StrategyInfo demand_layering_strategy{
    .name = "demand_layering",
    .family = Family::offloading,
    .summary = "streams parameters to the device layer by layer and updates them on the host",
    .source = "Ji et al., 'Demand Layering for real-time DNN inference with minimized memory usage', RTSS 2022",
    .options = demand_layering_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<demand_layering_tapes>,
            .candidates = by_options<demand_layering_candidates>,
            .moves_parameters = true,
        },
};

}  // namespace plimsoll
