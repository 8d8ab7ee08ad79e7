// How long a device packs and unpacks: by rates that were measured, or by what is moved.

#include <algorithm>
#include <utility>

#include "sim/core/codec.h"
#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// What packing so many of the bytes that it moves computes.
Seconds time_of_moving(const CodecCost& whole, Bytes moved, const Device& device) {
  const Seconds moving = moved / *device.memory_bandwidth;
  const auto peak = device.peak.find(whole.dtype);
  if (whole.flops.count == 0 || peak == device.peak.end()) return moving;
  const double share = static_cast<double>(moved.count) / static_cast<double>(whole.moved.count);
  return std::max(moving, Flops{share * whole.flops.count} / peak->second);
}

}  // namespace

QuantizedBy quantized_by(const Codec& codec) {
  if (codec.group > 0) {
    if (codec.averaged > 1) return QuantizedBy::means;
    const bool is_narrow = codec.group_bytes == 4;  // scales in bf16
    return codec.padding != Padding::none || is_narrow ? QuantizedBy::whole_groups : QuantizedBy::groups;
  }
  if (codec.parts == 0) return QuantizedBy::fixed_range;
  if (codec.zero_mask) return QuantizedBy::above_zero;
  return codec.group_bytes == 4 ? QuantizedBy::channels : QuantizedBy::parts;
}

std::uint32_t variant_of(const Codec& codec) {
  switch (codec.kind) {
    case CodecKind::quantize:
      return codec.bits + 256 * static_cast<std::uint32_t>(quantized_by(codec));
    case CodecKind::mask:
    case CodecKind::cast:
    case CodecKind::index:
    case CodecKind::step:
      return codec.bits;
    case CodecKind::pool:
      return codec.window;
    case CodecKind::block_sparse:
      return codec.block;
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
    case CodecKind::rows:
    case CodecKind::projection:
      return 0;
  }
  EXPECTS(false && "a codec of no kind");
}

const CodecRate* rate_of(const Codec& codec, const Device& device) {
  const auto between = [](std::uint32_t a, std::uint32_t b) { return a < b ? b - a : a - b; };
  const auto distance = [&, variant = variant_of(codec)](const CodecRate& rate) {  // ranges first, then bits
    return std::pair{between(rate.variant / 256, variant / 256), between(rate.variant % 256, variant % 256)};
  };
  const CodecRate* nearest = nullptr;
  for (const CodecRate& rate : device.codec_rates) {
    if (rate.kind != codec.kind) continue;
    if (nearest == nullptr || distance(rate) < distance(*nearest)) nearest = &rate;
  }
  return nearest;
}

Seconds pack_time(const Codec& codec, const CodecCost& whole, Bytes moved, Bytes plain, const Device& device) {
  const Seconds launches = static_cast<double>(whole.kernels) * device.launch_overhead;
  if (const CodecRate* rate = rate_of(codec, device)) return plain / rate->pack + launches;
  return device.memory_bandwidth ? time_of_moving(whole, moved, device) + launches : Seconds{0};
}

Seconds unpack_time(const Codec& codec, const CodecCost& whole, Bytes moved, Bytes plain, const Device& device) {
  if (whole.kernels == 0) return Seconds{0};  // it restores nothing
  const Seconds launches = static_cast<double>(whole.kernels) * device.launch_overhead;
  if (const CodecRate* rate = rate_of(codec, device)) return plain / rate->unpack + launches;
  return device.memory_bandwidth ? moved / *device.memory_bandwidth + launches : Seconds{0};
}

Seconds pack_time(const Codec& codec, const Graph& graph, const Tensor& tensor, const Device& device) {
  const CodecCost cost = pack_cost(codec, graph, tensor);
  return pack_time(codec, cost, cost.moved, tensor.bytes, device) + codec.overhead;
}

Seconds unpack_time(const Codec& codec, const Graph& graph, const Tensor& tensor, const Device& device) {
  const CodecCost cost = unpack_cost(codec, graph, tensor);
  return unpack_time(codec, cost, cost.moved, tensor.bytes, device);
}

}  // namespace plimsoll
