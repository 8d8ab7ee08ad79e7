#include "platforms/sort_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// Where a sort's share is: of the memory's bandwidth, or of the roofline by dtype.
struct SortPlace {
  double Efficiency::*of_bandwidth = nullptr;
  Efficiency::ByDtype Efficiency::*of_roofline = nullptr;
};

constexpr std::array<std::string_view, 10> sort_keys{"elementwise",
                                                     "norm",
                                                     "softmax",
                                                     "optimizer",
                                                     "convolution",
                                                     "convolution_input_gradient",
                                                     "convolution_weight_gradient",
                                                     "channels_last_convolution",
                                                     "channels_last_convolution_input_gradient",
                                                     "channels_last_convolution_weight_gradient"};
constexpr std::array<SortPlace, sort_keys.size()> sort_places{
    SortPlace{.of_bandwidth = &Efficiency::elementwise},
    {.of_bandwidth = &Efficiency::norm},
    {.of_bandwidth = &Efficiency::softmax},
    {.of_bandwidth = &Efficiency::optimizer},
    {.of_roofline = &Efficiency::convolution},
    {.of_roofline = &Efficiency::convolution_input_gradient},
    {.of_roofline = &Efficiency::convolution_weight_gradient},
    {.of_roofline = &Efficiency::channels_last_convolution},
    {.of_roofline = &Efficiency::channels_last_convolution_input_gradient},
    {.of_roofline = &Efficiency::channels_last_convolution_weight_gradient}};

const SortPlace& place_of_sort(std::string_view sort) {
  const auto found = std::ranges::find(sort_keys, sort);
  EXPECTS(found != sort_keys.end());
  return sort_places[static_cast<std::size_t>(found - sort_keys.begin())];
}

/// A kernel's time is what its share divides, and what comes on top.
struct SortRow {
  std::size_t line = 0;
  Seconds measured, divided, on_top;

  Seconds by(double share) const { return Seconds{divided.value / share} + on_top; }
};

/// Spreads have one sort for all convolutions.
std::string spread_key(std::string_view sort) {
  return std::string(sort.find("convolution") == std::string_view::npos ? sort : "convolution");
}

double share_of(std::string_view sort, const std::vector<SortRow>& rows, const std::string& file) {
  Seconds measured, divided, on_top;
  for (const SortRow& row : rows) {
    measured += row.measured;
    divided += row.divided;
    on_top += row.on_top;
  }
  const double left = (measured - on_top).value;
  if (left > 0 && divided.value <= largest_share * left) return divided.value / left;
  refuse_row(
      file, rows.front().line, 1,
      fmt::format("{}: its {} kernels take {} in all, less than a {:g}rd of what the device's memory_bandwidth or "
                  "peak allows, with {} of --kernel-floor",
                  sort, rows.size(), format_seconds(measured), largest_share, format_seconds(on_top)));
}

}  // namespace

std::span<const std::string_view> measured_sorts() {
  return sort_keys;
}

void set_share(Efficiency& efficiency, std::string_view sort, const std::string& dtype, double share) {
  const SortPlace& place = place_of_sort(sort);
  if (place.of_bandwidth != nullptr) {
    efficiency.*place.of_bandwidth = share;
  } else {
    (efficiency.*place.of_roofline).insert_or_assign(dtype, share);
  }
}

FittedTable fitted_sorts(const MeasuredCsv& csv, const std::string& file, const Device& device,
                         const FitOptions& options) {
  const TimeColumn time = time_column_of(csv, file);
  const std::optional<std::size_t> bytes_at = column_of(csv, "bytes"), flops_at = column_of(csv, "flops");
  if (!bytes_at) refuse_row(file, 1, 1, "expected columns sort,flops,bytes and a time");
  refuse_few_rows(csv, file);
  const auto peak = device.peak.find(options.dtype);
  std::map<std::string, std::vector<SortRow>> by_sort;
  for (const MeasuredRow& row : csv.rows) {
    const Seconds moving = Bytes{std::llround(row.numbers[*bytes_at])} / *device.memory_bandwidth;
    SortRow made{row.line, Seconds{time.unit * row.numbers[time.at]}, moving, options.kernel_floor};
    if (place_of_sort(row.word).of_roofline != nullptr) {
      if (!flops_at) refuse_row(file, row.line, 1, fmt::format("{}: expected a column flops", row.word));
      made.divided = std::max(moving, Flops{row.numbers[*flops_at]} / peak->second) + options.kernel_floor;
      made.on_top = Seconds{0};
    }
    by_sort[row.word].push_back(made);
  }
  FittedTable fitted;
  fitted.rows = csv.rows.size();
  fitted.grid_points = by_sort.size();
  std::map<std::string, std::vector<double>> ratios;
  for (const auto& [sort, rows] : by_sort) {
    const double share = share_of(sort, rows, file);
    fitted.shares.emplace(sort, share);
    set_share(fitted.efficiency, sort, options.dtype, share);
    for (const SortRow& row : rows) {
      ratios[spread_key(sort)].push_back(row.measured / row.by(share));
      fitted.mean_error += std::abs(row.by(share) / row.measured - 1) / static_cast<double>(fitted.rows);
      fitted.roofline_error += std::abs(row.by(1) / row.measured - 1) / static_cast<double>(fitted.rows);
    }
  }
  for (auto& [sort, all] : ratios) {
    if (all.size() >= fewest_rows_of_spread) fitted.efficiency.spread.emplace(sort, spread_of(std::move(all)));
  }
  return fitted;
}

}  // namespace plimsoll
