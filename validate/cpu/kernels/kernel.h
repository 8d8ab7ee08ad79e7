#pragma once
// One op of a network as the CPU runs it: oneDNN where it has the kernel, plain loops for the rest; one thread, the
// same bits every time.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

struct Kernel {
  std::function<void(const KernelArguments&)> run;
  Bytes scratch;                        ///< what it needs beside inputs and outputs
  std::vector<std::int32_t> rows = {};  ///< of a loss on a rank: which of the batch's rows are its own; none: all
};

/// The kernel of an op, or nothing where the CPU backend has none of its kind.
std::optional<Kernel> make_kernel(const Graph&, const Op&);

/// Called once in every thread that makes or runs kernels: oneDNN computes with that thread alone.
void use_one_thread();

/// Version of oneDNN, for the record of a measurement.
std::string kernel_library();

}  // namespace plimsoll
