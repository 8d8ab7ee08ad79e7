#include "validate/cuda/cuda_error.h"

#include <string_view>

#include "validate/cuda/library_error.h"

namespace plimsoll {

std::string cuda_error_text(const char* call, const std::string& name, const std::string& text) {
  const std::string_view whole = call;
  return std::string(whole.substr(0, whole.find('('))) + " failed: " + name + (text.empty() ? "" : " (" + text + ")");
}

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw CudaError(cuda_error_text(call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

void check_cuda(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(cuda_error_text(call, cublasLtGetStatusName(status), ""));
}

void check_cuda(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw CudaError(cuda_error_text(call, cudnnGetErrorString(status), ""));
}

}  // namespace plimsoll
