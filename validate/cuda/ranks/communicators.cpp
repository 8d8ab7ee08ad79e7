#include "validate/cuda/ranks/communicators.h"

#include <fmt/format.h>

#include "validate/cuda/load_libraries.h"

namespace plimsoll {

void check_cuda(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw CudaError(cuda_error_text(call, ncclGetErrorString(status), ""));
}

Communicators::Communicators() {
  load_nccl();
}

std::vector<ncclComm_t> Communicators::of(const std::vector<int>& gpus) {
  std::vector<OwnedCommunicator>& own = made_[gpus];
  if (own.empty()) {
    std::vector<ncclComm_t> made(gpus.size());
    CUDA_CHECK(ncclCommInitAll(made.data(), static_cast<int>(made.size()), gpus.data()));
    for (ncclComm_t each : made) own.emplace_back(each);
  }
  std::vector<ncclComm_t> all;
  for (const OwnedCommunicator& each : own) all.push_back(*each);
  return all;
}

std::string nccl_version() {
  int version = 0;
  CUDA_CHECK(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace plimsoll
