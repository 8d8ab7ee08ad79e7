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
  index,         ///< whole numbers of `bits` bits: places in the windows of a pooling, by the promise of its user
  compressed_rows,  ///< the values that are not 0, each with its place in a row of 256 in a byte; `keep` as of zero_run
  step,             ///< in which of 2^`bits` steps of a derivative that is constant in each the value lies
  rows,             ///< of the tensor as a matrix, `keep` of its rows, chosen at random, each with its number
  projection,       ///< likewise, `keep` as many sums of all rows, at random as a seed in it tells
};

enum class PoolType : std::uint8_t { average, max, soft };

/// What the rows in a sum are multiplied by: random signs, normal random numbers, or a row, drawn at random, of the
/// orthonormal cosine transform.
enum class Projection : std::uint8_t { rademacher, gaussian, dct };

/// What the groups of a quantization are rounded up to: nothing, whole groups of the tensor, or of each sample (the
/// first dimension).
enum class Padding : std::uint8_t { none, tensor, sample };

/// Fields that are not of its kind keep their defaults.
struct Codec {
  CodecKind kind = CodecKind::quantize;
  PoolType type = PoolType::average;         ///< pool
  Projection sums = Projection::rademacher;  ///< projection
  std::uint32_t window = 1;                  ///< pool
  bool channels_last = false;                ///< pool: samples x height x width x channels; else channels before height
  std::uint32_t bits = 8;      ///< quantize, cast, index, step: of a number; mask: 1, or 8 where each bit takes a byte
  std::uint32_t exponent = 5;  ///< cast: of the bits; one is the sign's, the others are the fraction's
  std::uint32_t group = 0;     ///< quantize: values in a row; 0 without parts: a fixed range, which needs no reading
  std::uint32_t parts = 0;     ///< quantize: groups in all, of heads or channels, whose values are not in a row
  bool regrouped = false;      ///< quantize: the values of each part are put in a row first, by a copy
  bool keeps_signs = false;    ///< quantize: one number is for values that are not above 0, and for no others
  bool zero_mask =
      false;  ///< quantize: a bit for each value, and numbers for those that are not 0, `keep` of all at most
  std::uint32_t group_bytes = 0;    ///< quantize: scale and minimum of a group
  std::uint32_t averaged = 1;       ///< quantize: so many values in a row are one number, their mean in fp32
  Padding padding = Padding::none;  ///< quantize
  std::uint32_t sample_bytes = 0;   ///< quantize: of each sample, beside its groups (how many bits it has)
  std::uint32_t block = 1;          ///< block_sparse: side, in values
  double keep = 1;                  ///< share of the blocks, values or rows that stay
  double product = 0;  ///< pool, block_sparse: at which share of the device's rate the product for a weight's gradient
                       ///< is computed on the packed form; 0: on what that restores
  Seconds overhead;    ///< of packing a whole tensor, in the mean of iterations: waits for the host, and what is run to
                       ///< choose how it is packed
  std::uint32_t copy = 0;  ///< tells packed forms of one value by the same rule apart

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

/// What tells the speeds of codecs of one kind apart: the bits of a number, the side of a window or block; else 0. Of
/// quantizations beside 256 times what their ranges are of, in the order of QuantizedBy.
std::uint32_t variant_of(const Codec&);

/// The device's rate for the codec's kind and the nearest variant; null where none was measured.
const CodecRate* rate_of(const Codec&, const Device&);

/// What the numbers of a quantization have their range in common with, which tells kernels apart.
enum class QuantizedBy : std::uint8_t { groups, whole_groups, means, parts, channels, above_zero, fixed_range };
QuantizedBy quantized_by(const Codec&);

/// Of a tensor's products with a gradient, those that are computed on its packed form.
double share_of_products(const Codec&, const Graph&, const Tensor&);

/// Of a `projection`: what it takes to make its sums of a matrix of so many rows. Those with random numbers are a
/// product of matrices whose numbers are made on the way; a fast cosine transform makes all of its rows.
double projecting_flops(const Codec&, std::int64_t rows, std::int64_t columns);

/// What packing or unpacking a whole tensor takes.
struct CodecCost {
  std::uint32_t kernels = 0;
  Bytes moved;      ///< read and written
  Bytes workspace;  ///< beside the tensor and its packed form
  Flops flops = {};
  std::string dtype = {};  ///< in which they are computed
};
CodecCost pack_cost(const Codec&, const Graph&, const Tensor&);
CodecCost unpack_cost(const Codec&, const Graph&, const Tensor&);

/// Of packing or unpacking so many bytes of a tensor, without the codec's overhead: at the device's rate where one was
/// measured, else what its share of the cost moves at the memory's bandwidth, or its flops at the dtype's peak if that
/// is longer; and a launch for each kernel. No time where the platform says neither.
Seconds pack_time(const Codec&, const CodecCost& whole, Bytes moved, Bytes plain, const Device&);
Seconds unpack_time(const Codec&, const CodecCost& whole, Bytes moved, Bytes plain, const Device&);

/// Of a whole tensor, with it.
Seconds pack_time(const Codec&, const Graph&, const Tensor&, const Device&);
Seconds unpack_time(const Codec&, const Graph&, const Tensor&, const Device&);

/// As options of a strategy: `quantize(bits=2,group=256)`.
std::string text_of(const Codec&);

/// Whether an op may read the packed form as it is: the gradient of a ReLU needs only where its output is above 0; that
/// of a max pooling needs places, and nothing of its input but the shape; that of an activation can take the derivative
/// of a step, and that of a weight the rows that were chosen, or another form that its product is computed on.
bool reads_packed(const Op&, const Codec&);

/// Whether a layer of a stage can do with the packed form of what it uses as it is.
bool serves(const Codec&, const LayerUse&);

/// The same of one of the op's inputs: the backward of a chain's stage may read it as it is if all its layers that use
/// the input can do with it.
bool reads_packed(const Op&, TensorId input, const Codec&);

/// Whether some of the layers of a stage can do with it, and others not: the backward reads it beside the value.
bool reads_beside(const Op&, TensorId input, const Codec&);

/// Whether, moreover, what it makes is as exact as from the tensor itself.
bool reads_exactly(const Op&, const Codec&);

/// Of an activation by one value: its gradient needs no more of a value than the derivative there.
bool is_gradient_of_activation(const Op&);

/// Whether what an op makes depends on the value of an input, not only on its being there: the backward of a
/// convolution makes its input's gradient, and its bias's, without its input; that of a stage so if all its uses of the
/// input are such, but for those that read what is `beside` it.
bool depends_on(const Graph&, const Op&, TensorId input, TensorId output,
                const std::optional<Codec>& beside = std::nullopt);

}  // namespace plimsoll
