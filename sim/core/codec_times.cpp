// How long a device packs and unpacks: by rates that were measured, or by what is moved.

#include "sim/core/codec.h"
#include "sim/core/expects.h"

namespace plimsoll {

std::uint32_t variant_of(const Codec& codec) {
  switch (codec.kind) {
    case CodecKind::quantize:
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
      return 0;
  }
  EXPECTS(false && "a codec of no kind");
}

const CodecRate* rate_of(const Codec& codec, const Device& device) {
  const std::uint32_t variant = variant_of(codec);
  const auto distance = [&](const CodecRate& rate) {
    return rate.variant < variant ? variant - rate.variant : rate.variant - variant;
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
  return device.memory_bandwidth ? moved / *device.memory_bandwidth + launches : Seconds{0};
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
