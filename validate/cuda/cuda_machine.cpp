#include "validate/cuda/cuda_machine.h"

#include <fmt/format.h>

#include "sim/core/device_name.h"
#include "validate/backend.h"
#include "validate/cuda/load_libraries.h"

namespace plimsoll {
namespace {

/// Out of memory is an answer; what else fails is thrown. The error is not kept for the next call to find.
bool has_memory(cudaError_t status, const char* call) {
  if (status != cudaErrorMemoryAllocation) {
    check_cuda(status, call);
    return true;
  }
  static_cast<void>(cudaGetLastError());
  return false;
}

cublasLtHandle_t new_blas() {
  cublasLtHandle_t made = nullptr;
  CUDA_CHECK(cublasLtCreate(&made));
  return made;
}

cudnnHandle_t new_dnn() {
  cudnnHandle_t made = nullptr;
  CUDA_CHECK(cudnnCreate(&made));
  return made;
}

OwnedPool new_pool(int ordinal) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;  // the one kind there is: it does not move
  properties.location = {};
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  cudaMemPool_t made = nullptr;
  CUDA_CHECK(cudaMemPoolCreate(&made, &properties));
  return OwnedPool(made);
}

/// What cudaDeviceEnablePeerAccess does for other memory: copies between GPUs need no host where they can do so.
void let_peers_reach(cudaMemPool_t pool, int ordinal) {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != ordinal) CUDA_CHECK(cudaDeviceCanAccessPeer(&can, other, ordinal));
    if (can == 0) continue;
    cudaMemAccessDesc reach{};
    reach.location.type = cudaMemLocationTypeDevice;
    reach.location.id = other;
    reach.flags = cudaMemAccessFlagsProtReadWrite;
    CUDA_CHECK(cudaMemPoolSetAccess(pool, &reach, 1));
  }
}

int selected(int ordinal) {
  CUDA_CHECK(cudaSetDevice(ordinal));
  return ordinal;
}

std::string version(int number, int major, int minor) {
  return fmt::format("{}.{}", number / major, number % major / minor);
}

}  // namespace

void set_gpu(std::size_t ordinal) {
  CUDA_CHECK(cudaSetDevice(static_cast<int>(ordinal)));
}

OwnedStream new_stream() {
  cudaStream_t made = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return OwnedStream(made);
}

OwnedEvent new_event() {
  cudaEvent_t made = nullptr;
  CUDA_CHECK(cudaEventCreate(&made));
  return OwnedEvent(made);
}

std::byte* DeviceSegments::take(Bytes bytes) {
  const auto found = free_.find(bytes);
  if (found != free_.end()) {
    std::byte* address = found->second;
    free_.erase(found);
    kept_ -= bytes;
    return address;
  }
  CUDA_CHECK(cudaSetDevice(ordinal_));
  void* made = nullptr;
  const auto size = static_cast<std::size_t>(bytes.count);
  if (!has_memory(cudaMalloc(&made, size), "cudaMalloc")) {
    release();
    if (!has_memory(cudaMalloc(&made, size), "cudaMalloc")) return nullptr;
  }
  return static_cast<std::byte*>(made);
}

void DeviceSegments::give_back(std::byte* address, Bytes bytes) {
  static_cast<void>(cudaSetDevice(ordinal_));
  static_cast<void>(cudaDeviceSynchronize());  // a failure of what ran has been told, or will be
  free_.emplace(bytes, address);
  kept_ += bytes;
}

void DeviceSegments::release() {
  static_cast<void>(cudaSetDevice(ordinal_));
  for (const auto& [bytes, address] : free_) static_cast<void>(cudaFree(address));
  free_.clear();
  kept_ = Bytes{0};
}

std::byte* PinnedSegments::take(Bytes bytes) {
  void* made = nullptr;
  const auto size = static_cast<std::size_t>(bytes.count);
  if (!has_memory(cudaHostAlloc(&made, size, cudaHostAllocPortable), "cudaHostAlloc")) return nullptr;
  return static_cast<std::byte*>(made);
}

void PinnedSegments::give_back(std::byte* address, Bytes) {
  wait_();
  static_cast<void>(cudaFreeHost(address));
}

Gpu::Gpu(int number) : ordinal(selected(number)), segments(number), blas(new_blas()), dnn(new_dnn()) {}

cudaMemPool_t Gpu::pool() {
  if (*pool_ == nullptr) {
    pool_ = new_pool(ordinal);
    // What is freed stays in the pool, however much it is.
    std::uint64_t all = ~std::uint64_t{0};
    CUDA_CHECK(cudaMemPoolSetAttribute(*pool_, cudaMemPoolAttrReleaseThreshold, &all));
    let_peers_reach(*pool_, ordinal);
  }
  return *pool_;
}

void Gpu::trim_pool() {
  if (*pool_ != nullptr) static_cast<void>(cudaMemPoolTrimTo(*pool_, 0));
}

CudaMachine::CudaMachine() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    throw BackendError(
        fmt::format("no GPU for the CUDA backend: {}",
                    cuda_error_text("cudaGetDeviceCount", cudaGetErrorName(status), cudaGetErrorString(status))));
  }
  if (count == 0) throw BackendError("no GPU for the CUDA backend: none found");
  load_libraries();
  count_ = static_cast<std::size_t>(count);
  gpus_.resize(count_);
}

Gpu& CudaMachine::gpu(std::size_t ordinal) {
  std::unique_ptr<Gpu>& place = gpus_.at(ordinal);
  if (!place) {
    place = std::make_unique<Gpu>(static_cast<int>(ordinal));
    for (std::size_t other = 0; other < count_; ++other) {  // copies between GPUs need no host where they can do so
      int can = 0;
      if (other == ordinal) continue;
      CUDA_CHECK(cudaDeviceCanAccessPeer(&can, static_cast<int>(ordinal), static_cast<int>(other)));
      if (can != 0) CUDA_CHECK(cudaDeviceEnablePeerAccess(static_cast<int>(other), 0));
    }
  }
  return *place;
}

KeptBlocks& CudaMachine::host(std::uint32_t rank, MemoryId memory) {
  std::unique_ptr<KeptBlocks>& place = hosts_[{rank, memory}];
  if (!place) place = std::make_unique<KeptBlocks>(pinned_);
  return *place;
}

KeptBlocks& CudaMachine::staging(std::uint32_t rank) {
  std::unique_ptr<KeptBlocks>& place = staging_[rank];
  if (!place) place = std::make_unique<KeptBlocks>(pinned_);
  return *place;
}

void CudaMachine::release() {
  for (const std::unique_ptr<Gpu>& gpu : gpus_) {
    if (!gpu) continue;
    gpu->segments.release();
    gpu->trim_pool();
  }
}

void CudaMachine::wait() const {
  for (const std::unique_ptr<Gpu>& gpu : gpus_) {
    if (!gpu) continue;
    static_cast<void>(cudaSetDevice(gpu->ordinal));
    static_cast<void>(cudaDeviceSynchronize());
  }
}

std::string gpu_name() {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  return device_name(properties.name);
}

std::string gpu_libraries() {
  int runtime = 0, driver = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  const std::size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
  return fmt::format("CUDA {} (driver for {}), cuBLASLt {}.{}.{}, cuDNN {}.{}.{}", version(runtime, 1000, 10),
                     version(driver, 1000, 10), blas / 10000, blas / 100 % 100, blas % 100, dnn / 10000,
                     dnn / 100 % 100, dnn % 100);
}

}  // namespace plimsoll
