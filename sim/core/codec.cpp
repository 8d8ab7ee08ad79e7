#include "sim/core/codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/op_kind.h"
#include "sim/core/optimizer.h"

namespace plimsoll {
namespace {

constexpr std::int64_t bytes_of_index = 4;       // of a block, and of where a row begins
constexpr std::int64_t values_of_row = 256;      // of compressed rows: a place in one takes a byte
constexpr std::int64_t bytes_of_row_number = 8;  // as PyTorch's indices
constexpr std::int64_t bytes_of_seed = 8;

std::int64_t whole_parts(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Of a dtype that the codec takes.
std::optional<std::int64_t> bytes_of_value(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  const std::string& dtype = dtype_of(graph, tensor);
  if (codec.kind != CodecKind::index) return bytes_of_dtype(dtype);
  if (dtype == "int64") return 8;
  return dtype == "int32" ? std::optional<std::int64_t>(4) : std::nullopt;
}

/// A tensor as codecs see it.
struct Values {
  std::int64_t count = 1, bytes = 0;   ///< how many, and of each
  std::int64_t samples = 1;            ///< the first dimension
  std::int64_t rows = 1, columns = 1;  ///< as a matrix: all dimensions but the last, and the last
  std::int64_t height = 1, width = 1;  ///< of a picture
  std::int64_t pictures = 1;           ///< one a sample and channel
};

Values values_of(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  Values values;
  for (const std::int64_t d : tensor.shape) values.count *= d;
  values.bytes = bytes_of_value(codec, graph, tensor).value_or(0);
  if (tensor.shape.empty()) return values;
  values.samples = tensor.shape.front();
  values.columns = tensor.shape.back();
  values.rows = values.columns > 0 ? values.count / values.columns : 0;
  if (tensor.shape.size() != 4) return values;
  const std::size_t first = codec.channels_last ? 1 : 2;
  values.height = tensor.shape[first];
  values.width = tensor.shape[first + 1];
  values.pictures = tensor.shape[0] * tensor.shape[codec.channels_last ? 3 : 1];
  return values;
}

/// Of a quantization: what is rounded to numbers, and how many groups they make.
struct Numbers {
  std::int64_t count = 0, groups = 0;
};

Numbers numbers_of(const Codec& codec, const Values& values) {
  if (codec.padding == Padding::sample) {
    const std::int64_t of_sample = whole_parts(values.count / values.samples, codec.averaged);
    const std::int64_t groups = whole_parts(of_sample, codec.group);
    return {values.samples * groups * codec.group, values.samples * groups};
  }
  const std::int64_t count = whole_parts(values.count, codec.averaged);
  if (codec.group == 0) return {count, codec.parts};
  const std::int64_t groups = whole_parts(count, codec.group);
  return {codec.padding == Padding::tensor ? groups * codec.group : count, groups};
}

/// Blocks of a matrix: rows and columns of them, and how many stay.
struct Blocks {
  std::int64_t rows = 0, all = 0, kept = 0;
};

Blocks blocks_of(const Codec& codec, const Values& values) {
  Blocks blocks{.rows = whole_parts(values.rows, codec.block)};
  blocks.all = blocks.rows * whole_parts(values.columns, codec.block);
  blocks.kept = std::llround(codec.keep * static_cast<double>(blocks.all));
  return blocks;
}

/// The values for which room is reserved, where those that are 0 are left out.
std::int64_t reserved_of(const Codec& codec, const Values& values) {
  return static_cast<std::int64_t>(std::ceil(codec.keep * static_cast<double>(values.count)));
}

/// Of the matrix, those that stay.
std::int64_t rows_kept(const Codec& codec, const Values& values) {
  return std::llround(codec.keep * static_cast<double>(values.rows));
}

std::int64_t packed_count(const Codec& codec, const Values& values) {
  switch (codec.kind) {
    case CodecKind::pool:
      return values.pictures * whole_parts(values.height, codec.window) * whole_parts(values.width, codec.window) *
             values.bytes;
    case CodecKind::quantize: {
      const Numbers numbers = numbers_of(codec, values);
      const std::int64_t written = codec.zero_mask ? reserved_of(codec, values) : numbers.count;
      return whole_parts(written * codec.bits, 8) + numbers.groups * codec.group_bytes +
             values.samples * codec.sample_bytes + (codec.zero_mask ? whole_parts(values.count, 8) : 0);
    }
    case CodecKind::mask:
    case CodecKind::cast:
    case CodecKind::index:
    case CodecKind::step:
      return whole_parts(values.count * codec.bits, 8);
    case CodecKind::block_sparse: {
      const Blocks blocks = blocks_of(codec, values);
      return blocks.kept * (std::int64_t{codec.block} * codec.block * values.bytes + bytes_of_index) +
             bytes_of_index * (blocks.rows + 1);
    }
    case CodecKind::zero_run:
      return whole_parts(values.count, 8) + reserved_of(codec, values) * values.bytes;
    case CodecKind::compressed_rows:
      return reserved_of(codec, values) * (values.bytes + 1) +
             bytes_of_index * (whole_parts(values.count, values_of_row) + 1);
    case CodecKind::rows:
      return rows_kept(codec, values) * (values.columns * values.bytes + bytes_of_row_number);
    case CodecKind::projection:
      return rows_kept(codec, values) * values.columns * values.bytes + bytes_of_seed;
  }
  EXPECTS(false && "a codec of no kind");
}

/// How many values of every 256 are not 0.
Bytes counts_of(const Values& values) {
  return Bytes{4 * whole_parts(values.count, 256)};
}

/// Packing by a fixed range, or by those of parts: they are found first, in a copy where their values are not in a row,
/// then the largest and the smallest value by a kernel each, as PyTorch reduces.
CodecCost cost_of_parts(const Codec& codec, const Values& values, Bytes plain, Bytes packed) {
  CodecCost cost{1, plain + packed, Bytes{0}};
  if (codec.parts > 0) {
    cost.kernels += 2;
    cost.moved += plain + 2 * Bytes{std::int64_t{codec.parts} * codec.group_bytes};
  }
  if (codec.regrouped) {
    cost.kernels += 2;
    cost.moved += 3 * plain;
    cost.workspace = plain;
  }
  if (codec.zero_mask) {
    ++cost.kernels;
    cost.moved += plain;
    cost.workspace += counts_of(values);
  }
  return cost;
}

std::string written_number(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", number);
  std::array<char, 32> shorter{};
  std::snprintf(shorter.data(), shorter.size(), "%.6g", number);
  return std::stod(shorter.data()) == number ? shorter.data() : text.data();
}

/// What the op can do with instead of a value that it reads.
Packed packed_for(const Op& op) {
  const std::optional<OpKind> kind = op_kind(op);
  return kind ? row_of(*kind).packed : Packed::none;
}

/// Of a stage's uses of an input: how many there are, and how many the packed form serves.
struct Served {
  std::size_t uses = 0, served = 0;
};

Served served_by(const Codec& codec, const Op& op, TensorId input) {
  Served count;
  for (const InputUse& each : op.uses) {
    if (each.tensor != input) continue;
    ++count.uses;
    if (serves(codec, each.use)) ++count.served;
  }
  return count;
}

/// The gradient of a product's weight alone needs its input.
bool is_parameter_gradient(const Graph& graph, TensorId t) {
  return graph[t].kind == TensorKind::parameter_gradient;
}

}  // namespace

bool is_lossy(const Codec& codec) {
  return codec.kind != CodecKind::zero_run && codec.kind != CodecKind::compressed_rows &&
         codec.kind != CodecKind::index;
}

bool is_bound(const Codec& codec) {
  return codec.kind == CodecKind::zero_run || codec.kind == CodecKind::compressed_rows || codec.zero_mask;
}

std::optional<std::string> cannot_pack(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  if (tensor.shape.empty()) return "needs shapes, and '" + tensor.name + "' has none in the trace";
  const std::optional<std::int64_t> each = bytes_of_value(codec, graph, tensor);
  if (!each && codec.kind == CodecKind::index) {
    return "packs whole numbers, and '" + tensor.name + "' is of dtype '" + dtype_of(graph, tensor) + "'";
  }
  if (!each) {
    return "packs floating point numbers, and '" + tensor.name + "' is of dtype '" + dtype_of(graph, tensor) + "'";
  }
  const Values values = values_of(codec, graph, tensor);
  if (values.count <= 0 || values.count * *each != tensor.bytes.count) {
    return "packs whole storages, and '" + tensor.name + "' takes " + std::to_string(tensor.bytes.count) + " B for " +
           std::to_string(values.count) + " numbers of " + std::to_string(*each) + " B";
  }
  if (codec.kind == CodecKind::pool && tensor.shape.size() != 4) {
    return "pools pictures, and '" + tensor.name + "' has " + std::to_string(tensor.shape.size()) +
           " dimensions instead of 4";
  }
  return std::nullopt;
}

Bytes packed_bytes(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  return Bytes{packed_count(codec, values_of(codec, graph, tensor))};
}

double share_of_products(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  const Values values = values_of(codec, graph, tensor);
  switch (codec.kind) {
    case CodecKind::rows:
    case CodecKind::projection:
      return static_cast<double>(rows_kept(codec, values)) / static_cast<double>(values.rows);
    case CodecKind::block_sparse: {
      const Blocks blocks = blocks_of(codec, values);
      return static_cast<double>(blocks.kept) / static_cast<double>(blocks.all);
    }
    case CodecKind::pool:
      return static_cast<double>(packed_count(codec, values)) / static_cast<double>(tensor.bytes.count);
    default:
      return 1;
  }
}

Bytes packed_share(Bytes packed, Bytes tensor, Bytes offset, Bytes length) {
  if (tensor.count == 0) return Bytes{0};
  const auto before = [&](std::int64_t bytes) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(Wide{packed.count} * bytes / tensor.count);
  };
  return Bytes{before((offset + length).count) - before(offset.count)};
}

double projecting_flops(const Codec& codec, std::int64_t rows, std::int64_t columns) {
  const double numbers = static_cast<double>(rows) * static_cast<double>(columns);
  if (codec.sums == Projection::dct) return 5 * numbers * std::log2(static_cast<double>(rows));
  return 2 * static_cast<double>(std::llround(codec.keep * static_cast<double>(rows))) * numbers;
}

CodecCost pack_cost(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  const Values values = values_of(codec, graph, tensor);
  const Bytes plain = tensor.bytes, packed{packed_count(codec, values)};
  switch (codec.kind) {
    case CodecKind::pool:
    case CodecKind::cast:
      return {1, plain + packed, Bytes{0}};
    case CodecKind::mask:
    case CodecKind::index:
    case CodecKind::step:
      return {0, packed, Bytes{0}};  // written by the kernel that makes the value
    case CodecKind::quantize: {
      if (codec.group == 0) return cost_of_parts(codec, values, plain, packed);
      const Numbers numbers = numbers_of(codec, values);
      const Bytes groups{numbers.groups * codec.group_bytes};
      if (codec.averaged > 1) {  // their means are a tensor of their own, in fp32 at least, of a copy that is as wide
        const std::int64_t each = std::max(values.bytes, bytes_of_fp32);
        const Bytes means{whole_parts(values.count, codec.averaged) * each};
        const Bytes copy{each > values.bytes ? values.count * each : 0};
        return {copy > Bytes{0} ? 5U : 4U, plain + 2 * copy + 3 * means + packed + 2 * groups, copy + means};
      }
      const bool padded = numbers.count > values.count;  // by a copy
      return {padded ? 4U : 3U, 2 * plain + packed + 2 * groups + (padded ? 2 * plain : Bytes{0}),
              padded ? Bytes{numbers.count * values.bytes} : Bytes{0}};
    }
    case CodecKind::block_sparse: {
      const Blocks blocks = blocks_of(codec, values);
      const Bytes norms{4 * blocks.all};
      return {3, plain + 2 * norms + 2 * packed, norms};
    }
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
      return {2, 2 * plain + packed, counts_of(values)};
    case CodecKind::rows: {
      const Bytes norms{4 * values.rows};
      return {3, plain + 2 * norms + 2 * packed, norms};
    }
    case CodecKind::projection:
      if (codec.sums == Projection::dct) {  // all of its rows, of which those that are drawn are gathered
        return {2, 2 * plain + 2 * packed, plain, Flops{projecting_flops(codec, values.rows, values.columns)},
                graph.source.dtype};
      }
      return {1, plain + packed, Bytes{0}, Flops{projecting_flops(codec, values.rows, values.columns)},
              graph.source.dtype};
  }
  EXPECTS(false && "a codec of no kind");
}

CodecCost unpack_cost(const Codec& codec, const Graph& graph, const Tensor& tensor) {
  const Bytes packed = packed_bytes(codec, graph, tensor), plain = tensor.bytes;
  switch (codec.kind) {
    case CodecKind::mask:
    case CodecKind::index:
    case CodecKind::step:
    case CodecKind::rows:
    case CodecKind::projection:
      return {};  // they restore nothing
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
      return {2, packed + plain, Bytes{0}};
    case CodecKind::quantize:
      if (codec.regrouped) return {2, packed + 3 * plain, plain};  // then back into the tensor's order, by a copy
      return {codec.zero_mask ? 2U : 1U, packed + plain, Bytes{0}};
    case CodecKind::pool:
    case CodecKind::block_sparse:
    case CodecKind::cast:
      return {1, packed + plain, Bytes{0}};
  }
  EXPECTS(false && "a codec of no kind");
}

std::string text_of(const Codec& codec) {
  std::string text(written(codec.kind));
  switch (codec.kind) {
    case CodecKind::pool:
      return text + "(type=" + std::string(written(codec.type)) + ",window=" + std::to_string(codec.window) + ")";
    case CodecKind::quantize:
      text += "(bits=" + std::to_string(codec.bits);
      text += codec.parts > 0 ? ",parts=" + std::to_string(codec.parts) : ",group=" + std::to_string(codec.group);
      if (codec.zero_mask) text += ",keep=" + written_number(codec.keep);
      if (codec.averaged > 1) text += ",averaged=" + std::to_string(codec.averaged);
      return text + ")";
    case CodecKind::mask:
    case CodecKind::index:
    case CodecKind::step:
      return text + "(bits=" + std::to_string(codec.bits) + ")";
    case CodecKind::cast:
      return text + "(bits=" + std::to_string(codec.bits) + ",exponent=" + std::to_string(codec.exponent) + ")";
    case CodecKind::block_sparse:
      return text + "(block=" + std::to_string(codec.block) + ",keep=" + written_number(codec.keep) + ")";
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
    case CodecKind::rows:
      return text + "(keep=" + written_number(codec.keep) + ")";
    case CodecKind::projection:
      return text + "(keep=" + written_number(codec.keep) + ",sums=" + std::string(written(codec.sums)) + ")";
  }
  return text;
}

bool is_gradient_of_activation(const Op& op) {
  return is_backward(op.phase) && packed_for(op) == Packed::steps;
}

bool serves(const Codec& codec, const LayerUse& use) {
  if (codec.kind == CodecKind::index) return use.by == SavedBy::pool && use.is_result;
  return codec.kind == CodecKind::mask && (use.shape_only || (use.by == SavedBy::relu && use.is_result));
}

bool reads_packed(const Op& op, TensorId input, const Codec& codec) {
  if (op.uses.empty()) return reads_packed(op, codec);
  const Served count = served_by(codec, op, input);
  return count.uses > 0 && count.served == count.uses;
}

bool reads_packed(const Op& op, const Codec& codec) {
  const Packed takes = packed_for(op);
  const bool of_weight = is_backward(op.phase) && takes == Packed::rows;
  const bool of_signs = takes == Packed::signs || takes == Packed::places;
  switch (codec.kind) {
    case CodecKind::index:
      return takes == Packed::places;
    case CodecKind::mask:
      return of_signs;
    case CodecKind::quantize:
      return codec.keeps_signs && of_signs;
    case CodecKind::step:
      return is_gradient_of_activation(op);
    case CodecKind::rows:
    case CodecKind::projection:
      return of_weight;
    case CodecKind::block_sparse:
      return of_weight && codec.product > 0;
    case CodecKind::pool:
      return codec.product > 0 && takes == Packed::pixels;
    default:
      return false;
  }
}

bool reads_exactly(const Op& op, const Codec& codec) {
  return reads_packed(op, codec) &&
         (codec.kind == CodecKind::mask || codec.kind == CodecKind::index || codec.kind == CodecKind::quantize);
}

bool reads_beside(const Op& op, TensorId input, const Codec& codec) {
  const Served count = served_by(codec, op, input);
  return count.served > 0 && count.served < count.uses;
}

bool depends_on(const Graph& graph, const Op& op, TensorId input, TensorId output, const std::optional<Codec>& beside) {
  const TensorKind kind = graph[input].kind;
  if (!is_backward(op.phase) || (kind != TensorKind::activation && kind != TensorKind::input)) return true;
  if (!op.uses.empty() && !is_parameter_gradient(graph, output)) {
    const auto needs_value = [&](const InputUse& each) {
      return each.tensor == input && !each.use.shape_only && !is_input_of_product(each.use) &&
             !(beside && serves(*beside, each.use));
    };
    const auto is_known = [&](const InputUse& each) { return each.tensor == input; };
    return std::ranges::none_of(op.uses, is_known) || std::ranges::any_of(op.uses, needs_value);
  }
  const std::optional<OpKind> of = op_kind(op);
  const Reach reach = of ? row_of(*of).reach : Reach::all;
  if (reach == Reach::all) return true;
  if (!is_parameter_gradient(graph, output)) return reach == Reach::all_but_bias;
  const auto of_parameters =
      std::ranges::count_if(op.outputs, [&](TensorId t) { return is_parameter_gradient(graph, t); });
  const bool of_bias = of_parameters > 1 && output == op.outputs.back();  // the sum of its result's gradient
  return !of_bias;
}

}  // namespace plimsoll
