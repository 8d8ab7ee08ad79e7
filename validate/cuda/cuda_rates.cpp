#include "validate/cuda/cuda_rates.h"

#include <chrono>

#include "sim/core/expects.h"
#include "validate/networks/probe_ops.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

constexpr Bytes large{64 << 20}, small{64}, lead{4 << 20};

/// Memory that is given back at the end.
class Piece {
 public:
  Piece(SegmentSource& source, Bytes bytes) : source_(source), bytes_(bytes), address_(source.take(bytes)) {
    if (address_ == nullptr) throw CudaError("out of memory while measuring");
  }
  ~Piece() { source_.give_back(address_, bytes_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  std::byte* operator*() const { return address_; }

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

/// Copies one way, on a stream of their own.
class Copies {
 public:
  Copies(Gpu& gpu, PinnedSegments& pinned, bool to_host)
      : device_(gpu.segments, large), host_(pinned, large), to_host_(to_host), stream_(new_stream()) {}

  double seconds(Bytes bytes) const {
    return seconds_of(*stream_, [&] { issue(bytes); });
  }

  /// Keeps the link busy for a while; what follows on `other` begins when the copies have begun.
  void keep_busy(cudaStream_t other) const {
    constexpr int copies = 4;
    const OwnedEvent going = new_event();
    issue(lead);
    CUDA_CHECK(cudaEventRecord(*going, *stream_));
    for (int c = 0; c < copies; ++c) issue(large);
    CUDA_CHECK(cudaStreamWaitEvent(other, *going, 0));
  }

  void wait() const { CUDA_CHECK(cudaStreamSynchronize(*stream_)); }
  cudaStream_t stream() const { return *stream_; }

 private:
  void issue(Bytes bytes) const {
    const auto size = static_cast<std::size_t>(bytes.count);
    if (to_host_) {
      CUDA_CHECK(cudaMemcpyAsync(*host_, *device_, size, cudaMemcpyDeviceToHost, *stream_));
    } else {
      CUDA_CHECK(cudaMemcpyAsync(*device_, *host_, size, cudaMemcpyHostToDevice, *stream_));
    }
  }

  Piece device_, host_;
  bool to_host_;
  OwnedStream stream_;
};

/// A kernel with memory of its own.
class Bench {
 public:
  Bench(const ProbeOp& probe, Gpu& gpu, const Libraries& libraries)
      : kernel_(make_cuda_kernel(probe.graph, probe.op, libraries).value_or(CudaKernel{})), stream_(new_stream()) {
    EXPECTS(kernel_.run);
    for (const TensorId t : probe.op.inputs) arguments_.inputs.push_back(piece(gpu, probe.graph[t].bytes));
    for (const TensorId t : probe.op.outputs) arguments_.outputs.push_back(piece(gpu, probe.graph[t].bytes));
    arguments_.scratch = piece(gpu, std::max(kernel_.scratch, Bytes{1}));
    queue_ = {*stream_, libraries.blas, libraries.dnn};
  }

  double seconds(int times = 1) const {
    return seconds_of(*stream_,
                      [&] {
                        for (int i = 0; i < times; ++i) kernel_.run(arguments_, queue_);
                      }) /
           times;
  }
  cudaStream_t stream() const { return *stream_; }

 private:
  void* piece(Gpu& gpu, Bytes bytes) {
    std::byte* address = *pieces_.emplace_back(std::make_unique<Piece>(gpu.segments, bytes)).operator*();
    CUDA_CHECK(cudaMemset(address, 0, static_cast<std::size_t>(bytes.count)));  // no numbers that slow arithmetic down
    return address;
  }

  CudaKernel kernel_;
  std::vector<std::unique_ptr<Piece>> pieces_;
  OwnedStream stream_;
  KernelArguments arguments_;
  Queue queue_;
};

MeasuredRate copy_rate(const Copies& copies, std::size_t repetitions) {
  return repeated(repetitions, [&] { return static_cast<double>(large.count) / copies.seconds(large); });
}

/// Host seconds of a block that the caching allocator gives and takes back.
double seconds_of_a_block(CachingMemory& memory) {
  using Clock = std::chrono::steady_clock;
  constexpr int takes = 1000;
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < takes; ++i) {
    const std::optional<Grant> grant = memory.take(large, StreamId{});
    if (!grant) throw CudaError("out of memory while measuring");
    memory.give_back(grant->address, large, {});
  }
  return std::chrono::duration<double>(Clock::now() - began).count() / takes;
}

/// One thread, as updates on the host run.
MeasuredRate host_update_traffic(std::size_t repetitions) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t parameters = 1 << 20;
  std::vector<float> w(parameters), g(parameters, 0.5F), m(parameters), v(parameters);
  return repeated(repetitions, [&] {
    const Clock::time_point began = Clock::now();
    plain::adam(w.data(), g.data(), m.data(), v.data(), parameters);
    return 7.0 * 4 * parameters / std::chrono::duration<double>(Clock::now() - began).count();
  });
}

}  // namespace

std::optional<MachineRates> measure_gpu(CudaMachine& machine, const Libraries& libraries, std::size_t repetitions,
                                        const Proceed& proceed) {
  set_gpu(0);
  Gpu& gpu = machine.gpu(0);
  PinnedSegments pinned;
  MachineRates rates;
  const Copies to_host(gpu, pinned, true), to_device(gpu, pinned, false);
  if (!proceed("copies one way")) return std::nullopt;
  rates.to_host = copy_rate(to_host, repetitions);
  rates.to_device = copy_rate(to_device, repetitions);
  rates.to_host_latency = repeated(repetitions, [&] { return to_host.seconds(small); });
  rates.to_device_latency = repeated(repetitions, [&] { return to_device.seconds(small); });
  if (!proceed("copies both ways")) return std::nullopt;
  rates.both_ways = repeated(repetitions, [&] {
    to_device.keep_busy(to_host.stream());
    const double rate = static_cast<double>(large.count) / to_host.seconds(large);
    to_device.wait();
    return rate;
  });
  if (!proceed("kernels alone and beside copies")) return std::nullopt;
  rates.product = 2048;
  const Bench product(product_probe(rates.product), gpu, libraries);
  const MeasuredRate alone = repeated(3 * repetitions, [&] { return product.seconds(); });
  const auto n = static_cast<double>(rates.product);
  rates.flops = per_second(2 * n * n * n, alone);
  rates.slowdown = {{1, 1, 1}};
  std::vector<const Copies*> busy;
  for (const Copies* copies : {&to_host, &to_device}) {
    busy.push_back(copies);
    const MeasuredRate beside = repeated(3 * repetitions, [&] {
      for (const Copies* each : busy) each->keep_busy(product.stream());
      const double seconds = product.seconds();
      for (const Copies* each : busy) each->wait();
      return seconds;
    });
    rates.slowdown.push_back(times_of(beside, alone));
  }
  if (!proceed("updates, launches and allocations")) return std::nullopt;
  constexpr std::int64_t parameters = 1 << 24;
  const Bench adam(adam_probe(parameters), gpu, libraries);
  rates.update_traffic = repeated(repetitions, [&] { return 7.0 * 4 * parameters / adam.seconds(); });
  rates.host_update_traffic = host_update_traffic(repetitions);
  const Bench tiny(tiny_probe(), gpu, libraries);
  rates.launch = repeated(repetitions, [&] { return tiny.seconds(100); });
  CachingMemory memory(gpu.segments, std::nullopt);
  rates.allocation = repeated(repetitions, [&] { return seconds_of_a_block(memory); });
  return rates;
}

}  // namespace plimsoll
