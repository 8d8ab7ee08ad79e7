#include "validate/cuda/cuda_rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "sim/core/expects.h"
#include "validate/cuda/cuda_objects.h"
#include "validate/cuda/matrix_product.h"
#include "validate/networks/probe_ops.h"
#include "validate/networks/probe_values.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

constexpr Bytes small{64};
constexpr int series = 8;  ///< kernels one behind the other between two events: no host in between

/// Memory that is given back at the end.
class DevicePiece {
 public:
  DevicePiece(SegmentSource& source, Bytes bytes) : DevicePiece(source, bytes, source.take(bytes)) {
    if (address_ == nullptr) throw CudaError("out of memory while measuring");
  }
  /// Of what the source has given.
  DevicePiece(SegmentSource& source, Bytes bytes, std::byte* address)
      : source_(source), bytes_(bytes), address_(address) {}
  ~DevicePiece() {
    if (address_ != nullptr) source_.give_back(address_, bytes_);
  }
  DevicePiece(const DevicePiece&) = delete;
  DevicePiece& operator=(const DevicePiece&) = delete;

  std::byte* operator*() const { return address_; }
  void fill(NumberFormat format, Signs signs) const {
    const std::vector<std::byte> values = probe_values(bytes_, format, signs);
    CUDA_CHECK(cudaMemcpy(address_, values.data(), values.size(), cudaMemcpyDefault));
  }

 private:
  SegmentSource& source_;
  Bytes bytes_;
  std::byte* address_;
};

/// Seconds between two events around what `work` issues on the stream.
template <class Work>
double seconds_of(cudaStream_t stream, Work work) {
  const OwnedEvent start = new_event(), finish = new_event();
  CUDA_CHECK(cudaEventRecord(*start, stream));
  work();
  CUDA_CHECK(cudaEventRecord(*finish, stream));
  CUDA_CHECK(cudaEventSynchronize(*finish));
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, *start, *finish));
  return double{milliseconds} / 1e3;
}

/// As many pieces of these bytes as are wanted, or as there is room for, all with the same numbers.
class Pieces {
 public:
  Pieces(SegmentSource& source, Bytes bytes, std::size_t count) {
    pieces_.push_back(std::make_unique<DevicePiece>(source, bytes));
    pieces_.front()->fill(NumberFormat::fp32, Signs::both);
    while (pieces_.size() < count) {
      std::byte* address = source.take(bytes);
      if (address == nullptr) break;
      pieces_.push_back(std::make_unique<DevicePiece>(source, bytes, address));
      CUDA_CHECK(cudaMemcpy(address, **pieces_.front(), static_cast<std::size_t>(bytes.count), cudaMemcpyDefault));
    }
  }

  std::byte* operator[](std::size_t i) const { return **pieces_[i % pieces_.size()]; }

 private:
  std::vector<std::unique_ptr<DevicePiece>> pieces_;
};

/// Copies one way, on a stream of their own, from block to block as a replay's: a cache that holds one block
/// again and again has nothing of theirs.
class DeviceCopies {
 public:
  DeviceCopies(Gpu& gpu, PinnedSegments& pinned, const ProbeSizes& sizes, bool to_host)
      : sizes_(sizes),
        device_(gpu.segments, sizes.copied, sizes.blocks),
        host_(pinned, sizes.copied, sizes.blocks),
        to_host_(to_host),
        stream_(new_stream()) {}

  double seconds(Bytes bytes) {
    ++next_;
    return seconds_again(bytes);
  }
  /// Of the block before once more.
  double seconds_again(Bytes bytes) const {
    return seconds_of(*stream_, [&] { issue(bytes); });
  }
  double rate() { return static_cast<double>(sizes_.copied.count) / seconds(sizes_.copied); }
  double rate_again() const { return static_cast<double>(sizes_.copied.count) / seconds_again(sizes_.copied); }

  /// Keeps the link busy for a while; what follows on `other` begins when the copies have begun.
  void keep_busy(cudaStream_t other) {
    constexpr int copies = 4;
    const OwnedEvent going = new_event();
    issue(sizes_.lead);
    CUDA_CHECK(cudaEventRecord(*going, *stream_));
    for (int c = 0; c < copies; ++c) {
      ++next_;
      issue(sizes_.copied);
    }
    CUDA_CHECK(cudaStreamWaitEvent(other, *going, 0));
  }

  void wait() const { CUDA_CHECK(cudaStreamSynchronize(*stream_)); }
  cudaStream_t stream() const { return *stream_; }

 private:
  void issue(Bytes bytes) const {
    const auto size = static_cast<std::size_t>(bytes.count);
    if (to_host_) {
      CUDA_CHECK(cudaMemcpyAsync(host_[next_], device_[next_], size, cudaMemcpyDeviceToHost, *stream_));
    } else {
      CUDA_CHECK(cudaMemcpyAsync(device_[next_], host_[next_], size, cudaMemcpyHostToDevice, *stream_));
    }
  }

  ProbeSizes sizes_;
  Pieces device_, host_;
  bool to_host_;
  OwnedStream stream_;
  std::size_t next_ = 0;
};

/// A kernel with memory of its own.
class DeviceBench {
 public:
  DeviceBench(const ProbeOp& probe, Gpu& gpu, const Libraries& libraries)
      : kernel_(make_cuda_kernel(probe.graph, probe.op, libraries).value_or(CudaKernel{})), stream_(new_stream()) {
    EXPECTS(kernel_.run);
    for (const TensorId t : probe.op.inputs) arguments_.inputs.push_back(piece(gpu, probe.graph[t].bytes, probe.signs));
    for (const TensorId t : probe.op.outputs)
      arguments_.outputs.push_back(piece(gpu, probe.graph[t].bytes, probe.signs));
    arguments_.scratch = piece(gpu, std::max(kernel_.scratch, Bytes{4}), probe.signs);
    queue_ = {*stream_, libraries.blas, libraries.dnn};
  }

  /// Of one of so many runs, one behind the other.
  double seconds(int times) const {
    return seconds_of(*stream_,
                      [&] {
                        for (int i = 0; i < times; ++i) kernel_.run(arguments_, queue_);
                      }) /
           times;
  }
  cudaStream_t stream() const { return *stream_; }

 private:
  void* piece(Gpu& gpu, Bytes bytes, Signs signs) {
    const DevicePiece& made = *pieces_.emplace_back(std::make_unique<DevicePiece>(gpu.segments, bytes));
    made.fill(NumberFormat::fp32, signs);
    return *made;
  }

  CudaKernel kernel_;
  std::vector<std::unique_ptr<DevicePiece>> pieces_;
  OwnedStream stream_;
  KernelArguments arguments_;
  Queue queue_;
};

MeasuredRate copy_rate(DeviceCopies& copies, std::size_t repetitions) {
  return repeated(repetitions, [&] { return copies.rate(); });
}

/// What a copy reaches while copies the other way keep the link busy.
double rate_beside(DeviceCopies& measured, DeviceCopies& others) {
  others.keep_busy(measured.stream());
  const double rate = measured.rate();
  others.wait();
  return rate;
}

/// What a dtype's products reach, in numbers that are not zero.
MeasuredPeak measured_peak(const std::string& dtype, cudaDataType_t numbers, std::int64_t rows, Gpu& gpu,
                           Libraries libraries, std::size_t repetitions) {
  const bool half = numbers != CUDA_R_32F;
  const NumberFormat format = !half                    ? NumberFormat::fp32
                              : numbers == CUDA_R_16BF ? NumberFormat::bf16
                                                       : NumberFormat::fp16;
  libraries.tf32 = dtype == "tf32";
  const StoredMatrix square{rows, rows, rows};
  const MatrixProduct product({.a = square, .b = square, .c = square, .numbers = numbers}, libraries);
  const Bytes bytes = (half ? 2 : 4) * Bytes{rows * rows};
  const DevicePiece a(gpu.segments, bytes), b(gpu.segments, bytes), c(gpu.segments, bytes);
  const DevicePiece scratch(gpu.segments, std::max(product.scratch(), Bytes{4}));
  a.fill(format, Signs::both);
  b.fill(format, Signs::both);
  const OwnedStream stream = new_stream();
  const Queue queue{*stream, libraries.blas, libraries.dnn};
  const auto n = static_cast<double>(rows);
  return {dtype, rows, repeated(repetitions, [&] {
            return series * 2 * n * n * n / seconds_of(*stream, [&] {
                     for (int i = 0; i < series; ++i) product.run(*a, *b, *c, nullptr, *scratch, queue);
                   });
          })};
}

/// Turing computes fp16 on tensor cores, Ampere and later tf32 and bf16 too.
std::vector<MeasuredPeak> measured_peaks(const ProbeSizes& sizes, Gpu& gpu, const Libraries& libraries,
                                         std::size_t repetitions) {
  int major = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu.ordinal));
  const auto peak = [&](const char* dtype, cudaDataType_t numbers, std::int64_t rows) {
    return measured_peak(dtype, numbers, rows, gpu, libraries, repetitions);
  };
  std::vector<MeasuredPeak> peaks{peak("fp32", CUDA_R_32F, sizes.peak_product)};
  if (major >= 8) peaks.push_back(peak("tf32", CUDA_R_32F, sizes.peak_product));
  if (major >= 8) peaks.push_back(peak("bf16", CUDA_R_16BF, sizes.half_product));
  peaks.push_back(peak("fp16", CUDA_R_16F, sizes.half_product));
  return peaks;
}

/// By turns alone and beside one and two copies: clocks follow the temperature meanwhile.
std::vector<MeasuredRate> slowdowns(const DeviceBench& product, const std::vector<DeviceCopies*>& copies,
                                    std::size_t turns) {
  constexpr int beside_copies = 4;  // less than the copies take
  std::vector<std::vector<double>> times(copies.size());
  product.seconds(beside_copies);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const double alone = product.seconds(beside_copies);
    for (std::size_t busy = 1; busy <= copies.size(); ++busy) {
      for (std::size_t c = 0; c < busy; ++c) copies[c]->keep_busy(product.stream());
      times[busy - 1].push_back(product.seconds(beside_copies) / alone);
      for (std::size_t c = 0; c < busy; ++c) copies[c]->wait();
    }
  }
  std::vector<MeasuredRate> rates{{1, 1, 1}};
  for (std::vector<double>& samples : times) rates.push_back(rate_of(std::move(samples)));
  return rates;
}

/// Host seconds of a block that the caching allocator gives and takes back.
double seconds_of_a_block(CachingMemory& memory, Bytes bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr int takes = 1000;
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < takes; ++i) {
    const std::optional<Grant> grant = memory.take(bytes, StreamId{});
    if (!grant) throw CudaError("out of memory while measuring");
    memory.give_back(grant->address, bytes, {});
  }
  return std::chrono::duration<double>(Clock::now() - began).count() / takes;
}

/// One thread, as updates on the host run, of more parameters than a cache holds with their states: those of a model
/// come from memory, each once an iteration.
MeasuredRate host_update_traffic(std::size_t parameters, std::size_t repetitions) {
  using Clock = std::chrono::steady_clock;
  const Bytes bytes{static_cast<std::int64_t>(4 * parameters)};
  const std::vector<std::byte> values = probe_values(bytes, NumberFormat::fp32, Signs::positive);
  std::vector<float> w(parameters);
  std::memcpy(w.data(), values.data(), values.size());
  std::vector<float> g = w, m = w, v = w;
  return repeated(repetitions, [&] {
    const Clock::time_point began = Clock::now();
    plain::adam(w.data(), g.data(), m.data(), v.data(), parameters);
    return 7.0 * 4 * static_cast<double>(parameters) / std::chrono::duration<double>(Clock::now() - began).count();
  });
}

}  // namespace

std::optional<MachineRates> measure_gpu(CudaMachine& machine, const Libraries& libraries, const ProbeSizes& sizes,
                                        std::size_t repetitions, const Proceed& proceed) {
  set_gpu(0);
  Gpu& gpu = machine.gpu(0);
  MachineRates rates;
  rates.copied = sizes.copied;
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  rates.device_memory = Bytes{static_cast<std::int64_t>(total)};
  DeviceCopies to_host(gpu, machine.pinned(), sizes, true), to_device(gpu, machine.pinned(), sizes, false);
  if (!proceed("copies one way")) return std::nullopt;
  rates.to_host = copy_rate(to_host, repetitions);
  rates.one_block_to_host = repeated(repetitions, [&] { return to_host.rate_again(); });
  rates.to_device = copy_rate(to_device, repetitions);
  rates.to_host_latency = repeated(repetitions, [&] { return to_host.seconds(small); });
  rates.to_device_latency = repeated(repetitions, [&] { return to_device.seconds(small); });
  if (!proceed("copies both ways")) return std::nullopt;
  rates.both_ways = repeated(repetitions, [&] { return rate_beside(to_host, to_device); });
  rates.host_copies =
      repeated(repetitions, [&] { return rate_beside(to_host, to_device) + rate_beside(to_device, to_host); });
  if (!proceed("kernels alone and during copies")) return std::nullopt;
  const DeviceBench product(product_probe(sizes.product), gpu, libraries);
  rates.slowdown = slowdowns(product, {&to_host, &to_device}, 3 * repetitions);
  if (!proceed("peaks of products")) return std::nullopt;
  rates.peaks = measured_peaks(sizes, gpu, libraries, repetitions);
  if (!proceed("updates, launches and allocations")) return std::nullopt;
  const DeviceBench sum(sum_probe(sizes.summed), gpu, libraries);
  const double added = 3.0 * 4 * static_cast<double>(sizes.summed);
  rates.plain_traffic = repeated(repetitions, [&] { return added / sum.seconds(series); });
  const DeviceBench adam(adam_probe(sizes.parameters), gpu, libraries);
  const double moved = 7.0 * 4 * static_cast<double>(sizes.parameters);
  rates.update_traffic = repeated(repetitions, [&] { return moved / adam.seconds(series); });
  rates.host_update_traffic = host_update_traffic(sizes.host_parameters, repetitions);
  const DeviceBench tiny(tiny_probe(), gpu, libraries);
  rates.launch = repeated(repetitions, [&] { return tiny.seconds(100); });
  CachingMemory memory(gpu.segments, std::nullopt);
  rates.allocation = repeated(repetitions, [&] { return seconds_of_a_block(memory, sizes.copied); });
  return rates;
}

}  // namespace plimsoll
