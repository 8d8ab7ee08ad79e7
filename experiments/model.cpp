#include "experiments/model.h"

#include "traces/synthetic.h"
#include "validate/network_model.h"
#include "validate/networks/networks.h"

namespace plimsoll {

Trace load_model(const std::string& reference) {
  if (is_network(reference)) return {network_model(reference)};
  return load_trace(reference);
}

bool is_made_by_rule(const std::string& reference) {
  return is_network(reference) || is_synthetic(reference);
}

}  // namespace plimsoll
