#include "validate/cpu/machine_rates.h"

#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <thread>

#include "sim/core/device_name.h"
#include "sim/core/expects.h"
#include "validate/cpu/block_pool.h"
#include "validate/cpu/kernels/codec_kernels.h"
#include "validate/cpu/kernels/kernel.h"
#include "validate/networks/probe_ops.h"

namespace plimsoll {
namespace {

using RatesClock = std::chrono::steady_clock;
using Block = std::vector<std::byte>;

constexpr std::size_t large = std::size_t{8} << 20U, small = 64;
constexpr std::uint32_t channels = large / (4 * 8 * 64 * 64);  // of the pictures that are packed

template <class Work>
double seconds_of(Work work) {
  const RatesClock::time_point began = RatesClock::now();
  work();
  return std::chrono::duration<double>(RatesClock::now() - began).count();
}

/// Copies in a thread of its own, without end, while this lives.
class CopyThread {
 public:
  explicit CopyThread(LinkPace pace)
      : from_(large), to_(large), thread_([this, pace](const std::stop_token& stop) {
          sleep_precisely();
          while (!stop.stop_requested()) paced_copy(to_.data(), from_.data(), Bytes{large}, pace);
        }) {}

 private:
  Block from_, to_;
  std::jthread thread_;  // last: it uses the blocks
};

/// Copies one after the other, as a stream's thread does: what each of them keeps the link.
class Copies {
 public:
  explicit Copies(LinkPace pace) : from_(large), to_(large), pace_(pace) {}

  double seconds(std::size_t bytes) {
    return seconds_of([&] { paced_copy(to_.data(), from_.data(), Bytes{static_cast<std::int64_t>(bytes)}, pace_); });
  }

 private:
  Block from_, to_;
  LinkPace pace_;
};

/// A kernel with memory of its own.
class Bench {
 public:
  explicit Bench(const ProbeOp& probe) : kernel_(make_kernel(probe.graph, probe.op).value_or(Kernel{})) {
    EXPECTS(kernel_.run);
    for (const TensorId t : probe.op.inputs) arguments_.inputs.push_back(block(probe.graph[t], probe.signs));
    for (const TensorId t : probe.op.outputs) arguments_.outputs.push_back(block(probe.graph[t], probe.signs));
    arguments_.scratch = block({.bytes = kernel_.scratch}, probe.signs);
  }
  double seconds() const {
    return seconds_of([&] { kernel_.run(arguments_); });
  }

 private:
  void* block(const Tensor& tensor, Signs signs) {
    const NumberFormat format = tensor.dtype == "bf16" ? NumberFormat::bf16 : NumberFormat::fp32;
    Block values = probe_values(tensor.bytes + Bytes{64}, format, signs);
    return blocks_.emplace_back(std::make_unique<Block>(std::move(values)))->data();
  }

  Kernel kernel_;
  std::vector<std::unique_ptr<Block>> blocks_;
  KernelArguments arguments_;
};

/// One of each kind and variant that strategies use, on pictures with channels last.
std::vector<Codec> codecs_to_measure() {
  std::vector<Codec> codecs;
  for (const std::uint32_t bits : {1U, 2U, 4U, 8U}) {
    codecs.push_back({.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8});
  }
  for (const std::uint32_t bits : {2U, 4U}) {  // as actnn, gact and alam have them
    const Codec whole{.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
    codecs.push_back(whole);
    codecs.back().padding = Padding::tensor;
    codecs.push_back(codecs.back());
    codecs.back().averaged = 4;
  }
  for (const std::uint32_t bits : {4U, 8U}) {  // as mesa, by heads, acgc, by channels, and blpa
    codecs.push_back({.kind = CodecKind::quantize, .channels_last = true, .bits = bits, .parts = 4, .group_bytes = 8});
    codecs.push_back(codecs.back());
    codecs.back().parts = channels;
    codecs.back().group_bytes = 4;
    codecs.push_back(codecs.back());
    codecs.back().zero_mask = codecs.back().keeps_signs = true;
    codecs.push_back({.kind = CodecKind::quantize, .bits = bits});
  }
  for (const std::uint32_t window : {2U, 4U, 8U, 16U}) {
    codecs.push_back({.kind = CodecKind::pool, .window = window, .channels_last = true});
  }
  codecs.push_back({.kind = CodecKind::mask, .bits = 1});
  for (const std::uint32_t bits : {1U, 2U, 3U, 4U}) codecs.push_back({.kind = CodecKind::step, .bits = bits});
  codecs.push_back({.kind = CodecKind::rows, .keep = 0.3});
  codecs.push_back({.kind = CodecKind::cast, .bits = 16, .exponent = 5});
  codecs.push_back({.kind = CodecKind::block_sparse, .block = 8, .keep = 0.5});
  codecs.push_back({.kind = CodecKind::zero_run, .keep = 1});
  codecs.push_back({.kind = CodecKind::compressed_rows, .keep = 1});
  return codecs;
}

/// A codec at work on 8 MB of a picture's values, half of them 0, as behind a ReLU.
class CodecBench {
 public:
  explicit CodecBench(const Codec& codec) : codec_(codec) {
    graph_.source.dtype = "fp32";
    picture_ = {.name = "picture",
                .kind = TensorKind::activation,
                .bytes = Bytes{large},
                .shape = {8, 64, 64, channels},
                .dtype = "fp32"};
    if (codec.kind == CodecKind::rows) picture_.shape = {8 * 64 * 64 / 4, 4 * channels};  // as layers of 256 units
    EXPECTS(!lacks_codec(codec, graph_, picture_));
    restores_ = unpack_cost(codec, graph_, picture_).kernels > 0;
  }

  std::size_t packed_bytes() const { return static_cast<std::size_t>(layout_bytes(codec_, picture_).count); }
  std::size_t workspace() const {
    return static_cast<std::size_t>(pack_cost(codec_, graph_, picture_).workspace.count) + 64;
  }

  void sample(const Block& value, Block& packed, Block& restored, Block& workspace) {
    const auto packs = [&] { pack(codec_, picture_, {}, value.data(), packed.data(), workspace.data()); };
    packs_.push_back(large / seconds_of(packs));
    if (!restores_) return;
    unpacks_.push_back(large / seconds_of([&] { unpack(codec_, picture_, packed.data(), restored.data()); }));
  }

  MeasuredCodec measured() const {
    MeasuredCodec made{codec_, rate_of(packs_), {}};
    if (restores_) made.unpack = rate_of(unpacks_);
    return made;
  }

 private:
  Codec codec_;
  Graph graph_;
  Tensor picture_;
  bool restores_ = false;
  std::vector<double> packs_, unpacks_;  // bytes a second
};

/// All by turns: a slow spell of the machine falls on all of them.
std::vector<MeasuredCodec> measured_codecs(std::size_t repetitions) {
  std::vector<CodecBench> benches;
  std::size_t packed = 0, workspace = 0;
  for (const Codec& codec : codecs_to_measure()) {
    const CodecBench& bench = benches.emplace_back(codec);
    packed = std::max(packed, bench.packed_bytes());
    workspace = std::max(workspace, bench.workspace());
  }
  Block value = probe_values(Bytes{large}, NumberFormat::fp32, Signs::both);
  for (float& each : std::span(reinterpret_cast<float*>(value.data()), large / sizeof(float))) {
    each = std::max(0.0F, each);
  }
  Block form(packed), restored(large), scratch(workspace);
  for (std::size_t r = 0; r < repetitions; ++r) {
    for (CodecBench& bench : benches) bench.sample(value, form, restored, scratch);
  }
  std::vector<MeasuredCodec> all;
  for (const CodecBench& bench : benches) all.push_back(bench.measured());
  return all;
}

}  // namespace

std::optional<MachineRates> measure_machine(LinkPace to_host, LinkPace to_device, std::size_t repetitions,
                                            const std::function<bool(const std::string& next)>& proceed) {
  use_one_thread();
  sleep_precisely();
  MachineRates rates;
  rates.copied = Bytes{large};
  Copies out(to_host), in(to_device);
  const auto rate = [&](Copies& copies) {
    return repeated(repetitions, [&] { return static_cast<double>(large) / copies.seconds(large); });
  };
  const auto latency = [&](Copies& copies) {
    return repeated(10 * repetitions, [&] { return copies.seconds(small); });
  };
  if (!proceed("copies one way")) return std::nullopt;
  rates.to_host = rate(out);
  rates.to_device = rate(in);
  rates.to_host_latency = latency(out);
  rates.to_device_latency = latency(in);
  if (!proceed("copies both ways")) return std::nullopt;
  {
    const CopyThread other(to_device);
    rates.both_ways = rate(out);
  }
  if (!proceed("kernels alone and during copies")) return std::nullopt;
  const Bench product(product_probe(512));
  // Alone and beside one and two copies by turns: the machine's own speed may change meanwhile.
  std::vector<double> alone;
  std::vector<std::vector<double>> slowdowns(2);
  for (std::size_t r = 0; r < 3 * repetitions; ++r) {
    product.seconds();  // caches are as beside copies
    alone.push_back(product.seconds());
    std::vector<std::unique_ptr<CopyThread>> copies;
    for (const LinkPace pace : {to_host, to_device}) {
      copies.push_back(std::make_unique<CopyThread>(pace));
      product.seconds();  // by then the thread copies
      slowdowns[copies.size() - 1].push_back(product.seconds() / alone.back());
    }
  }
  const double work = 2.0 * 512 * 512 * 512;
  rates.peaks = {{"fp32", 512, per_second(work, rate_of(alone))}};
  for (const auto& [dtype, probe] : {std::pair("bf16", narrow_product_probe(512)), {"fp8", fp8_product_probe(512)}}) {
    if (!proceed(std::string("products in ") + dtype)) return std::nullopt;
    const Bench narrow(probe);
    rates.peaks.push_back({dtype, 512, repeated(3 * repetitions, [&] { return work / narrow.seconds(); })});
  }
  rates.slowdown = {{1, 1, 1}, rate_of(slowdowns[0]), rate_of(slowdowns[1])};
  if (!proceed("updates, launches and allocations")) return std::nullopt;
  constexpr std::int64_t parameters = 1 << 20;
  const Bench adam(adam_probe(parameters));
  rates.update_traffic = repeated(repetitions, [&] { return 7.0 * 4 * parameters / adam.seconds(); });
  constexpr std::int64_t summed = 1 << 23;
  const Bench sum(sum_probe(summed));
  rates.plain_traffic = repeated(repetitions, [&] { return 3.0 * 4 * summed / sum.seconds(); });
  const Bench least(tiny_probe());
  rates.launch = repeated(10 * repetitions, [&] { return least.seconds(); });
  if (!proceed("codecs")) return std::nullopt;
  rates.codecs = measured_codecs(repetitions);
  BlockPool pool;
  constexpr int takes = 1000;
  rates.allocation = repeated(repetitions, [&] {
    return seconds_of([&] {
             for (int i = 0; i < takes; ++i) pool.give_back(pool.take(Bytes{large}), Bytes{large});
           }) /
           takes;
  });
  return rates;
}

std::string this_processor() {
  std::ifstream info("/proc/cpuinfo");
  std::ostringstream text;
  text << info.rdbuf();
  utsname machine{};
  uname(&machine);
  return processor_name(text.str(), machine.machine);
}

}  // namespace plimsoll
