#include "experiments/study/model.h"

#include <fmt/format.h>

#include "experiments/study/backends.h"
#include "sim/io/input_error.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/synthetic.h"
#include "traces/models/synthetic_graphs.h"
#include "validate/network_model.h"
#include "validate/networks/networks.h"

namespace plimsoll {

Trace load_model(const std::string& reference) {
  if (is_network(reference)) {
    NamedNetwork named = named_network(reference);
    const std::unique_ptr<Backend> backend = make_backend(named.kernels, {});
    return {model_of(backend->prepared(std::move(named.network))->network(), named.view)};
  }
  return load_trace(reference, network_names());
}

std::vector<ReferenceNumber> model_numbers(const std::string& reference) {
  if (is_network(reference)) return network_numbers(reference);
  if (is_synthetic(reference)) return synthetic_numbers(reference);
  if (is_synthetic_graph(reference)) return synthetic_graph_numbers(reference);
  return framework_numbers(reference);
}

bool is_made_by_rule(const std::string& reference) {
  return is_network(reference) || is_synthetic(reference) || is_synthetic_graph(reference) ||
         is_framework_graph(reference);
}

Evaluation sized_for(const std::string& reference, Evaluation evaluation) {
  if (!evaluation.samples) return evaluation;
  const std::vector<ReferenceNumber> numbers = model_numbers(reference);
  const ReferenceNumber* batch = number_named(numbers, "batch");
  if (batch == nullptr || batch->value == 0) {
    throw InputError(fmt::format("--evaluate: samples={}: how many samples a micro-batch of '{}' has is not known",
                                 *evaluation.samples, reference));
  }
  evaluation.size = static_cast<double>(*evaluation.samples) / static_cast<double>(batch->value);
  return evaluation;
}

}  // namespace plimsoll
