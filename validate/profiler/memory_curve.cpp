#include "validate/profiler/memory_curve.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// The total at a date, the last one where several have it.
Bytes total_at(std::span<const DatedTotal> totals, Nanoseconds date) {
  const auto after = std::ranges::upper_bound(totals, date, {}, &DatedTotal::date);
  return (after == totals.begin() ? *after : *std::prev(after)).total;
}

}  // namespace

std::optional<MemoryCurve> curve_of(std::span<const DatedTotal> totals, Nanoseconds begin, Nanoseconds end) {
  if (totals.empty() || end < begin) return std::nullopt;
  MemoryCurve curve;
  const double length = static_cast<double>(end - begin);
  for (std::size_t i = 0; i < curve.at.size(); ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(curve.at.size() - 1);
    curve.at[i] = total_at(totals, i + 1 == curve.at.size() ? end : begin + static_cast<Nanoseconds>(part * length));
  }
  const auto first = std::ranges::lower_bound(totals, begin, {}, &DatedTotal::date);
  const auto last = std::ranges::upper_bound(totals, end, {}, &DatedTotal::date);
  DatedTotal now{begin, (first == totals.begin() ? *first : *std::prev(first)).total};
  curve.peak = now.total;
  double bytes_seconds = 0;
  const auto hold_until = [&](Nanoseconds date) {
    bytes_seconds += static_cast<double>(now.total.count) * static_cast<double>(date - now.date);
  };
  for (auto next = first; next != last; ++next) {
    hold_until(next->date);
    now = *next;
    curve.peak = std::max(curve.peak, now.total);
  }
  hold_until(end);
  curve.mean = end > begin ? Bytes{static_cast<std::int64_t>(bytes_seconds / length)} : now.total;
  return curve;
}

CurveDistance distance(const MemoryCurve& a, const MemoryCurve& b) {
  CurveDistance apart;
  double sum = 0;
  for (std::size_t i = 0; i < a.at.size(); ++i) {
    const Bytes here = std::max(a.at[i] - b.at[i], b.at[i] - a.at[i]);
    sum += static_cast<double>(here.count);
    if (here > apart.most) {
      apart.most = here;
      apart.most_at = i;
    }
  }
  apart.mean = Bytes{static_cast<std::int64_t>(sum / static_cast<double>(a.at.size()))};
  return apart;
}

}  // namespace plimsoll
