// The strategy `twinflow`: a fixed share of the updates on the host, the rest on the device with their states.
// Source: "ZeRO-Offload++: TwinFlow", DeepSpeed, 2023.

#include <cstdint>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

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

TapePool twinflow_pool(const PartTask& task, const TwinflowOptions& options, const Tape* before) {
  const Tape tape = tape_to_update(task, before, "twinflow", false);
  const std::vector<OpId> updates = updates_by_gradient(task.problem, tape);
  const UpdateCopies copies{.overlaps_backward = options.overlap};
  std::vector<std::int64_t> percentages;
  if (!options.host) {
    for (std::int64_t tenth = 0; tenth <= 10; ++tenth) percentages.push_back(10 * tenth);
  } else {
    percentages.push_back(percent(*options.host));
  }
  TapePool pool;
  for (const std::int64_t percentage : percentages) {
    pool.add(simulated(task, with_updates(task.problem, tape, split(task.problem, updates, percentage), copies)));
  }
  return pool;
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

std::vector<TapeOutcome> twinflow_tapes(const PartTask& task, const TwinflowOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return twinflow_pool(task, options, before).outcomes(budgets, "every share of updates on the host needs more memory");
}

std::vector<Bytes> twinflow_candidates(const PartTask& task, const TwinflowOptions& options) {
  return twinflow_pool(task, options, nullptr).peaks();
}

}  // namespace

extern constinit const StrategyInfo twinflow_strategy{
    .name = "twinflow",
    .family = Family::offloading,
    .summary = "updates a share of the parameters on the host and the rest on the device",
    .source = "DeepSpeed, 'ZeRO-Offload++: TwinFlow', 2023",
    .needs_updates = true,
    .options = twinflow_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<twinflow_tapes>,
            .candidates = by_options<twinflow_candidates>,
            .moves_parameters = true,
        },
};

}  // namespace plimsoll
