#include "sim/core/efficiency.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/optimizer.h"
#include "sim/core/platform.h"

namespace plimsoll {
namespace {

std::optional<FlopsPerSecond> peak_of(const Device& device, std::string_view dtype) {
  const auto found = device.peak.find(std::string(dtype));
  return found == device.peak.end() ? std::nullopt : std::optional(found->second);
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

std::optional<KernelTime> product_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel) {
  const std::optional<Seconds> roofline = product_roofline(device, kernel);
  const auto table = table_of(efficiency.product, kernel.dtype);
  if (!roofline || table == efficiency.product.end()) return std::nullopt;
  const std::array sizes{kernel.m, kernel.n, kernel.k};
  const Seconds time{(*roofline + efficiency.kernel_floor).value / std::exp(table->second.at(sizes))};
  const Seconds least = Flops{flops_of(kernel)} / *peak_of(device, kernel.dtype);
  return KernelTime{std::max(time, least), table->second.is_outside(sizes) ? TimedBy::border : TimedBy::table};
}

std::optional<KernelTime> batched_product_time(const Efficiency& efficiency, const Device& device,
                                               const GpuKernel& kernel, const KernelWork& work) {
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  if (!peak) return std::nullopt;
  const Seconds computing{(work.flops / *peak).value / efficiency.batched_product};
  const Seconds moving{(work.bytes / *device.memory_bandwidth).value * work.traffic / efficiency.elementwise};
  return KernelTime{std::max(computing, moving) + work.launches * efficiency.kernel_floor, TimedBy::share};
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

}  // namespace

std::optional<Seconds> product_roofline(const Device& device, const GpuKernel& kernel) {
  const std::optional<FlopsPerSecond> peak = peak_of(device, kernel.dtype);
  const std::optional<std::int64_t> each = bytes_of_dtype(kernel.dtype);
  if (!peak || !each || !device.memory_bandwidth) return std::nullopt;
  const double numbers = kernel.batch * (kernel.m * kernel.k + kernel.k * kernel.n + kernel.m * kernel.n);
  const Seconds moving{static_cast<double>(*each) * numbers / device.memory_bandwidth->value};
  return std::max(Flops{flops_of(kernel)} / *peak, moving);
}

std::optional<KernelTime> kernel_time(const Efficiency& efficiency, const Device& device, const GpuKernel& kernel,
                                      const KernelWork& work) {
  if (!device.memory_bandwidth) return std::nullopt;
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

}  // namespace plimsoll
