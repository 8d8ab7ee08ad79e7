#include "sim/ops/efficiency.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/core/optimizer.h"
#include "sim/core/platform.h"

namespace plimsoll {
namespace {

/// As platforms write it: `fp32` where 32 bits are no tf32 of the trace.
std::string written_dtype(const Graph& graph, const Tensor& tensor) {
  const std::string& dtype = dtype_of(graph, tensor);
  if (dtype == "bfloat16") return "bf16";
  if (dtype == "float16" || dtype == "half") return "fp16";
  if (dtype == "float32" || dtype == "float" || dtype == "fp32") return graph.source.dtype == "tf32" ? "tf32" : "fp32";
  return dtype;
}

double numbers_in(const Tensor& tensor) {
  double numbers = tensor.shape.empty() ? 0 : 1;
  for (const std::int64_t length : tensor.shape) numbers *= static_cast<double>(length);
  return numbers;
}

/// Numbers of an op's operands, of which the two largest count: a bias is a third.
struct Operands {
  double first = 0, last = 0, largest = 0;
  std::size_t count = 0;

  void add(double numbers) {
    largest = std::max(largest, numbers);
    ++count;
    if (count <= 2) {
      (count == 1 ? first : last) = numbers;
      if (count == 1) last = numbers;
    } else if (first <= last && numbers >= first) {
      first = std::exchange(last, numbers);
    } else if (numbers >= last) {
      last = numbers;
    }
  }
};

/// In the order of the tensors.
Operands operands_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  Operands found;
  for (const TensorId id : tensors) found.add(numbers_in(graph[id]));
  return found;
}

/// The same where tensors of one shape are parts of one, such as the queries, keys and values that one product makes.
Operands whole_operands_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::pair<const Tensor*, double>> wholes;
  for (const TensorId id : tensors) {
    const Tensor& tensor = graph[id];
    const auto like = std::ranges::find_if(wholes, [&](const auto& each) { return each.first->shape == tensor.shape; });
    if (like == wholes.end()) {
      wholes.emplace_back(&tensor, numbers_in(tensor));
    } else {
      like->second += numbers_in(tensor);
    }
  }
  Operands found;
  for (const auto& [tensor, numbers] : wholes) found.add(numbers);
  return found;
}

/// What a product multiplies and makes.
struct Factors {
  double x = 0, w = 0, y = 0;
};

/// Of a product that is one of several blocks: its parts of the first input or of all outputs
/// (sim/mesh/asynchronous_products.h), without what it writes into.
Factors sliced_factors(const Graph& graph, const Op& op, std::string_view sliced) {
  double slices = 1;
  const std::string_view text = attribute_of(op, "sliced_in").value_or("1");
  std::from_chars(text.data(), text.data() + text.size(), slices);
  std::vector<TensorId> read;
  std::ranges::copy_if(op.inputs, std::back_inserter(read),
                       [&](TensorId t) { return std::ranges::find(op.mutates, t) == op.mutates.end(); });
  const bool is_input = sliced == "input";
  Operands operands;
  for (std::size_t k = 0; k < read.size(); ++k)
    operands.add(numbers_in(graph[read[k]]) / (is_input && k == 0 ? slices : 1));
  const double made = whole_operands_of(graph, op.outputs).largest;
  return {operands.first, operands.last, is_input ? made : made / slices};
}

Factors factors_of(const Graph& graph, const Op& op, bool parts_together) {
  if (const auto sliced = attribute_of(op, "sliced")) return sliced_factors(graph, op, *sliced);
  const auto of = parts_together ? whole_operands_of : operands_of;
  const Operands operands = of(graph, op.inputs);
  return {operands.first, operands.last, of(graph, op.outputs).largest};
}

std::optional<GpuKernel> product(const Graph& graph, const Op& op, bool parts_together) {
  if (op.inputs.empty() || op.outputs.empty() || !op.flops || op.flops->count <= 0) return std::nullopt;
  const auto [x, w, y] = factors_of(graph, op, parts_together);
  if (x <= 0 || w <= 0 || y <= 0) return std::nullopt;
  // batch m k = x, batch k n = w, batch m n = y, 2 batch m n k = flops
  const double twice = op.flops->count / 2;
  const double batch = std::round(x * w * y / (twice * twice));
  if (batch < 1) return std::nullopt;
  const double m = std::sqrt(x * y / (w * batch)), n = std::sqrt(w * y / (x * batch)),
               k = std::sqrt(x * w / (y * batch));
  constexpr double near = 0.01;  // a bias counts in some traces' flops
  const bool agrees = std::abs(batch * m * n * k / twice - 1) <= near;
  if (!agrees || std::min({m, n, k}) < 1) return std::nullopt;
  return GpuKernel{.kind = batch > 1 ? KernelKind::batched_product : KernelKind::product,
                   .dtype = multiplies_8_bits(op) ? "fp8" : written_dtype(graph, graph[op.inputs.front()]),
                   .batch = batch,
                   .m = std::round(m),
                   .n = std::round(n),
                   .k = std::round(k)};
}

/// Whether rows of all matrices begin at multiples of 16 bytes, as tensor cores' loads want them.
bool has_aligned_rows(const Graph& graph, const Op& op, std::string_view dtype) {
  constexpr std::int64_t alignment = 16;
  const std::int64_t each = bytes_of_dtype(dtype).value_or(alignment);
  const auto is_aligned = [&](TensorId id) {
    const std::vector<std::int64_t>& shape = graph[id].shape;
    return shape.size() < 2 || shape.back() * each % alignment == 0;
  };
  return std::ranges::all_of(op.inputs, is_aligned) && std::ranges::all_of(op.outputs, is_aligned);
}

std::optional<GpuKernel> product(const Graph& graph, const Op& op) {
  std::optional<GpuKernel> found = product(graph, op, false);
  if (!found) found = product(graph, op, true);
  if (found) found->is_aligned = has_aligned_rows(graph, op, found->dtype);
  return found;
}

/// Flops of two products, of whole squares or of causal halves, forward: 4 or 2 numbers x sequence; the backward's five
/// products: 10 or 5. Of a rank that has a share of the queries, as many as there are keys.
std::optional<GpuKernel> attention(const Graph& graph, const Op& op, KernelKind kind) {
  if (op.inputs.empty() || !op.flops) return std::nullopt;
  const bool is_backward = kind == KernelKind::attention_backward;
  const std::size_t first = is_backward && op.inputs.size() > 1 ? 1 : 0;  // after the gradient: the queries
  // What reads views as their storage's rows has the shape of queries in its result, and in their gradient.
  const bool is_of_rows = graph[op.inputs[first]].shape.size() < 3 && !op.outputs.empty();
  const Tensor& query = graph[is_of_rows ? op.outputs.front() : op.inputs[first]];
  if (query.shape.size() < 3) return std::nullopt;
  const Tensor& keys = graph[op.inputs[std::min(first + 1, op.inputs.size() - 1)]];
  const double numbers = numbers_in(query), head_size = static_cast<double>(query.shape.back());
  for (const double products : is_backward ? std::array{5.0, 10.0, 4.0} : std::array{2.0, 4.0, 4.0}) {
    const double sequence = op.flops->count / (products * numbers);
    const auto is_length = [&](std::int64_t length) {
      return std::abs(static_cast<double>(length) / sequence - 1) <= 0.01;
    };
    if (std::ranges::none_of(query.shape, is_length) && std::ranges::none_of(keys.shape, is_length)) continue;
    return GpuKernel{.kind = kind,
                     .dtype = written_dtype(graph, query),
                     .sequence = std::round(sequence),
                     .heads = numbers / (std::round(sequence) * head_size),
                     .head_size = head_size};
  }
  return std::nullopt;
}

KernelKind sort_of(std::optional<OpKind> kind) {
  using enum OpKind;
  if (is_one_of(kind, linear, linear_input_gradient, linear_weight_gradient, attention_scores, attention_values,
                expert_product, expert_product_input_gradient, expert_product_weight_gradient, mm, bmm, baddbmm,
                matmul)) {
    return KernelKind::product;
  }
  if (kind == fused_attention) return KernelKind::attention;
  if (kind == fused_attention_backward) return KernelKind::attention_backward;
  if (is_one_of(kind, convolution, conv2d, conv)) return KernelKind::convolution;
  if (kind == convolution_input_gradient) return KernelKind::convolution_input_gradient;
  if (kind == convolution_weight_gradient) return KernelKind::convolution_weight_gradient;
  if (kind == convolution_backward) return KernelKind::convolution_backward;
  if (is_one_of(kind, batch_norm, batch_norm_input_gradient, batch_norm_weight_gradient, layer_norm,
                layer_norm_input_gradient, layer_norm_weight_gradient, root_norm, root_norm_input_gradient,
                root_norm_weight_gradient, native_batch_norm, native_batch_norm_backward, cudnn_batch_norm,
                cudnn_batch_norm_backward, native_layer_norm, native_layer_norm_backward)) {
    return KernelKind::norm;
  }
  if (is_one_of(kind, OpKind::softmax, softmax_gradient, cross_entropy, cross_entropy_gradient, log_softmax,
                log_softmax_backward)) {
    return KernelKind::softmax;
  }
  return KernelKind::elementwise;
}

bool is_convolution(KernelKind kind) {
  using enum KernelKind;
  return kind == convolution || kind == convolution_input_gradient || kind == convolution_weight_gradient ||
         kind == convolution_backward;
}

/// Of a dtype, or of another with as many bits on the same units.
template <class Tables>
auto table_of(const Tables& tables, std::string_view dtype) {
  auto found = tables.find(dtype);
  if (found == tables.end() && dtype == "fp16") found = tables.find("bf16");
  if (found == tables.end() && dtype == "bf16") found = tables.find("fp16");
  return found;
}

double flops_of(const GpuKernel& kernel) {
  return 2 * kernel.batch * kernel.m * kernel.n * kernel.k;
}

std::optional<Seconds> roofline_at(const std::optional<FlopsPerSecond>& peak, const Device& device,
                                   const GpuKernel& kernel) {
  const std::optional<std::int64_t> each = bytes_of_dtype(kernel.dtype);
  if (!peak || !each || !device.memory_bandwidth) return std::nullopt;
  const double numbers = kernel.batch * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n);
  const Seconds moving{static_cast<double>(*each) * numbers / device.memory_bandwidth->value};
  return std::max(Flops{flops_of(kernel)} / *peak, moving);
}

/// Of a product, or of all products of a batch; `reference` is what shares are of.
KernelTime by_grid(const SizeGrid& grid, Seconds reference, FlopsPerSecond peak, const GpuKernel& kernel) {
  const std::array sizes{kernel.m, kernel.n, kernel.k};
  const Seconds time{reference.value / std::exp(grid.at(sizes))};
  const Seconds least = Flops{flops_of(kernel)} / peak;
  return {std::max(time, least), grid.is_outside(sizes) ? TimedBy::border : TimedBy::table};
}

std::optional<KernelTime> product_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel) {
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  const std::optional<Seconds> roofline = roofline_at(peak, device, kernel);
  if (!roofline) return std::nullopt;
  const auto unaligned =
      kernel.is_aligned ? efficiency.unaligned_product.end() : table_of(efficiency.unaligned_product, kernel.dtype);
  if (unaligned != efficiency.unaligned_product.end()) {
    const Seconds computing = Flops{flops_of(kernel) / unaligned->second} / *peak;
    return KernelTime{std::max(*roofline, computing) + efficiency.kernel_floor, TimedBy::share};
  }
  const auto table = table_of(efficiency.product, kernel.dtype);
  if (table == efficiency.product.end()) {
    const auto share = table_of(efficiency.product_without_table, kernel.dtype);
    if (share == efficiency.product_without_table.end()) return std::nullopt;
    return KernelTime{Seconds{(*roofline + efficiency.kernel_floor).value / share->second}, TimedBy::share};
  }
  return by_grid(table->second, *roofline + efficiency.kernel_floor, *peak, kernel);
}

std::optional<KernelTime> batched_product_time(const Efficiency& efficiency, const Device& device,
                                               const GpuKernel& kernel, const KernelWork& work) {
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  if (!peak) return std::nullopt;
  const auto table = table_of(efficiency.batched_product_by_size, kernel.dtype);
  const std::optional<Seconds> roofline = roofline_at(peak, device, kernel);
  if (table != efficiency.batched_product_by_size.end() && roofline) {
    return by_grid(table->second, *roofline + efficiency.kernel_floor, *peak, kernel);
  }
  const Seconds computing{(work.flops / *peak).value / efficiency.batched_product};
  const Seconds moving{(work.bytes / *device.memory_bandwidth).value * work.traffic / efficiency.elementwise};
  return KernelTime{std::max(computing, moving) + work.launches * efficiency.kernel_floor, TimedBy::share};
}

const Efficiency::ByDtype& convolution_shares(const Efficiency& efficiency, KernelKind kind, bool channels_last) {
  if (kind == KernelKind::convolution_input_gradient) {
    return channels_last ? efficiency.channels_last_convolution_input_gradient : efficiency.convolution_input_gradient;
  }
  if (kind == KernelKind::convolution_weight_gradient) {
    return channels_last ? efficiency.channels_last_convolution_weight_gradient
                         : efficiency.convolution_weight_gradient;
  }
  return channels_last ? efficiency.channels_last_convolution : efficiency.convolution;
}

std::optional<double> convolution_share(const Efficiency& efficiency, const GpuKernel& kernel) {
  for (const bool channels_last : {true, false}) {
    if (channels_last && !kernel.is_channels_last) continue;
    const Efficiency::ByDtype& shares = convolution_shares(efficiency, kernel.kind, channels_last);
    if (const auto found = table_of(shares, kernel.dtype); found != shares.end()) return found->second;
  }
  return std::nullopt;
}

std::optional<KernelTime> convolution_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel,
                                           const KernelWork& work) {
  if (kernel.kind == KernelKind::convolution_backward) {  // as long as two of half its work
    GpuKernel half = kernel;
    const KernelWork of_half{Flops{work.flops.count / 2}, work.bytes, work.traffic / 2, work.launches};
    half.kind = KernelKind::convolution_input_gradient;
    const std::optional<KernelTime> first = convolution_time(efficiency, device, half, of_half);
    half.kind = KernelKind::convolution_weight_gradient;
    const std::optional<KernelTime> second = convolution_time(efficiency, device, half, of_half);
    if (!first || !second) return std::nullopt;
    return KernelTime{first->time + second->time, TimedBy::share};
  }
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  const std::optional<double> share = convolution_share(efficiency, kernel);
  if (!peak || !share) return std::nullopt;
  const Seconds moving{(work.bytes / *device.memory_bandwidth).value * work.traffic};
  const Seconds roofline = std::max(work.flops / *peak, moving) + work.launches * efficiency.kernel_floor;
  return KernelTime{Seconds{roofline.value / *share}, TimedBy::share};
}

/// The table of the nearest head size.
std::optional<KernelTime> attention_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel,
                                         const KernelWork& work) {
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  const auto tables = table_of(efficiency.attention, kernel.dtype);
  if (!peak || tables == efficiency.attention.end() || tables->second.empty()) return std::nullopt;
  const auto nearest = std::ranges::min_element(
      tables->second, {}, [&](const auto& of_size) { return std::abs(std::log(of_size.first / kernel.head_size)); });
  const std::array sizes{kernel.sequence, kernel.heads};
  const bool is_backward = kernel.kind == KernelKind::attention_backward;
  const double share = std::exp(nearest->second.at(sizes)) * (is_backward ? efficiency.attention_backward : 1);
  const Seconds computing = work.flops / *peak;
  const Seconds time{(computing + efficiency.kernel_floor).value / share};
  const bool is_outside = nearest->first != kernel.head_size || nearest->second.is_outside(sizes);
  return KernelTime{std::max(time, computing), is_outside ? TimedBy::border : TimedBy::table};
}

double share_of(const Efficiency& efficiency, KernelKind kind) {
  if (kind == KernelKind::norm) return efficiency.norm;
  if (kind == KernelKind::softmax) return efficiency.softmax;
  if (kind == KernelKind::optimizer) return efficiency.optimizer;
  return efficiency.elementwise;
}

/// As measured, one kernel after a pause.
std::optional<KernelTime> time_alone(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel,
                                     const KernelWork& work) {
  if (!device.memory_bandwidth) return std::nullopt;
  if (is_convolution(kernel.kind)) return convolution_time(efficiency, device, kernel, work);
  switch (kernel.kind) {
    case KernelKind::product:
      return product_time(efficiency, device, kernel);
    case KernelKind::batched_product:
      return batched_product_time(efficiency, device, kernel, work);
    case KernelKind::attention:
    case KernelKind::attention_backward:
      return attention_time(efficiency, device, kernel, work);
    case KernelKind::other:
      return std::nullopt;
    default:
      break;
  }
  if (work.flops.count == 0 && work.bytes == Bytes{0}) return KernelTime{Seconds{0}, TimedBy::share};
  const Seconds moving{(work.bytes / *device.memory_bandwidth).value * work.traffic /
                       share_of(efficiency, kernel.kind)};
  return KernelTime{moving + work.launches * efficiency.kernel_floor, TimedBy::share};
}

}  // namespace

GpuKernel gpu_kernel(const Graph& graph, const Op& op) {
  if (op.phase == Phase::update) return {.kind = KernelKind::optimizer};
  const std::optional<OpKind> kind = nearest_kind(op.kind);
  const KernelKind sort = sort_of(kind);
  if (sort == KernelKind::product) return product(graph, op).value_or(GpuKernel{});
  if (sort == KernelKind::attention || sort == KernelKind::attention_backward) {
    return attention(graph, op, sort).value_or(GpuKernel{});
  }
  if (is_convolution(sort)) {
    const std::string dtype = op.inputs.empty() ? "" : written_dtype(graph, graph[op.inputs.front()]);
    return {.kind = sort,
            .dtype = dtype,
            .is_channels_last = attribute_of(op, "memory_format") == std::optional<std::string_view>("channels_last")};
  }
  // What computes much for what it moves is no element-wise kernel, whatever its name.
  const bool moves = !op.flops || !op.bytes_moved || op.flops->count <= 8 * static_cast<double>(op.bytes_moved->count);
  if (!moves || kind == OpKind::stage) return {};
  return {.kind = sort};
}

std::string_view product_sort(std::string_view dtype, bool is_batched) {
  if (dtype == "fp32") return is_batched ? "fp32_batched_product" : "fp32_product";
  if (dtype == "fp8" && !is_batched) return "fp8_product";
  return is_batched ? "batched_product" : "product";
}

std::string_view sort_name(const Efficiency& efficiency, const GpuKernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::product:
      if (!kernel.is_aligned &&
          table_of(efficiency.unaligned_product, kernel.dtype) != efficiency.unaligned_product.end()) {
        return "unaligned_product";
      }
      if (table_of(efficiency.product, kernel.dtype) == efficiency.product.end()) return "product_without_table";
      return product_sort(kernel.dtype, false);
    case KernelKind::batched_product:
      if (table_of(efficiency.batched_product_by_size, kernel.dtype) == efficiency.batched_product_by_size.end()) {
        return "batched_product";
      }
      return product_sort(kernel.dtype, true);
    case KernelKind::attention:
    case KernelKind::attention_backward:
      return "attention";
    case KernelKind::norm:
      return "norm";
    case KernelKind::softmax:
      return "softmax";
    case KernelKind::optimizer:
      return "optimizer";
    case KernelKind::convolution:
    case KernelKind::convolution_input_gradient:
    case KernelKind::convolution_weight_gradient:
    case KernelKind::convolution_backward:
      return "convolution";
    default:
      return "elementwise";
  }
}

std::optional<Seconds> product_roofline(const Device& device, const GpuKernel& kernel) {
  return roofline_at(peak_of(device, kernel.dtype), device, kernel);
}

std::optional<KernelTime> kernel_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel,
                                      const KernelWork& work) {
  std::optional<KernelTime> found = time_alone(efficiency, device, kernel, work);
  if (found) found->time = efficiency.sustained * found->time;
  return found;
}

std::optional<KernelTime> Efficiency::time(const StageKernel& of, const Source& source, const Device& device) const {
  const KernelWork& work = of.work;
  std::optional<KernelTime> found = kernel_time(*this, device, of.kernel, work);
  if (!found) {
    const std::string_view dtype = of.kernel.dtype == "fp8" ? of.kernel.dtype : std::string_view{};
    const auto roofline = duration({{}, work.flops, work.bytes, work.launches, work.traffic, dtype}, source, device);
    if (roofline) found = KernelTime{*roofline};
  }
  if (found) found->time = of.count * found->time;
  return found;
}

std::optional<KernelTime> Efficiency::time(const Graph& graph, const Op& op, const Device& device) const {
  if (!op.made_of.empty()) return KernelTimes::time(op.made_of, graph.source, device);
  if (!op.flops || !op.bytes_moved) return std::nullopt;
  return kernel_time(*this, device, gpu_kernel(graph, op), {*op.flops, *op.bytes_moved, op.traffic, op.launches});
}

Seconds Efficiency::moving(double bytes, const Device& device) const {
  if (!device.memory_bandwidth) return {};
  return Seconds{sustained * bytes / (elementwise * device.memory_bandwidth->value)};
}

std::optional<Seconds> Efficiency::collective(CollectiveKind kind, std::uint32_t ranks, double bytes) const {
  const auto found = collectives.find(kind);
  if (found == collectives.end()) return std::nullopt;
  const std::vector<double>& measured = found->second.sizes()[0];
  if (ranks < measured.front() || ranks > measured.back()) return std::nullopt;
  const double most = found->second.sizes()[1].back();
  const double seconds = std::exp(found->second.at(std::array{static_cast<double>(ranks), std::max(bytes, 1.0)}));
  return Seconds{seconds * std::max(bytes / most, 1.0)};
}

}  // namespace plimsoll
