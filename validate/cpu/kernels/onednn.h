#pragma once
// What all oneDNN kernels share: memory descriptions of our tensors, one engine, scratch from the caller.

#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "validate/cpu/kernels/kernel.h"

namespace plimsoll {

using Dims = dnnl::memory::dims;

const dnnl::engine& cpu_engine();

using NumberType = dnnl::memory::data_type;

/// fp32 or bf16.
NumberType type_of(const Tensor&);

/// Row after row, the last dimension fastest.
dnnl::memory::desc dense(const Dims&, NumberType = NumberType::f32);
dnnl::memory::desc strided(const Dims&, const Dims& strides, NumberType = NumberType::f32);

/// Scratch comes from the caller, so that its size is known to the byte.
dnnl::primitive_attr own_scratch();

/// Which of the op's tensors goes where: a oneDNN argument, its description, and an offset.
struct Bound {
  int argument = 0;
  dnnl::memory::desc desc;
  bool is_output = false;
  std::size_t index = 0;
  std::int64_t offset = 0;  ///< in bytes
};

/// A primitive on the op's tensors, its scratch beginning at `scratch_offset` bytes of the kernel's.
Kernel bound_kernel(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch, std::vector<Bound> bindings);

/// The pieces of the above, for kernels that are more than one primitive.
void execute(const dnnl::primitive& primitive, const std::vector<std::pair<int, dnnl::memory>>& arguments);
dnnl::memory at(const dnnl::memory::desc&, const void* address);

}  // namespace plimsoll
