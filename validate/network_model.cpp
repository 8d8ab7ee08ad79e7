#include "validate/network_model.h"

#include "validate/networks/step_program.h"

namespace plimsoll {

std::variant<Chain, Graph> model_of(const Network& network, View view) {
  if (view == View::chain) return chain_of(network);
  return network.graph;
}

}  // namespace plimsoll
