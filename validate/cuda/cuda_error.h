#pragma once
// Every call of CUDA and its libraries is checked: what fails becomes an exception that names the call.

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace plimsoll {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// `call` is the source text; the function's name is what the message shows.
void check_cuda(cudaError_t, const char* call);

/// "cudaMalloc failed: cudaErrorMemoryAllocation (out of memory)".
std::string cuda_error_text(const char* call, const std::string& name, const std::string& text);

}  // namespace plimsoll

#define CUDA_CHECK(call) ::plimsoll::check_cuda((call), #call)
