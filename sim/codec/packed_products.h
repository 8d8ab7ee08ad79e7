#pragma once
// Products for the gradient of a weight that are computed on the packed form of their input: rows of a sample, sums of
// rows, blocks of a matrix, blocks of pixels. What is left out of the form is left out of the product.

#include <optional>

#include "sim/core/codec.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct OnPacked {
  Seconds duration;
  Bytes workspace;  ///< beside the op's own: of its result's gradient, the rows or the means that the product takes
};

/// What the op takes on the device where it reads this form of an input; nothing where its time is that of the value.
/// A product takes its share of the flops (share_of_products), at the codec's share of the rate, and reads the packed
/// form in the value's place. Rows and pixels of the gradient are gathered, added up or pooled first, by one more
/// kernel. A time that was measured is taken in proportion to the flops; of an op that also makes the gradient of its
/// input, half is the product's.
std::optional<OnPacked> on_packed(const Problem&, OpId, DeviceId, TensorId input, const Codec&);

}  // namespace plimsoll
