#pragma once
// One op of a network as the CPU runs it: oneDNN where it has the kernel, plain loops for the rest; one thread, the
// same bits every time.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// Addresses of an op's tensors, in the order in which its kind states them.
struct KernelArguments {
  std::vector<void*> inputs, outputs;
  void* scratch = nullptr;
  float* statistics = nullptr;  ///< running statistics to move along, or null: leave them

  const float* in(std::size_t i) const { return static_cast<const float*>(inputs[i]); }
  float* out(std::size_t i = 0) const { return static_cast<float*>(outputs[i]); }
};

struct Kernel {
  std::function<void(const KernelArguments&)> run;
  Bytes scratch;  ///< what it needs beside inputs and outputs
};

/// The kernel of an op, or nothing where the CPU backend has none of its kind.
std::optional<Kernel> make_kernel(const Graph&, const Op&);

/// The value of an attribute; a broken promise where the op has none.
std::string_view attribute(const Op&, std::string_view name);
std::int64_t whole_attribute(const Op&, std::string_view name);

/// Called once in every thread that makes or runs kernels: oneDNN computes with that thread alone.
void use_one_thread();

/// Version of oneDNN, for the record of a measurement.
std::string kernel_library();

}  // namespace plimsoll
