#include "sim/core/chain.h"

#include "sim/core/expects.h"

namespace plimsoll {

Bytes boundary_bytes(const Chain& chain, std::size_t i) {
  EXPECTS(i <= chain.stages.size());
  return i == 0 ? chain.input : chain.stages[i - 1].output;
}

Bytes parameter_bytes(const Chain& chain) {
  Bytes sum;
  for (const Parameter& parameter : chain.parameters) sum += parameter.bytes;
  return sum;
}

}  // namespace plimsoll
