#include "validate/cuda/stream_ordered_memory.h"

namespace plimsoll {
namespace {

OwnedStream stream_on(const Gpu& gpu) {
  CUDA_CHECK(cudaSetDevice(gpu.ordinal));
  return new_stream();
}

Bytes attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t bytes = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, which, &bytes));
  return Bytes{static_cast<std::int64_t>(bytes)};
}

}  // namespace

/// The pool begins empty, so that its peaks are this run's.
StreamOrderedMemory::StreamOrderedMemory(Gpu& gpu, std::optional<Bytes> capacity, RunEvents events)
    : gpu_(gpu), capacity_(capacity), events_(std::move(events)), release_(stream_on(gpu)) {
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaMemPoolTrimTo(gpu_.pool(), 0));
  for (const cudaMemPoolAttr high : {cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemHigh}) {
    std::uint64_t reset = 0;
    CUDA_CHECK(cudaMemPoolSetAttribute(gpu_.pool(), high, &reset));
  }
}

StreamOrderedMemory::~StreamOrderedMemory() {
  static_cast<void>(cudaSetDevice(gpu_.ordinal));
  static_cast<void>(cudaDeviceSynchronize());
  for (const auto& [address, bytes] : taken_) static_cast<void>(cudaFreeAsync(address, *release_));
  static_cast<void>(cudaStreamSynchronize(*release_));
}

std::optional<Grant> StreamOrderedMemory::take(Bytes bytes, StreamId stream) {
  if (bytes == Bytes{0}) return Grant{};
  if (capacity_ && live_ + bytes > *capacity_) return std::nullopt;
  void* made = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&made, static_cast<std::size_t>(bytes.count), gpu_.pool(), events_.stream(stream));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return std::nullopt;
  }
  check_cuda(status, "cudaMallocFromPoolAsync");
  auto* address = static_cast<std::byte*>(made);
  taken_[address] = bytes;
  live_ += bytes;
  return Grant{address, {}};
}

void StreamOrderedMemory::give_back(std::byte* address, Bytes bytes, std::span<const StepId> by) {
  if (bytes == Bytes{0}) return;
  cudaStream_t stream = *release_;
  if (by.size() == 1) {
    stream = events_.stream_of(by[0]);
  } else {
    for (const StepId user : by) CUDA_CHECK(cudaStreamWaitEvent(stream, events_.finish_of(user), 0));
  }
  CUDA_CHECK(cudaFreeAsync(address, stream));
  taken_.erase(address);
  live_ -= bytes;
}

std::optional<AllocatorPeaks> StreamOrderedMemory::peaks() const {
  return AllocatorPeaks{attribute(gpu_.pool(), cudaMemPoolAttrReservedMemHigh),
                        attribute(gpu_.pool(), cudaMemPoolAttrUsedMemHigh)};
}

}  // namespace plimsoll
