#include "strategies/offloading/updates/deep_optimizer_states.h"

#include "sim/io/quantity.h"
#include "strategies/common/option_rules.h"
#include "strategies/offloading/activations/tape_pool.h"
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
  const Tape tape = tape_to_update(task, before, deep_optimizer_states_strategy.name, false);
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

}  // namespace

bool is_auto_or_size(std::string_view text) {
  return text == "auto" || parse_bytes(text).fine();
}

bool is_auto_or_stride(std::string_view text) {
  return text == "auto" || integer_between<1, 1000>(text);
}

std::vector<TapeOutcome> deep_optimizer_states_tapes(const PartTask& task, const Options& options,
                                                     std::span<const std::optional<Bytes>> budgets,
                                                     const Tape* before) {
  return strided_pool(task, options, before).outcomes(budgets, "no stride of updates on the device needs so little");
}

std::vector<Bytes> deep_optimizer_states_candidates(const PartTask& task, const Options& options) {
  return strided_pool(task, options, nullptr).peaks();
}

}  // namespace plimsoll
