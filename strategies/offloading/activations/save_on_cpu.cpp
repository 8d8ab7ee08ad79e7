#include "strategies/offloading/activations/save_on_cpu.h"

#include <algorithm>

#include "strategies/common/op_sequence.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {
namespace {

std::vector<OffloadMove> saved_moves(const OffloadModel& model) {
  std::vector<OffloadMove> moves;
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    moves.push_back({.item = {g, {}, gap.bytes},
                     .issue = gap.made,
                     .gone = gap.from + 1,
                     .back = gap.until,
                     .copied = gap.made + 1,
                     .arrived = {}});
  }
  std::ranges::stable_sort(moves, {}, &OffloadMove::issue);
  return moves;
}

}  // namespace

std::vector<TapeOutcome> save_on_cpu_tapes(const PartTask& task, const Options&,
                                           std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  if (!model.has_host) return refused(no_host(task), budgets);
  TapePool pool;
  pool.add(planned_moves(task, model, saved_moves(model)));
  if (pool.empty()) return refused("the host has too little memory", budgets);
  return pool.outcomes(budgets, "save_on_cpu has one schedule, whatever the budget");
}

}  // namespace plimsoll
