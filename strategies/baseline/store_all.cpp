#include "strategies/baseline/store_all.h"

#include "strategies/common/chain_pass.h"

namespace plimsoll {

std::vector<TapeOutcome> store_all_tapes(const PartTask& task, const Options&,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return fixed_tape(task, plain_tape(task), store_all_strategy.name, budgets);
}

}  // namespace plimsoll
