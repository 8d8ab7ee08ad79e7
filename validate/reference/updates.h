#pragma once
// Updates of parameters as plain loops, bound to an op: on the CPU, and on the host beside a GPU.

#include <functional>

#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

/// Nothing to call where the op is no update, or one that is not known.
std::function<void(const KernelArguments&)> plain_update(const Graph&, const Op&);

}  // namespace plimsoll
