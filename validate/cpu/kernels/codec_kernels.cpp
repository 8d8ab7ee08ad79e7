#include "validate/cpu/kernels/codec_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/core/expects.h"
#include "sim/core/optimizer.h"
#include "validate/cpu/kernels/form_bytes.h"
#include "validate/cpu/kernels/quantized_forms.h"
#include "validate/reference/compression.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/few_bits.h"
#include "validate/reference/sampled_rows.h"
#include "validate/reference/sparse_forms.h"

namespace plimsoll {
namespace {

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
  plain::column_sums(given.in(1), rows.rows, weight.shape[1], given.out(1));
}

}  // namespace plimsoll
