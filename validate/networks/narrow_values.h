#pragma once
// Networks whose values are bf16. Inputs, activations and their gradients are; parameters, their gradients, states of
// optimizers and statistics stay fp32, as do the loss's probabilities, the sums of fused attention, and chances by
// which experts are chosen. With products in fp8, linear layers also round both operands of each product to 8 bits
// before they multiply.

#include <optional>
#include <string>

#include "validate/networks/builders.h"
#include "validate/networks/fp8.h"

namespace plimsoll {

/// Of a kind of op: products round their parameters to bf16, and sum in fp32; all others compute in fp32.
enum class BfloatUse : std::uint8_t { product, others };

/// Nothing where the kind is not known in bf16.
std::optional<BfloatUse> bfloat_use(const Op&);

/// The first op whose kind is not known in bf16; null: the network can have such values.
const Op* op_without_bf16(const Network&);

/// `op_without_bf16` must be null. Work and traffic are stated anew.
void narrow_values(Network&, const StatedRates&);

/// Gives each linear layer and its gradients products in fp8, all but those that choose: what the loss or a softmax
/// reads. The values must be bf16. Says why it cannot: there are none, or sizes that 16 does not divide.
std::optional<std::string> products_in_fp8(Network&, const StatedRates&);

/// What an operand of a product in fp8 is rounded to. Nothing of other operands and ops.
std::optional<In8Bits> rounded_operand(const Op&, std::size_t input);

}  // namespace plimsoll
