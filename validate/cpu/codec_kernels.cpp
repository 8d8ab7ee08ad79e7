#include "validate/cpu/codec_kernels.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "sim/core/expects.h"
#include "sim/core/optimizer.h"
#include "validate/reference/compression.h"
#include "validate/reference/sparse_forms.h"

namespace plimsoll {
namespace {

constexpr std::int64_t bytes_of_number = 4;

std::int64_t numbers_of(const Tensor& tensor) {
  return tensor.bytes.count / bytes_of_number;
}

BlockSizes picture_blocks(const Codec& codec, const Tensor& tensor) {
  return {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3], codec.window};
}

QuantizeSizes quantize_sizes(const Codec& codec, const Tensor& tensor) {
  return {numbers_of(tensor), codec.group, static_cast<int>(codec.bits)};
}

SparseSizes sparse_sizes(const Codec& codec, const Tensor& tensor) {
  SparseSizes sizes{numbers_of(tensor) / tensor.shape.back(), tensor.shape.back(), codec.block, 0};
  sizes.kept = std::llround(codec.keep * static_cast<double>(sizes.blocks()));
  return sizes;
}

std::int64_t reserved_values(const Codec& codec, const Tensor& tensor) {
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

// Numbers of four bytes come first, so that they are aligned; bits and bytes follow.

/// Scale of every group, then the numbers.
std::int64_t bytes_of_scales(const QuantizeSizes& sizes) {
  return sizes.groups() * 2 * bytes_of_number;
}

/// Where the blocks' columns and values begin, after the rows.
std::int64_t offset_of_columns(const SparseSizes& sizes) {
  return (sizes.block_rows() + 1) * bytes_of_number;
}
std::int64_t offset_of_values(const SparseSizes& sizes) {
  return offset_of_columns(sizes) + sizes.kept * bytes_of_number;
}

std::optional<std::string> lacks_quantization(const Codec& codec) {
  if (codec.group == 0) return "rounds to a fixed range";
  if (codec.group_bytes != 2 * bytes_of_number) {
    return fmt::format("gives {} B to a group; it takes a scale and a minimum in fp32, 8 B", codec.group_bytes);
  }
  if (codec.averaged != 1) return fmt::format("averages {} values in a row", codec.averaged);
  if (codec.padding != Padding::none) return "fills its groups up";
  if (codec.sample_bytes != 0) return fmt::format("gives {} B to each sample", codec.sample_bytes);
  if (codec.bits != 1 && codec.bits != 2 && codec.bits != 4 && codec.bits != 8) {
    return fmt::format("has numbers of {} bits, of which no whole number fills a byte", codec.bits);
  }
  if (std::int64_t{codec.group} * codec.bits % 8 != 0) return "has groups that begin within a byte";
  return std::nullopt;
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
      return std::nullopt;
    case CodecKind::cast:
      return "does not say how its bits are split into exponent and fraction";
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
    case CodecKind::quantize: {
      const QuantizeSizes sizes = quantize_sizes(codec, tensor);
      return Bytes{bytes_of_scales(sizes) + sizes.packed_bytes()};
    }
    case CodecKind::mask:
      return Bytes{codec.bits == 8 ? numbers : (numbers + 7) / 8};
    case CodecKind::block_sparse: {
      const SparseSizes sizes = sparse_sizes(codec, tensor);
      return Bytes{offset_of_values(sizes) + sizes.kept * sizes.block * sizes.block * bytes_of_number};
    }
    case CodecKind::zero_run:
      return Bytes{reserved_values(codec, tensor) * bytes_of_number + (numbers + 7) / 8};
    case CodecKind::cast:
    case CodecKind::index:
      break;
  }
  EXPECTS(false && "a codec that the CPU lacks");
}

void pack(const Codec& codec, const Tensor& tensor, const std::byte* value, std::byte* packed, std::byte* workspace) {
  const auto* x = as<float>(value);
  switch (codec.kind) {
    case CodecKind::pool: {
      const auto reduce = codec.type == PoolType::average ? plain::block_means
                          : codec.type == PoolType::max   ? plain::block_maxima
                                                          : plain::block_soft_means;
      return reduce(x, picture_blocks(codec, tensor), as<float>(packed));
    }
    case CodecKind::quantize: {
      const QuantizeSizes sizes = quantize_sizes(codec, tensor);
      return plain::quantize(x, sizes, Rounding::nearest, 0, as<float>(packed),
                             as<std::uint8_t>(packed + bytes_of_scales(sizes)));
    }
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
      if (count <= reserved) return;
      throw std::runtime_error(fmt::format("{} of the {} values of '{}' are not 0; {} reserves room for {}", count,
                                           numbers_of(tensor), tensor.name, text_of(codec), reserved));
    }
    case CodecKind::cast:
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
    case CodecKind::quantize: {
      const QuantizeSizes sizes = quantize_sizes(codec, tensor);
      return plain::dequantize(as<std::uint8_t>(packed + bytes_of_scales(sizes)), as<float>(packed), sizes, x);
    }
    case CodecKind::block_sparse: {
      const SparseSizes sizes = sparse_sizes(codec, tensor);
      return plain::with_zero_blocks(as<std::int32_t>(packed), as<std::int32_t>(packed + offset_of_columns(sizes)),
                                     as<float>(packed + offset_of_values(sizes)), sizes, x);
    }
    case CodecKind::zero_run: {
      const std::int64_t values = reserved_values(codec, tensor) * bytes_of_number;
      return plain::with_zeros(as<float>(packed), as<std::uint8_t>(packed + values), numbers_of(tensor), x);
    }
    case CodecKind::mask:
    case CodecKind::cast:
    case CodecKind::index:
      break;
  }
  EXPECTS(false && "a codec that the CPU lacks");
}

}  // namespace plimsoll
