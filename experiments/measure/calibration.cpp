#include "experiments/measure/calibration.h"

#include <fmt/format.h>

#include <ctime>

#include "sim/core/codec.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/model/input_loads.h"

namespace plimsoll {
namespace {

void check_shape(const Platform& shape) {
  if (shape.devices.size() == 1 && shape.memories.size() == 2 && shape.links.size() == 1) return;
  throw InputError(
      fmt::format("platform '{}': calibrating needs one device, one host memory and one link between them; "
                  "{} devices, {} "
                  "memories and {} links found",
                  shape.name, shape.devices.size(), shape.memories.size(), shape.links.size()));
}

std::string line(const std::string& what, const MeasuredRate& rate, double unit, const char* unit_name) {
  return fmt::format("#   {:<26}{:>10.4g}  ({:.4g} to {:.4g}) {}\n", what, rate.median / unit,
                     rate.lower_quartile / unit, rate.upper_quartile / unit, unit_name);
}

std::string comments(const MachineRates& r, const MeasuredBy& by) {
  std::string text =
      fmt::format("# {}\n# Measured on {}, on {}, with {}.\n# Medians (where half of the samples lie):\n", by.made_by,
                  by.date, by.device, by.library);
  constexpr double giga = 1e9, micro = 1e-6;
  text += line("copy to host", r.to_host, giga, "GB/s") + line("copy to device", r.to_device, giga, "GB/s");
  if (r.one_block_to_host) text += line("the same block to host", *r.one_block_to_host, giga, "GB/s");
  text += line("copy while another runs", r.both_ways, giga, "GB/s");
  if (r.host_copies) text += line("copies both ways, together", *r.host_copies, giga, "GB/s");
  text += line("latency to host", r.to_host_latency, micro, "us");
  text += line("latency to device", r.to_device_latency, micro, "us");
  for (std::size_t k = 1; k < r.slowdown.size(); ++k) {
    text += line(k == 1 ? "slow-down, 1 copy" : "slow-down, 2 copies", r.slowdown[k], 1, "times");
  }
  for (const MeasuredPeak& peak : r.peaks) {
    text += line(fmt::format("product {} x {}, {}", peak.rows, peak.rows, peak.dtype), peak.flops, giga, "GFLOPS");
  }
  text += line("traffic of a sum", r.plain_traffic, giga, "GB/s");
  text += line("traffic of Adam's update", r.update_traffic, giga, "GB/s");
  if (r.host_update_traffic) text += line("the same on the host", *r.host_update_traffic, giga, "GB/s");
  for (const MeasuredCodec& each : r.codecs) {
    text += line("pack " + text_of(each.codec), each.pack, giga, "GB/s");
    if (each.unpack) text += line("unpack " + text_of(each.codec), *each.unpack, giga, "GB/s");
  }
  text += line("launch of an empty kernel", r.launch, micro, "us");
  return text + line("block of the pool", r.allocation, micro, "us");
}

/// What the kernels can compute in: a dtype that is missing cannot be re-scaled to.
std::string peaks(const MachineRates& r) {
  std::string list;
  for (const MeasuredPeak& peak : r.peaks) {
    list += fmt::format("{}{}: {:.4g} GFLOPS", list.empty() ? "" : ", ", peak.dtype, peak.flops.median / 1e9);
  }
  return list;
}

/// Never below 1: a kernel that seems faster beside copies is noise.
std::string slowdowns(const MachineRates& r) {
  std::string list;
  for (const MeasuredRate& rate : r.slowdown) {
    list += fmt::format("{}{:.3f}", list.empty() ? "" : ", ", std::max(1.0, rate.median));
  }
  return list;
}

/// A line a codec, by what tells codecs of its kind apart.
std::string codecs(const MachineRates& r) {
  std::string text = r.codecs.empty() ? "" : "    codecs:  # bytes of the tensor, not of its packed form\n";
  for (const MeasuredCodec& each : r.codecs) {
    const CodecKind kind = each.codec.kind;
    const char* by = kind == CodecKind::pool ? "window" : kind == CodecKind::block_sparse ? "block" : "bits";
    const bool has_ranges = kind == CodecKind::quantize;
    const std::uint32_t variant = has_ranges ? each.codec.bits : variant_of(each.codec);
    text += fmt::format("      - {{codec: {}", written(kind));
    if (variant > 0) text += fmt::format(", {}: {}", by, variant);
    if (has_ranges) text += fmt::format(", ranges: {}", written(quantized_by(each.codec)));
    text += fmt::format(", pack: {:.4g} GBps", each.pack.median / 1e9);
    if (each.unpack) text += fmt::format(", unpack: {:.4g} GBps", each.unpack->median / 1e9);
    text += "}\n";
  }
  return text;
}

std::string capacity(const std::optional<Bytes>& bytes) {
  return bytes ? fmt::format("{} B", bytes->count) : std::string("unlimited");
}

/// The file's size is a limit; what the device has counts where it is less.
std::optional<Bytes> device_memory(const std::optional<Bytes>& limit, const MachineRates& r) {
  return limit && r.device_memory ? std::min(*limit, *r.device_memory) : r.device_memory ? r.device_memory : limit;
}

Endpoints to_host_of(const Platform& shape) {
  const std::optional<MemoryId> host = memory_at(shape, DeviceId{0}, place::host);
  EXPECTS(host);
  return {shape.devices[0].memory, *host};
}

}  // namespace

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

LinkPace pace_to_host(const Platform& shape) {
  check_shape(shape);
  return pace_of(shape, to_host_of(shape));
}

LinkPace pace_to_device(const Platform& shape) {
  check_shape(shape);
  const Endpoints ends = to_host_of(shape);
  return pace_of(shape, {ends.to, ends.from});
}

std::string calibrated_platform(const Platform& shape, const std::string& name, const MachineRates& rates,
                                const MeasuredBy& by) {
  check_shape(shape);
  const Device& device = shape.devices[0];
  const Memory& host = shape[to_host_of(shape).to];
  const Link& link = shape.links[0];
  const double latency = std::max(rates.to_host_latency.median, rates.to_device_latency.median);
  std::string text = comments(rates, by);
  text += fmt::format("format: plimsoll.platform.v1\nname: {}\n", name);
  text += fmt::format("source: \"measured on {} on {} by plimsoll calibrate, in the shape of {}\"\n", by.date,
                      by.device, shape.name);
  text += fmt::format(
      "devices:\n  - name: {}\n    model: \"{}\"\n    memory: {}\n    peak: {{{}}}\n"
      "    memory_bandwidth: {:.4g} GBps\n    adam: {:.4g} GBps\n    launch_overhead: {:.4g} us\n"
      "    overlap_slowdown: [{}]\n",
      device.name, by.device, capacity(device_memory(shape[device.memory].capacity, rates)), peaks(rates),
      rates.plain_traffic.median / 1e9, rates.update_traffic.median / 7e9, rates.launch.median * 1e6, slowdowns(rates));
  text += codecs(rates);
  const MeasuredRate host_updates = rates.host_update_traffic.value_or(rates.update_traffic);
  text += fmt::format("memories:\n  - name: {}\n    size: {}\n    bandwidth: {:.4g} GBps\n    adam: {:.4g} GBps\n",
                      host.name, capacity(host.capacity), rates.host_copies.value_or(host_updates).median / 1e9,
                      host_updates.median / 7e9);
  // A copy's time is latency + bytes / bandwidth: the bandwidth without the latency that was measured with it.
  const auto copied = static_cast<double>(rates.copied.count);
  const auto lone = [&](double rate) { return copied / std::max(copied / rate - latency, 1e-9) / 1e9; };
  text += fmt::format("links:\n  - name: {}\n    between: [{}, {}]\n", link.name, device.name, host.name);
  const double out = rates.to_host.median, in = rates.to_device.median;
  text += link.full_duplex
              ? fmt::format("    bandwidth: {:.4g} GBps  # to the host\n    back: {:.4g} GBps\n", lone(out), lone(in))
              : fmt::format("    bandwidth: {:.4g} GBps\n", lone(std::min(out, in)));
  return text +
         fmt::format("    latency: {:.4g} us\n    duplex: {}\n", latency * 1e6, link.full_duplex ? "full" : "half");
}

std::optional<SplitBackwards> split_backwards(const Trace& trace, const Platform& platform, Optimizer optimizer) {
  if (!std::holds_alternative<Chain>(trace.model)) return std::nullopt;
  std::variant<Problem, std::string> made =
      make_problem(trace.model, platform,
                   {.optimizer = optimizer, .update_kernels = UpdateKernels::single, .backward = Backward::split});
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  Schedule sweeps = calibration_schedule(std::get<Problem>(made));
  return SplitBackwards{std::move(std::get<Problem>(made)), std::move(sweeps)};
}

Trace calibrated_trace(Trace trace, const Problem& problem, const OpTimes& times,
                       const std::optional<SplitBackwards>& split, const MeasuredBy& by) {
  if (Chain* chain = std::get_if<Chain>(&trace.model)) {
    EXPECTS(split);
    *chain = with_times(with_times(std::move(*chain), problem, times), split->problem, split->times);
  } else {
    auto& graph = std::get<Graph>(trace.model);
    graph = with_times(std::move(graph), times);
  }
  Source& source = std::visit([](auto& model) -> Source& { return model.source; }, trace.model);
  source.kind = Source::Kind::measured;
  source.device = by.device;
  std::erase_if(source.notes, [](const auto& note) { return note.first == "times"; });
  source.notes.emplace_back("library", by.library);
  source.notes.emplace_back("clock", loads_apart);
  source.notes.emplace_back("repetitions", std::to_string(times.samples()));
  source.notes.emplace_back("spread",
                            fmt::format("half of an op's times within {:.1f} % of its median", 100 * times.spread()));
  source.notes.emplace_back("date", by.date);
  source.notes.emplace_back("made_by", by.made_by);
  return trace;
}

}  // namespace plimsoll
