#include "strategies/offloading/activations/offload_plans.h"

#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_store.h"

namespace plimsoll {

std::vector<TapeOutcome> best_plans(const PartTask& task, const OffloadOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before,
                                    const PlansFunction& plans) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  return with_fluid_gaps(task, model, budgets, plans(model).outcomes(budgets, "no more than this can be offloaded"));
}

std::vector<Bytes> peaks_of_plans(const PartTask& task, const OffloadOptions& options, const PlansFunction& plans) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr, offload_store(task, options));
  if (std::holds_alternative<std::string>(model)) return {};
  return plans(std::get<OffloadModel>(model)).peaks();
}

}  // namespace plimsoll
