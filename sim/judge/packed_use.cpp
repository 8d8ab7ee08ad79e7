// Products for the gradients of weights that a step computes on a packed form: what they take, counted a second time by
// the numbers that are multiplied.

#include <algorithm>
#include <cmath>

#include "sim/judge/judge.h"

namespace plimsoll {
namespace {

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

}  // namespace

/// A convolution of single pixels, each with one of the result: then means of blocks on both sides are all it needs.
bool Judge::multiplies_pixels(const Op& op, TensorId value) const {
  if (op.kind != "convolution_backward" && op.kind != "convolution_weight_gradient") return false;
  const std::vector<std::int64_t>& shape = graph_[value].shape;
  const auto of_weight = std::ranges::find_if(op.outputs, [&](TensorId t) {
    return graph_[t].kind == TensorKind::parameter_gradient && graph_[t].shape.size() == 4;
  });
  const auto of_result =
      std::ranges::find_if(op.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::gradient; });
  if (of_weight == op.outputs.end() || of_result == op.inputs.end() || shape.size() != 4) return false;
  const std::vector<std::int64_t>&weight = graph_[*of_weight].shape, &result = graph_[*of_result].shape;
  if (result.size() != 4) return false;
  const auto is_size = [&](std::size_t first) {
    return shape[first] == result[first] && shape[first + 1] == result[first + 1];
  };
  const bool by_pytorch = op.kind == "convolution_backward";  // channels first
  const std::size_t kernel = by_pytorch ? 2 : 0;
  return weight[kernel] == 1 && weight[kernel + 1] == 1 && is_size(by_pytorch ? 2 : 1);
}

std::optional<Judge::ProductCost> Judge::product_on_packed(const Step& step) const {
  const Op& op = graph_[step.op];
  if (!op.uses.empty()) return std::nullopt;
  const auto gives = [&](BufferId b) {
    if (!schedule_[b].is_packed() || !may_read_packed(op, b)) return false;
    const Codec& codec = schedule_.codecs[schedule_[b].codec.index];
    return codec.kind == CodecKind::rows || codec.kind == CodecKind::projection || codec.product > 0;
  };
  const auto reads = schedule_.buffers_in(step.reads);
  const auto form = std::ranges::find_if(reads, gives);
  const auto is_gradient = [&](TensorId t) { return graph_[t].kind == TensorKind::gradient; };
  const auto of_result = std::ranges::find_if(op.inputs, is_gradient);
  if (form == reads.end() || of_result == op.inputs.end()) return std::nullopt;

  const Codec& codec = schedule_.codecs[schedule_[*form].codec.index];
  const Tensor &value = graph_[schedule_[*form].tensor], &gradient = graph_[*of_result];
  const Taken taken = taken_by(codec, value.shape);
  const bool makes_both = std::ranges::any_of(op.outputs, is_gradient);
  const double product = codec.product > 0 ? taken.share / codec.product : taken.share;
  const double all = makes_both ? (1 + product) / 2 : product;

  ProductCost cost;
  const std::int64_t rows = gradient.bytes.count / taken.of_rows * taken.rows;
  const std::int64_t transformed = is_transform(codec) ? gradient.bytes.count : 0;
  cost.workspace = rows + transformed;
  const Device& device = platform_[schedule_[step.stream].device];
  // By a kernel of its own: all pixels of the gradient, or the rows that count, are read and a share is written.
  const bool reads_all = codec.kind == CodecKind::pool || codec.kind == CodecKind::projection;
  // What is transformed is written there, and those of its rows that count are read again, by one more.
  const std::int64_t read = (reads_all ? gradient.bytes.count : rows) + (transformed > 0 ? transformed + rows : 0);
  const double launch = (rows > 0 ? 1 : 0) * device.launch_overhead.value * (transformed > 0 ? 2 : 1);
  const bool as_measured =
      device.takes_trace_times || (!graph_.source.device.empty() && graph_.source.device == device.model);
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
    if (schedule_[b].tensor == schedule_[*form].tensor && schedule_[b].codec == schedule_[*form].codec) {
      moved += schedule_[b].bytes.count;
    }
  }
  if (rows > 0) {
    moved += read + rows + rows;
    if (!makes_both) moved -= gradient.bytes.count;
  }
  double longest = static_cast<double>(std::max<std::int64_t>(moved, 0)) / device.memory_bandwidth->value;
  if (op.flops->count > 0) {
    const auto peak = device.peak.find(graph_.source.dtype);
    if (peak == device.peak.end()) return cost;
    longest = std::max(longest, all * op.flops->count / peak->second.value);
  }
  cost.seconds = longest + device.launch_overhead.value + launch;
  return cost;
}

}  // namespace plimsoll
