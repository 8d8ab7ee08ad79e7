// The strategy `save_on_cpu`: every tensor that the forward saves for the backward is copied to the host when it is
// made, and back when the backward wants it; nothing else runs meanwhile. The baseline that users have. Source:
// PyTorch, torch.autograd.graph.save_on_cpu, whose hooks copy on the compute stream.

#include <algorithm>

#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_moves.h"

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

std::vector<TapeOutcome> save_on_cpu_tapes(const PartTask& task, const Options&,
                                           std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  if (!model.has_host) return refused(no_host(task), budgets);
  Front pool;
  pool.add(planned_moves(task, model, saved_moves(model)));
  if (pool.empty()) return refused("the host has too little memory", budgets);
  return pool.outcomes(budgets, "save_on_cpu has one schedule, whatever the budget");
}

}  // namespace

extern constinit const StrategyInfo save_on_cpu_strategy{
    .name = "save_on_cpu",
    .family = Family::offloading,
    .summary = "copies every saved tensor to the host and back, and computes nothing during a copy",
    .source = "PyTorch, torch.autograd.graph.save_on_cpu",
    .kind = TapeStrategy{.tapes = save_on_cpu_tapes},
};

}  // namespace plimsoll
