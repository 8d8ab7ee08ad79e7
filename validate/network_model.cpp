#include "validate/network_model.h"

#include "validate/cpu/cpu_network.h"
#include "validate/networks/step_program.h"

namespace plimsoll {

std::variant<Chain, Graph> model_of(const Network& network, View view) {
  if (view == View::chain) return chain_of(network);
  return network.graph;
}

std::variant<Chain, Graph> network_model(std::string_view reference) {
  NamedNetwork named = named_network(reference);
  return model_of(with_kernels(std::move(named.network)).network, named.view);
}

}  // namespace plimsoll
