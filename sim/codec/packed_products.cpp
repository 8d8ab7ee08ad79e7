#include "sim/codec/packed_products.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/core/scaling.h"

namespace plimsoll {
namespace {

std::int64_t rows_of_matrix(const Tensor& tensor) {
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return rows;
}

/// Of a product of matrices of so many rows, what it takes to make sums of the rows of the gradient.
double projecting(const Codec& codec, const Tensor& value) {
  if (codec.kind != CodecKind::projection) return 0;
  const std::int64_t rows = rows_of_matrix(value);
  return projecting_flops(codec, rows, 1) / (2.0 * static_cast<double>(rows) * static_cast<double>(value.shape.back()));
}

/// Of the gradient of the op's result, what the product takes: nothing where that is all of it, in its place.
Bytes taken_of_gradient(const Graph& graph, const Tensor& gradient, const Tensor& value, const Codec& codec) {
  if (codec.kind == CodecKind::pool) return packed_bytes(codec, graph, gradient);
  if (codec.kind != CodecKind::rows && codec.kind != CodecKind::projection) return Bytes{0};
  const std::int64_t rows = rows_of_matrix(value);
  const std::int64_t kept =
      static_cast<std::int64_t>(share_of_products(codec, graph, value) * static_cast<double>(rows) + 0.5);
  return Bytes{gradient.bytes.count / rows * kept};
}

}  // namespace

std::optional<OnPacked> on_packed(const Problem& problem, OpId id, DeviceId device, TensorId input,
                                  const Codec& codec) {
  const Graph& graph = problem.graph;
  const Op& op = graph[id];
  const bool is_projected = codec.kind == CodecKind::projection;
  const bool is_product = codec.kind == CodecKind::rows || is_projected || codec.product > 0;
  if (!is_product || !op.uses.empty() || !reads_packed(op, codec)) return std::nullopt;
  const auto is_gradient = [&](TensorId t) { return graph[t].kind == TensorKind::gradient; };
  const auto gradient = std::ranges::find_if(op.inputs, is_gradient);
  if (gradient == op.inputs.end()) return std::nullopt;
  const Tensor &value = graph[input], &of_result = graph[*gradient];
  const double part = std::ranges::any_of(op.outputs, is_gradient) ? 0.5 : 1;
  const double rate = codec.product > 0 ? codec.product : 1;
  const double products = share_of_products(codec, graph, value) / rate + projecting(codec, value);
  const double share = 1 - part + part * products;
  const Bytes taken = taken_of_gradient(graph, of_result, value, codec);
  const bool gathers = taken > Bytes{0}, reads_all = codec.kind == CodecKind::pool || is_projected;
  const Bytes transformed = is_projected && codec.sums == Projection::dct ? of_result.bytes : Bytes{0};
  // read and written; what is transformed is written first, and the rows of it are read that count
  const Bytes gathered = (gathers ? (reads_all ? of_result.bytes : taken) + taken : Bytes{0}) +
                         (transformed > Bytes{0} ? transformed + taken : Bytes{0});
  const Bytes replaced = gathers && part == 1 ? of_result.bytes : Bytes{0};  // nobody else reads all of it
  const Bytes moved = packed_bytes(codec, graph, value) - value.bytes + gathered + taken - replaced;

  const Device& where = problem.platform[device];
  const double kernels = (gathers ? 1.0 : 0.0) + (transformed > Bytes{0} ? 1.0 : 0.0);
  const Seconds launch = kernels * where.launch_overhead;
  if (op.duration && times_hold(graph.source, where)) {
    const Seconds gathering =
        gathers && where.memory_bandwidth ? gathered / *where.memory_bandwidth + launch : Seconds{0};
    return OnPacked{share * *op.duration + gathering, taken + transformed};
  }
  if (!op.flops || !op.bytes_moved) return std::nullopt;
  const OpCost cost{std::nullopt, Flops{share * op.flops->count}, std::max(Bytes{0}, *op.bytes_moved + moved)};
  const std::optional<Seconds> seconds = duration(cost, graph.source, where);
  if (!seconds) return std::nullopt;
  return OnPacked{*seconds + launch, taken + transformed};
}

}  // namespace plimsoll
