#pragma once
// Kernels of ops whose values are bf16 (validate/networks/narrow_values.h).

#include "validate/cuda/cuda_kernel.h"
#include "validate/networks/bf16.h"

namespace plimsoll {

using CudaKernelMaker = CudaKernel (*)(const Graph&, const Op&, const Libraries&);

/// Of a tensor, as the libraries name it.
cudaDataType_t number_type(const Tensor&);

/// What `make` makes with numbers as the tensor's.
template <class Make>
CudaKernel by_number(const Tensor& tensor, Make make) {
  return is_bf16(tensor) ? make(Bf16{}) : make(float{});
}

/// Of a product whose first input decides the type: where that is bf16, its parameters, all inputs in fp32, are rounded
/// anew into the scratch.
CudaKernel with_rounded_parameters(const Graph&, const Op&, CudaKernel);

/// In bf16 where the kind has such a kernel here, and the library too; else in fp32 on copies in the scratch: inputs
/// are widened, parameters of products rounded to bf16 first, results rounded once. Nothing where the kind is not known
/// in bf16.
std::optional<CudaKernel> narrow_cuda_kernel(const Graph&, const Op&, const Libraries&, CudaKernelMaker);

}  // namespace plimsoll
