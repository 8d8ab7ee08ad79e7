// The strategy `backward_updates`: every update runs within the backward, as soon as its gradient is complete and no op
// reads the old parameter any more; the gradient dies at once. Sources: Lv, Yang, Liu, Gao, Guo, Qiu, "Full parameter
// fine-tuning for large language models with limited resources" (LOMO), ACL 2024; per-layer weight updates of Zhao et
// al., GaLore, ICML 2024; PyTorch, `Tensor.register_post_accumulate_grad_hook`.

#include "sim/io/input_error.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

Tape tape_of(const PartTask& task, const Tape* before) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError("backward_updates: works on one device and the whole graph only");
  }
  if (before == nullptr) return planned_ops(task, store_all_ops(task)).tape;
  if (!before->end.empty()) throw InputError("backward_updates: the pass before places the updates already");
  return *before;
}

std::vector<TapeOutcome> backward_updates_tapes(const PartTask& task, const Options&,
                                                std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  TapePool pool;
  pool.add(simulated(task, with_updates_in_backward(task.problem, tape_of(task, before))));
  return pool.outcomes(budgets, "backward_updates has one schedule, whatever the budget");
}

}  // namespace

extern constinit const StrategyInfo backward_updates_strategy{
    .name = "backward_updates",
    .family = Family::offloading,
    .summary = "updates each parameter within the backward, so that its gradient dies at once",
    .source = "Lv et al., LOMO, ACL 2024; Zhao et al., GaLore, ICML 2024",
    .needs_updates = true,
    .kind = TapeStrategy{.tapes = backward_updates_tapes, .moves_parameters = true},
};

}  // namespace plimsoll
