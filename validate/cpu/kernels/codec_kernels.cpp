#include "validate/cpu/kernels/codec_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "sim/core/codec.h"
#include "sim/core/expects.h"
#include "sim/core/graph.h"
#include "sim/core/optimizer.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/reference/chance.h"
#include "validate/reference/compression.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/few_bits.h"
#include "validate/reference/padded_groups.h"
#include "validate/reference/part_ranges.h"
#include "validate/reference/sampled_rows.h"
#include "validate/reference/sparse_forms.h"

namespace plimsoll {
namespace {

// What packed forms are made of: numbers of four bytes, read and written where they lie.

constexpr std::int64_t bytes_of_number = 4;

inline std::int64_t numbers_of(const Tensor& tensor) {
  return tensor.bytes.count / bytes_of_number;
}

/// Room for values that a codec keeps, of which there may be fewer.
inline std::int64_t reserved_values(const Codec& codec, const Tensor& tensor) {
  return static_cast<std::int64_t>(std::ceil(codec.keep * static_cast<double>(numbers_of(tensor))));
}

template <class T>
T* as(std::byte* bytes) {
  return static_cast<T*>(static_cast<void*>(bytes));
}
template <class T>
const T* as(const std::byte* bytes) {
  return static_cast<const T*>(static_cast<const void*>(bytes));
}

// Quantized forms on the CPU: groups of values in a row, ranges of parts, a fixed range. Scales come first, so that
// they are aligned; then what belongs to samples, masks, and the numbers.

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

/// Why the CPU has no kernels for the codec, in words that follow its text; nothing if it has.
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
  if (has_largest && !codec.zero_mask && codec.bits < 2) return "has no bit left for a magnitude next to the sign";
  return std::nullopt;
}

Bytes layout_of_quantized(const Codec& codec, const Tensor& tensor) {
  return Bytes{places_in(codec, tensor).end};
}

/// Whether numbers are rounded by chance, where that is asked for.
bool rounds(const Codec& codec) {
  return quantized_by(codec) != QuantizedBy::fixed_range;
}

/// Returns how many values are above 0 where the form has room for some of these only.
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

/// The gradient of a ReLU, of whose result that is the form; it must keep signs.
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

constexpr std::int64_t bytes_of_row_number = 8, bytes_of_seed = 8;

BlockSizes picture_blocks(const Codec& codec, const Tensor& tensor) {
  return {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3], codec.window};
}

SparseSizes sparse_sizes(const Codec& codec, const Tensor& tensor) {
  SparseSizes sizes{numbers_of(tensor) / tensor.shape.back(), tensor.shape.back(), codec.block, 0};
  sizes.kept = std::llround(codec.keep * static_cast<double>(sizes.blocks()));
  return sizes;
}

// Numbers of four bytes come first, so that they are aligned; bits and bytes follow.

/// Where the blocks' columns and values begin, after the rows.
std::int64_t offset_of_columns(const SparseSizes& sizes) {
  return (sizes.block_rows() + 1) * bytes_of_number;
}
std::int64_t offset_of_values(const SparseSizes& sizes) {
  return offset_of_columns(sizes) + sizes.kept * bytes_of_number;
}

FloatFormat float_format(const Codec& codec) {
  return {static_cast<int>(codec.bits), static_cast<int>(codec.exponent)};
}

/// Where the rows of compressed values begin, after the values, and the places in them, after that.
std::int64_t bytes_of_row_begins(const Tensor& tensor) {
  return ((numbers_of(tensor) + 255) / 256 + 1) * bytes_of_number;
}

SampleSizes sample_sizes_of(const Codec& codec, const Tensor& tensor) {
  const std::int64_t columns = tensor.shape.back(), rows = numbers_of(tensor) / columns;
  return {rows, columns, std::llround(codec.keep * static_cast<double>(rows)), codec.sums};
}

/// Where the values need more room than is reserved.
void refuse_more(const Codec& codec, const Tensor& tensor, std::optional<std::int64_t> count) {
  const std::int64_t reserved = reserved_values(codec, tensor);
  if (!count || *count <= reserved) return;
  throw std::runtime_error(fmt::format("{} of the {} values of '{}' are not 0; {} reserves room for {}", *count,
                                       numbers_of(tensor), tensor.name, text_of(codec), reserved));
}

}  // namespace

std::optional<std::string> lacks_codec(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  if (std::optional<std::string> why = cannot_pack(codec, graph, tensor)) return why;
  if (bytes_of_dtype(dtype_of(graph, tensor)) != bytes_of_number) {
    return fmt::format("is for numbers in fp32 only, and '{}' is of dtype '{}'", tensor.name, dtype_of(graph, tensor));
  }
  switch (codec.kind) {
    case CodecKind::pool:
      if (!codec.channels_last) return "takes channels to come before the height, and here they are last";
      return std::nullopt;
    case CodecKind::quantize:
      return lacks_quantization(codec);
    case CodecKind::mask:
      if (codec.bits != 1 && codec.bits != 8) return fmt::format("has {} bits a value, not 1 or 8", codec.bits);
      return std::nullopt;
    case CodecKind::block_sparse:
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
    case CodecKind::cast:
    case CodecKind::step:
    case CodecKind::rows:
    case CodecKind::projection:
      return std::nullopt;
    case CodecKind::index:
      return "packs places in the windows of a pooling, which networks here do not keep";
  }
  EXPECTS(false && "a codec of no kind");
}

Bytes layout_bytes(const Codec& codec, const Tensor& tensor) {
  const std::int64_t numbers = numbers_of(tensor);
  switch (codec.kind) {
    case CodecKind::pool: {
      const BlockSizes sizes = picture_blocks(codec, tensor);
      return Bytes{sizes.batch * sizes.rows() * sizes.columns() * sizes.channels * bytes_of_number};
    }
    case CodecKind::quantize:
      return layout_of_quantized(codec, tensor);
    case CodecKind::mask:
      return Bytes{codec.bits == 8 ? numbers : (numbers + 7) / 8};
    case CodecKind::block_sparse: {
      const SparseSizes sizes = sparse_sizes(codec, tensor);
      return Bytes{offset_of_values(sizes) + sizes.kept * sizes.block * sizes.block * bytes_of_number};
    }
    case CodecKind::zero_run:
      return Bytes{reserved_values(codec, tensor) * bytes_of_number + (numbers + 7) / 8};
    case CodecKind::compressed_rows:
      return Bytes{reserved_values(codec, tensor) * (bytes_of_number + 1) + bytes_of_row_begins(tensor)};
    case CodecKind::cast:
    case CodecKind::step:
      return Bytes{(numbers * codec.bits + 7) / 8};
    case CodecKind::rows: {
      const SampleSizes sizes = sample_sizes_of(codec, tensor);
      return Bytes{sizes.kept * (bytes_of_row_number + sizes.columns * bytes_of_number)};
    }
    case CodecKind::projection: {
      const SampleSizes sizes = sample_sizes_of(codec, tensor);
      return Bytes{bytes_of_seed + sizes.kept * sizes.columns * bytes_of_number};
    }
    case CodecKind::index:
      break;
  }
  EXPECTS(false && "a codec that the CPU lacks");
}

bool is_drawn(const Codec& codec, Rounding rounding) {
  const bool is_rounded = codec.kind == CodecKind::quantize && rounds(codec) && rounding == Rounding::stochastic;
  return codec.kind == CodecKind::rows || codec.kind == CodecKind::projection || is_rounded;
}

void pack(const Codec& codec, const Tensor& tensor, const Chance& chance, const std::byte* value, std::byte* packed,
          std::byte* workspace) {
  const auto* x = as<float>(value);
  const std::uint64_t seed = is_drawn(codec, chance.rounding) ? seed_for(chance.seed, x, numbers_of(tensor)) : 0;
  switch (codec.kind) {
    case CodecKind::pool: {
      const auto reduce = codec.type == PoolType::average ? plain::block_means
                          : codec.type == PoolType::max   ? plain::block_maxima
                                                          : plain::block_soft_means;
      return reduce(x, picture_blocks(codec, tensor), as<float>(packed));
    }
    case CodecKind::quantize:
      return refuse_more(codec, tensor, pack_quantized(codec, tensor, chance.rounding, seed, x, packed));
    case CodecKind::mask:
      return plain::sign_mask(x, numbers_of(tensor), static_cast<int>(codec.bits), as<std::uint8_t>(packed));
    case CodecKind::block_sparse: {
      const SparseSizes sizes = sparse_sizes(codec, tensor);
      return plain::largest_blocks(x, sizes, as<float>(workspace),
                                   {as<std::int32_t>(packed), as<std::int32_t>(packed + offset_of_columns(sizes)),
                                    as<float>(packed + offset_of_values(sizes))});
    }
    case CodecKind::zero_run: {
      const std::int64_t reserved = reserved_values(codec, tensor);
      const std::int64_t count = plain::without_zeros(x, numbers_of(tensor), reserved, as<float>(packed),
                                                      as<std::uint8_t>(packed + reserved * bytes_of_number));
      return refuse_more(codec, tensor, count);
    }
    case CodecKind::compressed_rows: {
      const std::int64_t reserved = reserved_values(codec, tensor);
      std::byte* begins = packed + reserved * bytes_of_number;
      return refuse_more(
          codec, tensor,
          plain::compress_rows(x, numbers_of(tensor), reserved, as<float>(packed), as<std::int32_t>(begins),
                               as<std::uint8_t>(begins + bytes_of_row_begins(tensor))));
    }
    case CodecKind::cast:
      return plain::narrow(x, numbers_of(tensor), float_format(codec), as<std::uint8_t>(packed));
    case CodecKind::step: {
      const int bits = static_cast<int>(codec.bits);
      return plain::steps_of(x, numbers_of(tensor), bits, plain::gelu_steps(bits), as<std::uint8_t>(packed));
    }
    case CodecKind::rows: {
      const SampleSizes sizes = sample_sizes_of(codec, tensor);
      return plain::sample_rows(x, sizes, seed, as<float>(workspace), as<std::int64_t>(packed),
                                as<float>(packed + sizes.kept * bytes_of_row_number));
    }
    case CodecKind::projection:
      *as<std::uint64_t>(packed) = seed;
      return plain::project_rows(x, sample_sizes_of(codec, tensor), seed, as<float>(packed + bytes_of_seed));
    case CodecKind::index:
      break;
  }
  EXPECTS(false && "a codec that the CPU lacks");
}

void unpack(const Codec& codec, const Tensor& tensor, const std::byte* packed, std::byte* value) {
  auto* x = as<float>(value);
  switch (codec.kind) {
    case CodecKind::pool:
      return plain::expand_blocks(as<float>(packed), picture_blocks(codec, tensor), x);
    case CodecKind::quantize:
      return unpack_quantized(codec, tensor, packed, x);
    case CodecKind::block_sparse: {
      const SparseSizes sizes = sparse_sizes(codec, tensor);
      return plain::with_zero_blocks(as<std::int32_t>(packed), as<std::int32_t>(packed + offset_of_columns(sizes)),
                                     as<float>(packed + offset_of_values(sizes)), sizes, x);
    }
    case CodecKind::zero_run: {
      const std::int64_t values = reserved_values(codec, tensor) * bytes_of_number;
      return plain::with_zeros(as<float>(packed), as<std::uint8_t>(packed + values), numbers_of(tensor), x);
    }
    case CodecKind::compressed_rows: {
      const std::byte* begins = packed + reserved_values(codec, tensor) * bytes_of_number;
      return plain::expand_rows(as<float>(packed), as<std::int32_t>(begins),
                                as<std::uint8_t>(begins + bytes_of_row_begins(tensor)), numbers_of(tensor), x);
    }
    case CodecKind::cast:
      return plain::widen(as<std::uint8_t>(packed), numbers_of(tensor), float_format(codec), x);
    case CodecKind::mask:
    case CodecKind::index:
    case CodecKind::step:
    case CodecKind::rows:
    case CodecKind::projection:
      break;
  }
  EXPECTS(false && "a codec that the CPU lacks");
}

void run_on_packed(const Codec& codec, const Graph& graph, const Op& op, const KernelArguments& given) {
  const auto* packed = static_cast<const std::byte*>(given.inputs[0]);
  const std::int64_t results = numbers_of(graph[op.outputs[0]]);
  const int bits = static_cast<int>(codec.bits);
  if (codec.kind == CodecKind::mask) {
    return plain::relu_gradient(as<std::uint8_t>(packed), bits, given.in(1), results, given.out());
  }
  if (codec.kind == CodecKind::step) {
    return plain::stepped_gradient(as<std::uint8_t>(packed), bits, plain::gelu_steps(bits), given.in(1), results,
                                   given.out());
  }
  if (codec.kind == CodecKind::quantize) {
    return relu_gradient_of_quantized(codec, graph[op.inputs[0]], packed, given);
  }
  const Tensor &value = graph[op.inputs[0]], &weight = graph[op.outputs[0]];
  if (codec.kind == CodecKind::pool) {  // of a convolution of single pixels, which has no bias
    return plain::product_of_means(as<float>(packed), picture_blocks(codec, value), given.in(1), weight.shape.back(),
                                   given.out());
  }
  const RowSizes rows = row_sizes(value);
  if (codec.kind == CodecKind::block_sparse) {
    const SparseSizes sizes = sparse_sizes(codec, value);
    plain::block_product(as<std::int32_t>(packed), as<std::int32_t>(packed + offset_of_columns(sizes)),
                         as<float>(packed + offset_of_values(sizes)), sizes, given.in(1), weight.shape[0],
                         weight.shape[1], given.out(0));
  } else if (codec.kind == CodecKind::projection) {
    plain::projected_product(*as<std::uint64_t>(packed), as<float>(packed + bytes_of_seed),
                             sample_sizes_of(codec, value), given.in(1), weight.shape[0], weight.shape[1],
                             given.out(0));
  } else {
    EXPECTS(codec.kind == CodecKind::rows);
    const SampleSizes sizes = sample_sizes_of(codec, value);
    plain::sampled_product(as<std::int64_t>(packed), as<float>(packed + sizes.kept * bytes_of_row_number), sizes,
                           given.in(1), weight.shape[0], weight.shape[1], given.out(0));
  }
  if (op.outputs.size() > 1) plain::column_sums(given.in(1), rows.rows, weight.shape[1], given.out(1));
}

}  // namespace plimsoll
