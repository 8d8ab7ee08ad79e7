#pragma once
// NCCL's communicators of groups of this machine's GPUs, made when a group is first asked for.

#include <nccl.h>

#include <map>
#include <string>
#include <vector>

#include "validate/cuda/cuda_error.h"
#include "validate/cuda/cuda_objects.h"

namespace plimsoll {

void check_cuda(ncclResult_t, const char* call);

class Communicators {
 public:
  /// Throws BackendError where there is no NCCL.
  Communicators();

  /// By place in the group; GPUs in its order.
  std::vector<ncclComm_t> of(const std::vector<int>& gpus);

 private:
  using OwnedCommunicator = Owned<ncclComm_t, ncclCommDestroy>;
  std::map<std::vector<int>, std::vector<OwnedCommunicator>> made_;
};

/// Calls between its making and end() are one, for all ranks of this thread.
class NcclCalls {
 public:
  NcclCalls() { CUDA_CHECK(ncclGroupStart()); }
  ~NcclCalls() {
    if (is_open_) static_cast<void>(ncclGroupEnd());  // what failed has been told
  }
  NcclCalls(const NcclCalls&) = delete;
  NcclCalls& operator=(const NcclCalls&) = delete;

  void end() {
    is_open_ = false;
    CUDA_CHECK(ncclGroupEnd());
  }

 private:
  bool is_open_ = true;
};

/// "NCCL 2.28.3".
std::string nccl_version();

}  // namespace plimsoll
