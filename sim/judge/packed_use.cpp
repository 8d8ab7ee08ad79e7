#include "sim/judge/packed_use.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

/// Of the input or the result of an activation its gradient takes a factor for each value, and nothing else.
bool needs_derivative(const Op& op) {
  return is_one_of(op_kind(op), OpKind::gelu_gradient, OpKind::activation_backward);
}

/// Whether it tells which values are above 0.
bool has_signs(const Codec& codec) {
  return codec.kind == CodecKind::mask || (codec.kind == CodecKind::quantize && codec.keeps_signs);
}

/// Signs are all that a ReLU's gradient reads of what the ReLU has made, places all that a pooling's does.
bool can_do_with(const LayerUse& use, const Codec& codec) {
  if (codec.kind == CodecKind::mask) return use.shape_only || text_of(use) == "relu.output";
  return codec.kind == CodecKind::index && text_of(use) == "pool.output";
}

/// Of one dimension, blocks of so many, the last one perhaps smaller.
std::int64_t blocks_along(std::int64_t size, std::int64_t block) {
  return size / block + (size % block != 0 ? 1 : 0);
}

bool is_transform(const Codec& codec) {
  return codec.kind == CodecKind::projection && codec.sums == Projection::dct;
}

/// The numbers that a product takes of a matrix or of pictures, of all that there are; and in rows or in pixels, which
/// are what it takes of the gradient.
struct Taken {
  double share = 1;
  std::int64_t rows = 0, of_rows = 1;
};

Taken taken_by(const Codec& codec, const std::vector<std::int64_t>& shape) {
  if (codec.kind == CodecKind::pool) {
    const std::size_t high = codec.channels_last ? 1 : 2;
    const std::int64_t blocks = blocks_along(shape[high], codec.window) * blocks_along(shape[high + 1], codec.window);
    const std::int64_t pixels = shape[high] * shape[high + 1];
    return {static_cast<double>(blocks) / static_cast<double>(pixels), blocks, pixels};
  }
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  if (codec.kind == CodecKind::rows || codec.kind == CodecKind::projection) {
    const std::int64_t kept = std::llround(codec.keep * static_cast<double>(rows));
    const double whole = static_cast<double>(rows), columns = static_cast<double>(shape.back());
    double projecting = 0;  // the gradient's rows, by as many numbers a sum, or by a transform of each column
    if (codec.kind == CodecKind::projection) {
      projecting = is_transform(codec) ? 2.5 * std::log2(whole) / columns : static_cast<double>(kept) / columns;
    }
    return {static_cast<double>(kept) / whole + projecting, kept, rows};
  }
  const std::int64_t all = blocks_along(rows, codec.block) * blocks_along(shape.back(), codec.block);
  const std::int64_t kept = std::llround(codec.keep * static_cast<double>(all));
  return {static_cast<double>(kept) / static_cast<double>(all), 0, 1};
}

/// A convolution of single pixels, each with one of the result: then means of blocks on both sides are all it needs.
bool multiplies_pixels(const Walk& walk, const Op& op, TensorId value) {
  const std::optional<OpKind> kind = op_kind(op);
  if (!is_one_of(kind, OpKind::convolution_backward, OpKind::convolution_weight_gradient)) return false;
  const std::vector<std::int64_t>& shape = walk.graph[value].shape;
  const auto of_weight = std::ranges::find_if(op.outputs, [&](TensorId t) {
    return walk.graph[t].kind == TensorKind::parameter_gradient && walk.graph[t].shape.size() == 4;
  });
  const auto of_result =
      std::ranges::find_if(op.inputs, [&](TensorId t) { return walk.graph[t].kind == TensorKind::gradient; });
  if (of_weight == op.outputs.end() || of_result == op.inputs.end() || shape.size() != 4) return false;
  const std::vector<std::int64_t>&weight = walk.graph[*of_weight].shape, &result = walk.graph[*of_result].shape;
  if (result.size() != 4) return false;
  const auto is_size = [&](std::size_t first) {
    return shape[first] == result[first] && shape[first + 1] == result[first + 1];
  };
  const bool by_pytorch = kind == OpKind::convolution_backward;  // channels first
  const std::size_t kernel = by_pytorch ? 2 : 0;
  return weight[kernel] == 1 && weight[kernel + 1] == 1 && is_size(by_pytorch ? 2 : 1);
}

bool may_read_packed(const Walk& walk, const Op& op, BufferId b) {
  const Codec& codec = walk.schedule.codecs[walk.schedule[b].codec.index];
  const std::optional<OpKind> kind = op_kind(op);
  const bool is_pooling = kind == OpKind::max_pool_with_indices_backward;  // of its input it needs the shape
  if (codec.kind == CodecKind::index) return is_pooling;
  if (codec.kind == CodecKind::step) return is_backward(op.phase) && needs_derivative(op);
  if (codec.kind == CodecKind::pool) return codec.product > 0 && multiplies_pixels(walk, op, walk.schedule[b].tensor);
  if (codec.kind == CodecKind::block_sparse && codec.product == 0) return false;
  const bool is_of_rows =
      codec.kind == CodecKind::rows || codec.kind == CodecKind::projection || codec.kind == CodecKind::block_sparse;
  if (is_of_rows) {  // a product summed over rows, or over sums of rows; what is left out is taken for 0
    const bool multiplies = is_one_of(kind, OpKind::mm, OpKind::linear_weight_gradient);
    const auto of_weight = [&](TensorId t) { return walk.graph[t].kind == TensorKind::parameter_gradient; };
    return multiplies && is_backward(op.phase) && std::ranges::any_of(op.outputs, of_weight);
  }
  return has_signs(codec) && (is_gradient_of_relu(op) || is_pooling);
}

}  // namespace

bool is_gradient_of_relu(const Op& op) {
  return op_kind(op) == OpKind::relu_gradient;
}

Does does(const Walk& walk, const Op& op, BufferId packed) {
  if (op.uses.empty()) return may_read_packed(walk, op, packed) ? Does::with_packed : Does::without;
  const Codec& codec = walk.schedule.codecs[walk.schedule[packed].codec.index];
  bool any = false, all = true;
  for (const InputUse& each : op.uses) {
    if (each.tensor != walk.schedule[packed].tensor) continue;
    const bool can = can_do_with(each.use, codec);
    any |= can;
    all &= can;
  }
  if (!any) return Does::without;
  return all ? Does::with_packed : Does::with_packed_beside;
}

bool is_served(const Walk& walk, const Step& step, const InputUse& use) {
  return std::ranges::any_of(walk.schedule.buffers_in(step.reads), [&](BufferId b) {
    return walk.schedule[b].is_packed() && walk.schedule[b].tensor == use.tensor &&
           can_do_with(use.use, walk.schedule.codecs[walk.schedule[b].codec.index]);
  });
}

std::optional<ProductCost> product_on_packed(const Walk& walk, const Step& step) {
  const Op& op = walk.graph[step.op];
  if (walk.schedule.codecs.empty() || !op.uses.empty()) return std::nullopt;
  const auto gives = [&](BufferId b) {
    if (!walk.schedule[b].is_packed() || !may_read_packed(walk, op, b)) return false;
    const Codec& codec = walk.schedule.codecs[walk.schedule[b].codec.index];
    return codec.kind == CodecKind::rows || codec.kind == CodecKind::projection || codec.product > 0;
  };
  const auto reads = walk.schedule.buffers_in(step.reads);
  const auto form = std::ranges::find_if(reads, gives);
  const auto is_gradient = [&](TensorId t) { return walk.graph[t].kind == TensorKind::gradient; };
  const auto of_result = std::ranges::find_if(op.inputs, is_gradient);
  if (form == reads.end() || of_result == op.inputs.end()) return std::nullopt;

  const Codec& codec = walk.schedule.codecs[walk.schedule[*form].codec.index];
  const Tensor &value = walk.graph[walk.schedule[*form].tensor], &gradient = walk.graph[*of_result];
  const Taken taken = taken_by(codec, value.shape);
  const bool makes_both = std::ranges::any_of(op.outputs, is_gradient);
  const double product = codec.product > 0 ? taken.share / codec.product : taken.share;
  const double all = makes_both ? (1 + product) / 2 : product;

  ProductCost cost;
  const std::int64_t rows = gradient.bytes.count / taken.of_rows * taken.rows;
  const std::int64_t transformed = is_transform(codec) ? gradient.bytes.count : 0;
  cost.workspace = rows + transformed;
  const Device& device = walk.platform[walk.schedule[step.stream].device];
  // By a kernel of its own: all pixels of the gradient, or the rows that count, are read and a share is written.
  const bool reads_all = codec.kind == CodecKind::pool || codec.kind == CodecKind::projection;
  // What is transformed is written there, and those of its rows that count are read again, by one more.
  const std::int64_t read = (reads_all ? gradient.bytes.count : rows) + (transformed > 0 ? transformed + rows : 0);
  const double launch = (rows > 0 ? 1 : 0) * device.launch_overhead.value * (transformed > 0 ? 2 : 1);
  const bool as_measured =
      device.takes_trace_times || (!walk.graph.source.device.empty() && walk.graph.source.device == device.model);
  if (as_measured && op.duration) {
    cost.seconds = all * op.duration->value;
    if (rows > 0 && device.memory_bandwidth) {
      *cost.seconds += static_cast<double>(read + rows) / device.memory_bandwidth->value + launch;
    }
    return cost;
  }
  if (!op.flops || !op.bytes_moved || !device.memory_bandwidth) return cost;
  std::int64_t moved = op.bytes_moved->count - value.bytes.count;
  for (const BufferId b : reads) {  // the whole form, or its ranges
    if (walk.schedule[b].tensor == walk.schedule[*form].tensor &&
        walk.schedule[b].codec == walk.schedule[*form].codec) {
      moved += walk.schedule[b].bytes.count;
    }
  }
  if (rows > 0) {
    moved += read + rows + rows;
    if (!makes_both) moved -= gradient.bytes.count;
  }
  double longest = static_cast<double>(std::max<std::int64_t>(moved, 0)) / device.memory_bandwidth->value;
  if (op.flops->count > 0) {
    const auto peak = device.peak.find(walk.graph.source.dtype);
    if (peak == device.peak.end()) return cost;
    longest = std::max(longest, all * op.flops->count / peak->second.value);
  }
  cost.seconds = longest + device.launch_overhead.value + launch;
  return cost;
}

}  // namespace plimsoll
