#include "experiments/study/model.h"

#include "experiments/study/backends.h"
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
  return load_trace(reference);
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

}  // namespace plimsoll
