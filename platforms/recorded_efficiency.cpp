#include "platforms/recorded_efficiency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "platforms/efficiency_fit.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

struct TimedKernel {
  GpuKernel kernel;
  KernelWork work;
  Seconds time;
};

using SetShare = std::function<void(Efficiency&, double)>;

struct KernelGroup {
  std::vector<TimedKernel> kernels;
  SetShare set;
};

void set_attention(Efficiency& efficiency, const GpuKernel& kernel, double share) {
  SizeGrid point({{kernel.sequence}, {kernel.heads}}, {std::log(share)});
  efficiency.attention[kernel.dtype].insert_or_assign(kernel.head_size, std::move(point));
}

/// The key of a kernel, and how its share is set. In an order in which no share rests on a later one.
std::pair<std::string, SetShare> place_of(const GpuKernel& kernel) {
  const std::string dtype = kernel.dtype;
  const auto by_dtype = [&](const char* key, Efficiency::ByDtype Efficiency::*shares) {
    return std::pair<std::string, SetShare>(
        fmt::format("{}.{}", key, dtype),
        [shares, dtype](Efficiency& e, double share) { (e.*shares).insert_or_assign(dtype, share); });
  };
  const auto plain = [](const char* key, double Efficiency::*share_at) {
    return std::pair<std::string, SetShare>(key, [share_at](Efficiency& e, double share) { e.*share_at = share; });
  };
  switch (kernel.kind) {
    case KernelKind::elementwise:
      return plain("elementwise", &Efficiency::elementwise);
    case KernelKind::norm:
      return plain("norm", &Efficiency::norm);
    case KernelKind::softmax:
      return plain("softmax", &Efficiency::softmax);
    case KernelKind::optimizer:
      return plain("optimizer", &Efficiency::optimizer);
    case KernelKind::product:
      return kernel.is_aligned ? by_dtype("product_without_table", &Efficiency::product_without_table)
                               : by_dtype("unaligned_product", &Efficiency::unaligned_product);
    case KernelKind::batched_product:
      return plain("batched_product", &Efficiency::batched_product);
    case KernelKind::attention:
      return {fmt::format("attention.{}.{:g}", dtype, kernel.head_size),
              [kernel](Efficiency& e, double share) { set_attention(e, kernel, share); }};
    case KernelKind::attention_backward:
      return plain("attention_backward", &Efficiency::attention_backward);
    case KernelKind::convolution:
      return by_dtype("convolution", &Efficiency::convolution);
    case KernelKind::convolution_input_gradient:
      return by_dtype("convolution_input_gradient", &Efficiency::convolution_input_gradient);
    case KernelKind::convolution_weight_gradient:
      return by_dtype("convolution_weight_gradient", &Efficiency::convolution_weight_gradient);
    case KernelKind::convolution_backward:  // one op of both
      return {fmt::format("convolution_input_gradient.{} and convolution_weight_gradient.{}", dtype, dtype),
              [dtype](Efficiency& e, double share) {
                e.convolution_input_gradient.insert_or_assign(dtype, share);
                e.convolution_weight_gradient.insert_or_assign(dtype, share);
              }};
    case KernelKind::other:
      break;
  }
  return {};
}

/// As PyTorch names them: they contain what a rank waits for.
bool is_collective(const Op& op) {
  return op.kind.starts_with("nccl") || op.kind.starts_with("c10d");
}

class ShareFit {
 public:
  ShareFit(const Efficiency& efficiency, const Device& device, const KernelGroup& group)
      : efficiency_(efficiency), device_(device), group_(group) {}

  /// With which the kernels together take as long as measured: more share, less time.
  double share() {
    double low = 1e-4, high = largest_share;
    for (int step = 0; step < 60; ++step) {
      const double middle = std::sqrt(low * high);
      (sum_at(middle) > measured() ? low : high) = middle;
    }
    return std::sqrt(low * high);
  }

  Seconds measured() const {
    Seconds sum;
    for (const TimedKernel& each : group_.kernels) sum += each.time;
    return sum;
  }

  Seconds sum_at(double share) {
    group_.set(efficiency_, share);
    Seconds sum;
    for (const TimedKernel& each : group_.kernels) sum += predicted(each);
    return sum;
  }

  Seconds predicted(const TimedKernel& each) const {
    const std::optional<KernelTime> time = kernel_time(efficiency_, device_, each.kernel, each.work);
    return time ? time->time : Seconds{0};
  }

 private:
  Efficiency efficiency_;
  const Device& device_;
  const KernelGroup& group_;
};

/// Sorts share a key's first word: `product_without_table.bf16` and that of fp32 are one.
std::string sort_of_key(const std::string& key) {
  const std::string word = key.substr(0, key.find('.'));
  if (word.starts_with("convolution")) return "convolution";
  return word == "attention_backward" ? "attention" : word;
}

}  // namespace

RecordedEfficiency recorded_efficiency(const Graph& graph, const Device& device, std::string name) {
  if (device.peak.empty() || !device.memory_bandwidth) {
    throw InputError(
        fmt::format("the device '{}' has no peak or no memory_bandwidth, of which shares could be", device.name));
  }
  RecordedEfficiency made;
  Efficiency& efficiency = made.efficiency;
  efficiency.name = std::move(name);
  efficiency.model = graph.source.device;
  efficiency.memory_bandwidth = device.memory_bandwidth;
  std::map<std::string, KernelGroup> groups;  // elementwise before batched_product, attention before its backward
  std::optional<Seconds> floor;
  for (const Op& op : graph.ops) {
    if (!op.duration || *op.duration <= Seconds{0} || is_collective(op)) continue;
    const Seconds of_one{op.duration->value / op.launches};
    floor = std::min(floor.value_or(of_one), of_one);
    GpuKernel kernel = gpu_kernel(graph, op);
    auto [key, set] = place_of(kernel);
    const bool has_peak = kernel.dtype.empty() || peak_of(device, kernel.dtype);
    if (key.empty() || !op.flops || !op.bytes_moved || !has_peak) {
      ++made.others;
      made.of_others += *op.duration;
      continue;
    }
    KernelGroup& group = groups[key == "attention_backward" || key == "batched_product" ? "~" + key : key];
    group.set = std::move(set);
    group.kernels.push_back({std::move(kernel), {*op.flops, *op.bytes_moved, op.traffic, op.launches}, *op.duration});
  }
  if (groups.empty()) throw InputError("no op of the recording has a time and a sort that is measured by itself");
  efficiency.peak = device.peak;
  efficiency.kernel_floor = *floor;
  std::map<std::string, std::vector<double>> ratios;
  for (const auto& [key, group] : groups) {
    ShareFit fit(efficiency, device, group);
    RecordedSort sort{.key = key.starts_with("~") ? key.substr(1) : key,
                      .kernels = group.kernels.size(),
                      .measured = fit.measured(),
                      .by_share = fit.sum_at(1),
                      .share = fit.share()};
    if (sort.by_share <= Seconds{0}) {  // a backward of attention without a forward
      made.others += sort.kernels;
      made.of_others += sort.measured;
      continue;
    }
    sort.by_share = fit.sum_at(sort.share);
    group.set(efficiency, sort.share);
    for (const TimedKernel& each : group.kernels) {
      const double ratio = each.time / fit.predicted(each);
      ratios[sort_of_key(sort.key)].push_back(ratio);
      sort.mean_error += std::abs(1 / ratio - 1) * (each.time / sort.measured);
    }
    made.sorts.push_back(std::move(sort));
  }
  for (auto& [sort, list] : ratios) {
    if (list.size() >= fewest_rows_of_spread) efficiency.spread[sort] = spread_of(std::move(list));
  }
  std::ranges::stable_sort(made.sorts, std::ranges::greater{}, &RecordedSort::measured);
  return made;
}

}  // namespace plimsoll
