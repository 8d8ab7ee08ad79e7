#pragma once
// Makers of kernels, by family; each returns nothing for a kind that is not its own.

#include <optional>

#include "validate/cpu/kernel.h"

namespace plimsoll {

std::optional<Kernel> product_kernel(const Graph&, const Op&);        ///< linear, attention
std::optional<Kernel> convolution_kernel(const Graph&, const Op&);    ///< convolution and pooling
std::optional<Kernel> normalization_kernel(const Graph&, const Op&);  ///< batch norm, layer norm
std::optional<Kernel> elementwise_kernel(const Graph&, const Op&);    ///< ReLU, GELU, softmax, add
std::optional<Kernel> loss_kernel(const Graph&, const Op&);           ///< embedding, cross-entropy
std::optional<Kernel> lstm_kernel(const Graph&, const Op&);
std::optional<Kernel> optimizer_kernel(const Graph&, const Op&);

}  // namespace plimsoll
