// The strategy `deep_optimizer_states`: all states on the host; of every k subgroups of parameters the host updates
// k - 1 while the states of the k-th travel to the device, which updates it. Source: Maurya, Ye, Rafique, Cappello,
// Nicolae, "Deep Optimizer States: towards scalable training of transformer models using interleaved offloading",
// Middleware 2024.

#include <array>

#include "sim/io/quantity.h"
#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/overlap_option.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

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

TapePool strided_pool(const PartTask& task, const Options& options, const Tape* before) {
  const Tape tape = tape_to_update(task, before, "deep_optimizer_states", false);
  const bool each = options.text("subgroup") == "auto";
  const Bytes size = each ? Bytes{0} : parse_bytes(options.text("subgroup")).value;
  const auto groups = subgroups(task.problem, updates_by_gradient(task.problem, tape), size);
  const UpdateCopies copies{.overlaps_backward = options.text("overlap") == "on",
                            .takes_turns = options.text("turns") == "on"};
  std::vector<std::size_t> strides;
  if (options.text("stride") == "auto") {
    for (std::size_t k = 1; k <= std::min(groups.size(), longest_stride_tried); ++k) strides.push_back(k);
    strides.push_back(groups.size() + 1);
  } else {
    strides.push_back(static_cast<std::size_t>(options.integer("stride")));
  }
  TapePool pool;
  for (const std::size_t stride : strides) {
    pool.add(simulated(task, with_updates(task.problem, tape, interleaved(groups, stride), copies)));
  }
  return pool;
}

bool is_auto_or_size(std::string_view text) {
  return text == "auto" || parse_bytes(text).fine();
}

bool is_auto_or_stride(std::string_view text) {
  return text == "auto" || integer_between<1, 1000>(text);
}

constexpr std::array deep_optimizer_states_options{
    OptionInfo{
        .name = "stride",
        .default_value = "auto",
        .values = "auto or a whole number from 1 to 1000",
        .help = "update every stride-th subgroup on the device, the others on the host (1: all on the device; more "
                "than there are subgroups: none); auto: the stride that is the fastest within the budget",
        .allowed = is_auto_or_stride,
    },
    OptionInfo{
        .name = "subgroup",
        .default_value = "auto",
        .values = "auto or a size, such as 400MB",
        .help = "size of a subgroup: updates join one until their parameters have this many bytes; auto: each update "
                "is a subgroup",
        .allowed = is_auto_or_size,
    },
    OptionInfo{
        .name = "turns",
        .default_value = "on",
        .values = "on or off",
        .help = "on: the host waits while the device updates, as the authors' loop does; off: both update at once",
        .allowed = [](std::string_view text) { return text == "on" || text == "off"; },
    },
    overlap_option};

std::vector<TapeOutcome> deep_optimizer_states_tapes(const PartTask& task, const Options& options,
                                                     std::span<const std::optional<Bytes>> budgets,
                                                     const Tape* before) {
  return strided_pool(task, options, before).outcomes(budgets, "every stride needs more memory");
}

std::vector<Bytes> deep_optimizer_states_candidates(const PartTask& task, const Options& options) {
  return strided_pool(task, options, nullptr).peaks();
}

}  // namespace

extern constinit const StrategyInfo deep_optimizer_states_strategy{
    .name = "deep_optimizer_states",
    .family = Family::offloading,
    .summary = "interleaves updates on the host with updates on the device, to which optimizer states are copied",
    .source = "Maurya et al., 'Deep Optimizer States', Middleware 2024",
    .chains_only = false,
    .options = deep_optimizer_states_options,
    .tapes = deep_optimizer_states_tapes,
    .candidates = deep_optimizer_states_candidates,
    .needs_updates = true,
    .moves_parameters = true,
};

}  // namespace plimsoll
