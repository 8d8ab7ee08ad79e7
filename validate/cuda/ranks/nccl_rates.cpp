#include "validate/cuda/ranks/nccl_rates.h"

#include <numeric>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/names.h"

namespace plimsoll {
namespace {

constexpr int calls_in_a_row = 8;

/// A rank's numbers, given back when this dies.
class RankNumbers {
 public:
  RankNumbers(Gpu& gpu, Bytes bytes) : gpu_(gpu), bytes_(bytes), address_(gpu.segments.take(bytes)) {
    if (address_ == nullptr) throw CudaError("out of memory: no room for the values that ranks exchange");
    set_gpu(static_cast<std::size_t>(gpu.ordinal));
    stream_ = new_stream();
    const std::vector<float> numbers(static_cast<std::size_t>(bytes.count / 4), 1e-30F);  // no zeros, nor large sums
    CUDA_CHECK(cudaMemcpy(address_, numbers.data(), static_cast<std::size_t>(bytes.count), cudaMemcpyHostToDevice));
  }
  ~RankNumbers() { gpu_.segments.give_back(address_, bytes_); }
  RankNumbers(const RankNumbers&) = delete;
  RankNumbers& operator=(const RankNumbers&) = delete;

  std::byte* address() const { return address_; }
  cudaStream_t stream() const { return *stream_; }

 private:
  Gpu& gpu_;
  Bytes bytes_;
  std::byte* address_;
  OwnedStream stream_;
};

void issue(CollectiveKind kind, const RankNumbers& own, std::size_t place, std::size_t numbers, std::size_t ranks,
           ncclComm_t communicator) {
  const std::size_t share = numbers / ranks;
  std::byte *whole = own.address(), *part = whole + 4 * share * place;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return CUDA_CHECK(ncclAllReduce(whole, whole, numbers, ncclFloat32, ncclSum, communicator, own.stream()));
    case CollectiveKind::reduce_scatter:
      return CUDA_CHECK(ncclReduceScatter(whole, part, share, ncclFloat32, ncclSum, communicator, own.stream()));
    case CollectiveKind::all_gather:
      return CUDA_CHECK(ncclAllGather(part, whole, share, ncclFloat32, communicator, own.stream()));
    default:
      EXPECTS(false);
  }
}

}  // namespace

MeasuredRate nccl_exchange_seconds(CudaMachine& machine, Communicators& communicators, CollectiveKind kind,
                                   std::uint32_t ranks, Bytes bytes, std::size_t repetitions) {
  EXPECTS(bytes.count % (std::int64_t{4} * ranks) == 0);
  std::vector<int> gpus(ranks);
  std::iota(gpus.begin(), gpus.end(), 0);
  const std::vector<ncclComm_t> of_rank = communicators.of(gpus);
  std::vector<std::unique_ptr<RankNumbers>> own;
  for (std::uint32_t r = 0; r < ranks; ++r) own.push_back(std::make_unique<RankNumbers>(machine.gpu(r), bytes));
  const auto exchanged = [&](int times) {
    for (int t = 0; t < times; ++t) {
      NcclCalls together;
      for (std::uint32_t r = 0; r < ranks; ++r) {
        issue(kind, *own[r], r, static_cast<std::size_t>(bytes.count / 4), ranks, of_rank[r]);
      }
      together.end();
    }
  };
  return repeated(repetitions, [&] {
    set_gpu(0);
    const OwnedEvent began = new_event(), ended = new_event();
    exchanged(1);  // all have come before the clock begins
    CUDA_CHECK(cudaEventRecord(*began, own[0]->stream()));
    exchanged(calls_in_a_row);
    CUDA_CHECK(cudaEventRecord(*ended, own[0]->stream()));
    for (std::uint32_t r = 0; r < ranks; ++r) {
      set_gpu(r);
      CUDA_CHECK(cudaStreamSynchronize(own[r]->stream()));
    }
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, *began, *ended));
    return double{milliseconds} / 1e3 / calls_in_a_row;
  });
}

}  // namespace plimsoll
