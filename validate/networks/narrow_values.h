#pragma once
// Networks whose values are bf16. Inputs, activations and their gradients are; parameters, their gradients, states of
// optimizers and statistics stay fp32, as do the loss's probabilities, the sums of fused attention, and chances by
// which experts are chosen.

#include <optional>

#include "validate/networks/builders.h"

namespace plimsoll {

/// Of a kind of op: products round their parameters to bf16, and sum in fp32; all others compute in fp32.
enum class BfloatUse : std::uint8_t { product, others };

/// Nothing where the kind is not known in bf16.
std::optional<BfloatUse> bfloat_use(const Op&);

/// The first op whose kind is not known in bf16; null: the network can have such values.
const Op* op_without_bf16(const Network&);

/// `op_without_bf16` must be null. Work and traffic are stated anew.
void narrow_values(Network&, const StatedRates&);

}  // namespace plimsoll
