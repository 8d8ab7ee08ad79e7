#pragma once
// The same check for cuBLASLt and cuDNN, whose headers kernels do not need.

#include <cublasLt.h>
#include <cudnn.h>

#include "validate/cuda/cuda_error.h"

namespace plimsoll {

void check_cuda(cublasStatus_t, const char* call);
void check_cuda(cudnnStatus_t, const char* call);

}  // namespace plimsoll
