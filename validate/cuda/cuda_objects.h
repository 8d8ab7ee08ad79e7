#pragma once
// What CUDA and its libraries hand out, released when its owner dies.

#include <utility>

#include "validate/cuda/library_error.h"

namespace plimsoll {

/// A failure to release is not told: it follows an error that has been, or the program ends.
template <class Handle, auto destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != Handle{}) static_cast<void>(destroy(handle_));
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle operator*() const { return handle_; }

 private:
  Handle handle_{};
};

using OwnedStream = Owned<cudaStream_t, cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, cudaEventDestroy>;
using OwnedPool = Owned<cudaMemPool_t, cudaMemPoolDestroy>;
using OwnedBlas = Owned<cublasLtHandle_t, cublasLtDestroy>;
using OwnedDnn = Owned<cudnnHandle_t, cudnnDestroy>;

/// Of the device that is set.
OwnedStream new_stream();
OwnedEvent new_event();

}  // namespace plimsoll
