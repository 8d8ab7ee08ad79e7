#pragma once
// What ops can do with a packed form as it is, and what a product for a weight's gradient takes that is computed on
// one, counted a second time by the numbers that are multiplied.

#include <cstdint>
#include <optional>

#include "sim/judge/walk.h"

namespace plimsoll {

enum class Does : std::uint8_t { with_packed, with_packed_beside, without };

/// Of what a ReLU has made, its gradient takes the signs alone.
bool is_gradient_of_relu(const Op&);

/// Where a stage says how its layers use a value: all of them can do with the packed form, or some.
Does does(const Walk&, const Op&, BufferId packed);

/// Whether the step reads a packed form that the layer can do with.
bool is_served(const Walk&, const Step&, const InputUse&);

/// What a step takes that computes a product on a packed form.
struct ProductCost {
  std::optional<double> seconds;
  std::int64_t workspace = 0;  ///< beside the op's own
};
/// Nothing for another step.
std::optional<ProductCost> product_on_packed(const Walk&, const Step&);

}  // namespace plimsoll
