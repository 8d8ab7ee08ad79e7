#include "validate/cpu/kernels/quantized_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "validate/cpu/kernels/form_bytes.h"
#include "validate/reference/compression.h"
#include "validate/reference/padded_groups.h"
#include "validate/reference/part_ranges.h"
#include "validate/reference/sparse_forms.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t most_bits = 16;  // of numbers in a stream

QuantizeSizes group_sizes(const Codec& codec, const Tensor& tensor) {
  return {numbers_of(tensor), codec.group, static_cast<int>(codec.bits)};
}

PaddedSizes padded_sizes(const Codec& codec, const Tensor& tensor) {
  const std::int64_t samples = codec.padding == Padding::sample ? tensor.shape[0] : 1;
  return {samples,
          numbers_of(tensor) / samples,
          codec.group,
          static_cast<int>(codec.averaged),
          static_cast<int>(codec.bits),
          codec.padding != Padding::none,
          codec.group_bytes == bytes_of_number};
}

/// Channels are the last dimension, or the second one of four.
PartSizes part_sizes(const Codec& codec, const Tensor& tensor) {
  const bool are_second = tensor.shape.size() == 4 && !codec.channels_last;
  const std::int64_t channels = are_second ? tensor.shape[1] : tensor.shape.back();
  const std::int64_t inner = are_second ? tensor.shape[2] * tensor.shape[3] : 1;
  return {numbers_of(tensor) / (channels * inner), channels, inner, codec.parts, static_cast<int>(codec.bits)};
}

std::int64_t bytes_of_mask(const Tensor& tensor) {
  return (numbers_of(tensor) + 7) / 8;
}

/// Where each piece of a form begins, and where the last one ends.
struct Places {
  std::int64_t samples = 0, mask = 0, numbers = 0, end = 0;
};

Places places_in(const Codec& codec, const Tensor& tensor) {
  Places places;
  std::int64_t written = numbers_of(tensor);
  switch (quantized_by(codec)) {
    case QuantizedBy::groups:
      places.samples = group_sizes(codec, tensor).groups() * 2 * bytes_of_number;
      break;
    case QuantizedBy::whole_groups:
    case QuantizedBy::means: {
      const PaddedSizes sizes = padded_sizes(codec, tensor);
      places.samples = sizes.bytes_of_scales();
      written = sizes.samples * sizes.written();
      break;
    }
    case QuantizedBy::above_zero:
      written = reserved_values(codec, tensor);
      [[fallthrough]];
    case QuantizedBy::parts:
    case QuantizedBy::channels:
      places.samples = std::int64_t{codec.parts} * codec.group_bytes;
      break;
    case QuantizedBy::fixed_range:
      break;
  }
  places.mask = places.samples + std::int64_t{codec.sample_bytes} * tensor.shape[0];
  places.numbers = places.mask + (codec.zero_mask ? bytes_of_mask(tensor) : 0);
  places.end = places.numbers + (written * codec.bits + 7) / 8;
  return places;
}

std::optional<std::string> lacks_groups(const Codec& codec) {
  if (codec.group_bytes != 2 * bytes_of_number && codec.group_bytes != bytes_of_number) {
    return fmt::format("gives {} B to a group; it takes a scale and a minimum, in fp32 8 B, in bf16 4 B",
                       codec.group_bytes);
  }
  if (codec.bits != 1 && codec.bits != 2 && codec.bits != 4 && codec.bits != 8) {
    return fmt::format("has numbers of {} bits, of which no whole number fills a byte", codec.bits);
  }
  if (std::int64_t{codec.group} * codec.bits % 8 != 0) return "has groups that begin within a byte";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> lacks_quantization(const Codec& codec) {
  if (codec.sample_bytes != 0 && codec.sample_bytes != bytes_of_number) {
    return fmt::format("gives {} B to each sample", codec.sample_bytes);
  }
  if (codec.group > 0) return lacks_groups(codec);
  if (codec.bits > most_bits) return fmt::format("has numbers of {} bits, of {} at most", codec.bits, most_bits);
  if (codec.parts == 0) {
    if (codec.zero_mask) return "leaves out zeros in a fixed range";
    return std::nullopt;
  }
  const bool has_largest = codec.group_bytes == bytes_of_number;
  if (!has_largest && codec.group_bytes != 2 * bytes_of_number) {
    return fmt::format("gives {} B to a part; its largest value takes 4 B, a scale and a minimum 8 B",
                       codec.group_bytes);
  }
  if (!has_largest && codec.zero_mask) return "leaves out zeros and keeps minima";
  if (has_largest && !codec.zero_mask && codec.bits < 2) return "has no bit for a size beside the sign";
  return std::nullopt;
}

Bytes layout_of_quantized(const Codec& codec, const Tensor& tensor) {
  return Bytes{places_in(codec, tensor).end};
}

bool rounds(const Codec& codec) {
  return quantized_by(codec) != QuantizedBy::fixed_range;
}

std::optional<std::int64_t> pack_quantized(const Codec& codec, const Tensor& tensor, Rounding rounding,
                                           std::uint64_t seed, const float* x, std::byte* packed) {
  const Places places = places_in(codec, tensor);
  auto* scales = as<float>(packed);
  auto* numbers = as<std::uint8_t>(packed + places.numbers);
  if (codec.sample_bytes > 0) {
    std::fill_n(as<std::int32_t>(packed + places.samples), tensor.shape[0], static_cast<std::int32_t>(codec.bits));
  }
  switch (quantized_by(codec)) {
    case QuantizedBy::groups:
      plain::quantize(x, group_sizes(codec, tensor), rounding, seed, scales, numbers);
      return std::nullopt;
    case QuantizedBy::whole_groups:
    case QuantizedBy::means:
      plain::quantize_padded(x, padded_sizes(codec, tensor), rounding, seed, as<std::uint8_t>(packed), numbers);
      return std::nullopt;
    case QuantizedBy::parts:
      plain::quantize_parts(x, part_sizes(codec, tensor), rounding, seed, scales, numbers);
      return std::nullopt;
    case QuantizedBy::channels:
      plain::quantize_sizes(x, part_sizes(codec, tensor), rounding, seed, scales, numbers);
      return std::nullopt;
    case QuantizedBy::above_zero:
      return plain::quantize_above_zero(x, part_sizes(codec, tensor), reserved_values(codec, tensor), rounding, seed,
                                        scales, as<std::uint8_t>(packed + places.mask), numbers);
    case QuantizedBy::fixed_range:
      plain::quantize_fixed(x, numbers_of(tensor), static_cast<int>(codec.bits), numbers);
      return std::nullopt;
  }
  EXPECTS(false && "ranges of no kind");
}

void unpack_quantized(const Codec& codec, const Tensor& tensor, const std::byte* packed, float* x) {
  const Places places = places_in(codec, tensor);
  const auto* scales = as<float>(packed);
  const auto* numbers = as<std::uint8_t>(packed + places.numbers);
  switch (quantized_by(codec)) {
    case QuantizedBy::groups:
      return plain::dequantize(numbers, scales, group_sizes(codec, tensor), x);
    case QuantizedBy::whole_groups:
    case QuantizedBy::means:
      return plain::dequantize_padded(numbers, as<std::uint8_t>(packed), padded_sizes(codec, tensor), x);
    case QuantizedBy::parts:
      return plain::dequantize_parts(numbers, scales, part_sizes(codec, tensor), x);
    case QuantizedBy::channels:
      return plain::dequantize_sizes(numbers, scales, part_sizes(codec, tensor), x);
    case QuantizedBy::above_zero:
      return plain::dequantize_above_zero(numbers, scales, as<std::uint8_t>(packed + places.mask),
                                          part_sizes(codec, tensor), x);
    case QuantizedBy::fixed_range:
      return plain::dequantize_fixed(numbers, numbers_of(tensor), static_cast<int>(codec.bits), codec.keeps_signs, x);
  }
  EXPECTS(false && "ranges of no kind");
}

void relu_gradient_of_quantized(const Codec& codec, const Tensor& tensor, const std::byte* packed,
                                const KernelArguments& given) {
  EXPECTS(codec.keeps_signs);
  const Places places = places_in(codec, tensor);
  const std::int64_t numbers = numbers_of(tensor);
  if (codec.zero_mask) {
    return plain::relu_gradient(as<std::uint8_t>(packed + places.mask), 1, given.in(1), numbers, given.out());
  }
  EXPECTS(quantized_by(codec) == QuantizedBy::fixed_range);
  plain::fixed_relu_gradient(as<std::uint8_t>(packed), static_cast<int>(codec.bits), given.in(1), numbers, given.out());
}

}  // namespace plimsoll
