#include "validate/network_model.h"

#include "validate/cpu/cpu_network.h"
#include "validate/networks/networks.h"
#include "validate/networks/step_program.h"

namespace plimsoll {

std::variant<Chain, Graph> network_model(std::string_view reference) {
  NamedNetwork named = named_network(reference);
  CpuNetwork made = with_kernels(std::move(named.network));
  if (named.view == View::chain) return chain_of(made.network);
  return std::move(made.network.graph);
}

}  // namespace plimsoll
