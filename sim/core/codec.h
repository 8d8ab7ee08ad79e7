#pragma once
// Codecs: packed forms of tensors. What a packed form takes is known from the tensor's shape and dtype alone, or, where
// it depends on the values, bounded by it. Sizes and costs: Chen et al., ActNN (ICML 2021); Liu et al., GACT (ICML
// 2022); Barley and Froening (2023, 2024); Jain et al., Gist (ISCA 2018).

#include <cstdint>
#include <optional>
#include <string>

#include "sim/core/graph.h"
#include "sim/core/platform.h"

namespace plimsoll {

enum class CodecKind : std::uint8_t {
  pool,          ///< one value for `window` x `window` pixels, or as many as there are, which unpacking gives to all
  quantize,      ///< numbers of `bits` bits; the values of a group share a scale and a minimum
  mask,          ///< a bit for each value: whether it is above 0
  block_sparse,  ///< of the tensor as a matrix, the blocks of `block` x `block` values with the largest norms
  zero_run,      ///< a bit for each value, and those that are not 0; at most `keep` of them, by the promise of its user
  cast,          ///< floating point numbers of `bits` bits
  index,  ///< whole numbers below 256, a byte each: places in the windows of a pooling, by the promise of its user
};

enum class PoolType : std::uint8_t { average, max, soft };

/// What the groups of a quantization are rounded up to: nothing, whole groups of the tensor, or of each sample (the
/// first dimension).
enum class Padding : std::uint8_t { none, tensor, sample };

/// Fields that are not of its kind keep their defaults.
struct Codec {
  CodecKind kind = CodecKind::quantize;
  PoolType type = PoolType::average;  ///< pool
  std::uint32_t window = 1;           ///< pool
  bool channels_last = false;         ///< pool: samples x height x width x channels; else channels before height
  std::uint32_t bits = 8;             ///< quantize, cast: of a number; mask: 1, or 8 where each bit takes a byte
  std::uint32_t group = 0;            ///< quantize: values; 0: a fixed range, which nothing needs to be read for
  std::uint32_t group_bytes = 0;      ///< quantize: scale and minimum of a group
  std::uint32_t averaged = 1;         ///< quantize: so many values in a row are one number, their mean
  Padding padding = Padding::none;    ///< quantize
  std::uint32_t sample_bytes = 0;     ///< quantize: of each sample, beside its groups (how many bits it has)
  std::uint32_t block = 1;            ///< block_sparse: side, in values
  double keep = 1;                    ///< block_sparse, zero_run: share of the blocks or values that stay
  std::uint32_t copy = 0;             ///< tells packed forms of one value by the same rule apart

  friend bool operator==(const Codec&, const Codec&) = default;
};

/// Whether what is unpacked is not what was packed.
bool is_lossy(const Codec&);

/// Whether the packed form may take fewer bytes than it is given.
bool is_bound(const Codec&);

/// Why the codec cannot pack the tensor (it has no shape, say), in words that follow its name; nothing if it can.
std::optional<std::string> cannot_pack(const Codec&, const Graph&, const Tensor&);

/// Of the packed form of the whole tensor. The codec must be able to pack it.
Bytes packed_bytes(const Codec&, const Graph&, const Tensor&);

/// What bytes [offset, offset + length) of the tensor take of its packed form: a share that adds up to all of it.
Bytes packed_share(Bytes packed, Bytes tensor, Bytes offset, Bytes length);

/// What packing or unpacking a whole tensor takes.
struct CodecCost {
  std::uint32_t kernels = 0;
  Bytes moved;      ///< read and written
  Bytes workspace;  ///< beside the tensor and its packed form
};
CodecCost pack_cost(const Codec&, const Graph&, const Tensor&);
CodecCost unpack_cost(const Codec&, const Graph&, const Tensor&);

/// The bytes at the device's memory bandwidth and a launch for each kernel; no time where the platform does not say how
/// fast the memory is.
Seconds duration(const CodecCost&, const Device&);

/// As options of a strategy: `quantize(bits=2,group=256)`.
std::string text_of(const Codec&);

/// Whether an op may read the packed form as it is, and what it makes is as exact as from the tensor itself: the
/// gradient of a ReLU needs only where its output is above 0; that of a max pooling needs places, and nothing of its
/// input but the shape.
bool reads_packed(const Op&, const Codec&);

/// Whether what an op makes depends on the value of an input, not only on its being there: the backward of a
/// convolution makes its input's gradient, and its bias's, without its input.
bool depends_on(const Graph&, const Op&, TensorId input, TensorId output);

}  // namespace plimsoll
