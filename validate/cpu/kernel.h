#pragma once
// One op of a network as the CPU runs it: oneDNN where it has the kernel, plain loops for the rest; one thread, the
// same bits every time.

#include <functional>
#include <optional>
#include <string>

#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

struct Kernel {
  std::function<void(const KernelArguments&)> run;
  Bytes scratch;  ///< what it needs beside inputs and outputs
};

/// The kernel of an op, or nothing where the CPU backend has none of its kind.
std::optional<Kernel> make_kernel(const Graph&, const Op&);

/// Called once in every thread that makes or runs kernels: oneDNN computes with that thread alone.
void use_one_thread();

/// Version of oneDNN, for the record of a measurement.
std::string kernel_library();

}  // namespace plimsoll
