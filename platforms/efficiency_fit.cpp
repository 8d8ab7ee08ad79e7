#include "platforms/efficiency_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "platforms/full_grid.h"
#include "platforms/measured_csv.h"
#include "platforms/sort_shares.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/ops/size_grid.h"

namespace plimsoll {
namespace {

/// What a table is made of: sizes, the time that was measured there, what the device's peak alone would take, and the
/// reference of shares.
struct Measured {
  std::size_t line = 0;
  std::vector<double> sizes;
  double head_size = 0;
  Seconds time, computing, reference;
};

/// Times of which half are a hundred times as long as their rooflines are in another unit than their column says.
void refuse_long(std::span<const Measured> rows, const std::string& column, const std::string& file) {
  constexpr double longest = 100;
  std::vector<double> ratios;
  for (const Measured& row : rows) ratios.push_back(row.time / row.reference);
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::ranges::nth_element(ratios, middle);
  if (*middle <= longest) return;
  refuse_row(file, 1, 1,
             fmt::format("{}: half of the times are more than {:.3g} times their rooflines: is it the unit?", column,
                         *middle));
}

/// Sizes of a grid within those of rows.
std::vector<std::vector<double>> sizes_within(std::vector<std::vector<double>> sizes, std::span<const Measured> rows) {
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    const auto size = [&](const Measured& row) { return row.sizes[a]; };
    const auto [least, most] = std::ranges::minmax(rows, {}, size);
    const double low = least.sizes[a], high = most.sizes[a];
    std::erase_if(sizes[a], [&](double each) { return each < low || each > high; });
    if (sizes[a].empty()) sizes[a].push_back(low);
  }
  return sizes;
}

/// Products by their sizes, attention by sequence and heads of all samples; checks what a device cannot do.
std::vector<Measured> measured_rows(const MeasuredCsv& csv, const std::string& file, const Device& device,
                                    const FitOptions& options) {
  const auto peak = device.peak.find(options.dtype);
  const TimeColumn time = time_column_of(csv, file);
  const auto need = [&](std::string_view name) {
    if (const std::optional<std::size_t> at = column_of(csv, name)) return *at;
    refuse_row(
        file, 1, 1,
        fmt::format(
            "expected columns m,n,k, or batch,m,n,k, or batch,sequence,heads,head_size, or operation,ranks,bytes, "
            "or sort,flops,bytes, found no '{}'",
            name));
  };
  const bool is_attention = column_of(csv, "sequence").has_value();
  const std::vector<std::size_t> at =
      is_attention ? std::vector{need("batch"), need("sequence"), need("heads"), need("head_size")}
                   : std::vector{need("m"), need("n"), need("k")};
  const std::optional<std::size_t> batch_at = column_of(csv, "batch");
  std::vector<Measured> rows;
  for (const MeasuredRow& row : csv.rows) {
    const auto number = [&](std::size_t i) { return row.numbers[at[i]]; };
    Measured made{.line = row.line, .time = Seconds{time.unit * row.numbers[time.at]}};
    if (is_attention) {
      made.sizes = {number(1), number(0) * number(2)};
      made.head_size = number(3);
      made.computing = Flops{2 * number(0) * number(1) * number(1) * number(2) * number(3)} / peak->second;
      made.reference = made.computing + options.kernel_floor;
    } else {
      const GpuKernel kernel{.kind = batch_at ? KernelKind::batched_product : KernelKind::product,
                             .dtype = options.dtype,
                             .batch = batch_at ? row.numbers[*batch_at] : 1,
                             .m = number(0),
                             .n = number(1),
                             .k = number(2)};
      made.sizes = {kernel.m, kernel.n, kernel.k};
      made.computing = Flops{2 * kernel.batch * kernel.m * kernel.n * kernel.k} / peak->second;
      made.reference = product_roofline(device, kernel).value() + options.kernel_floor;
    }
    constexpr double tolerated = 0.95;
    if (made.time.value < tolerated * made.computing.value) {
      refuse_row(file, row.line, 1,
                 fmt::format("{}: the peak of {} allows {} at least, found {}", csv.columns[time.at], options.dtype,
                             format_seconds(made.computing), format_seconds(made.time)));
    }
    rows.push_back(std::move(made));
  }
  refuse_few_rows(csv, file);
  refuse_long(rows, csv.columns[time.at], file);
  return rows;
}

/// A row of the system: what it sums of the unknowns, and what that should be.
struct FitRow {
  GridShares of;
  double value = 0;
};

double sum_of(const FitRow& row, std::span<const double> unknowns) {
  double sum = 0;
  for (std::size_t c = 0; c < row.of.count; ++c) sum += row.of.weights[c] * unknowns[row.of.points[c]];
  return sum;
}

/// Adds `factor` times what each row sums to the unknowns that it sums.
std::vector<double> transposed(std::span<const FitRow> rows, std::span<const double> factors, std::size_t unknowns) {
  std::vector<double> sums(unknowns);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].of.count; ++c) sums[rows[r].of.points[c]] += rows[r].of.weights[c] * factors[r];
  }
  return sums;
}

double product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// That a value of the grid lies in the middle between its two neighbours, along each axis.
void add_smoothness(const std::vector<std::vector<double>>& sizes, double weight, std::vector<FitRow>& rows) {
  std::size_t step = 1, points = 1;
  for (const std::vector<double>& axis : sizes) points *= axis.size();
  for (std::size_t a = sizes.size(); a-- > 0;) {
    const std::size_t length = sizes[a].size();
    for (std::size_t point = 0; point < points; ++point) {
      const std::size_t along = point / step % length;
      if (along == 0 || along + 1 == length) continue;
      const double below = std::log(sizes[a][along] / sizes[a][along - 1]);
      const double above = std::log(sizes[a][along + 1] / sizes[a][along]);
      FitRow row{.of = {.count = 3}};
      row.of.points = {point - step, point, point + step};
      row.of.weights = {weight * above / (below + above), -weight, weight * below / (below + above)};
      rows.push_back(row);
    }
    step *= length;
  }
}

/// Least squares. Where no sample lies around a point of the grid, it continues what its neighbours say: second
/// differences count a little, too. By conjugate gradients, always as many steps.
SizeGrid fitted_grid(const std::vector<std::vector<double>>& sizes, std::span<const GridSample> samples) {
  constexpr double smoothness = 0.3;
  constexpr int steps = 300;
  std::size_t points = 1;
  for (const std::vector<double>& axis : sizes) points *= axis.size();
  const SizeGrid shape(sizes, std::vector<double>(points));
  std::vector<FitRow> rows;
  double mean = 0;
  for (const GridSample& sample : samples) {
    rows.push_back({shape.shares(sample.sizes), sample.value});
    mean += sample.value / static_cast<double>(samples.size());
  }
  add_smoothness(sizes, smoothness, rows);

  std::vector<double> unknowns(points, mean), residuals;
  for (const FitRow& row : rows) residuals.push_back(row.value - sum_of(row, unknowns));
  std::vector<double> gradient = transposed(rows, residuals, points), direction = gradient;
  double length = product(gradient, gradient);
  const double enough = 1e-20 * length;
  for (int step = 0; step < steps && length > enough; ++step) {
    std::vector<double> along;
    for (const FitRow& row : rows) along.push_back(sum_of(row, direction));
    const double distance = length / product(along, along);
    for (std::size_t i = 0; i < points; ++i) unknowns[i] += distance * direction[i];
    for (std::size_t r = 0; r < rows.size(); ++r) residuals[r] -= distance * along[r];
    gradient = transposed(rows, residuals, points);
    const double next = product(gradient, gradient);
    for (std::size_t i = 0; i < points; ++i) direction[i] = gradient[i] + next / length * direction[i];
    length = next;
  }
  return SizeGrid(sizes, std::move(unknowns));
}

/// Shares as large as files may state: where no row lies near, and where a cache is faster than the memory.
SizeGrid as_files_state(const SizeGrid& grid) {
  std::vector<double> values = grid.values();
  for (double& each : values) each = std::min(each, std::log(largest_share));
  return SizeGrid(grid.sizes(), std::move(values));
}

/// Sizes of a fitted grid; of a full one it takes those of the rows.
using TableSizes = std::optional<std::vector<std::vector<double>>>;

SizeGrid table_of_rows(const TableSizes& sizes, std::span<const Measured> rows) {
  std::vector<GridSample> samples;
  for (const Measured& row : rows) samples.push_back({row.sizes, std::log(row.reference / row.time)});
  return as_files_state(sizes ? fitted_grid(sizes_within(*sizes, rows), samples) : full_grid(samples));
}

/// A full grid of sizes that rows chose at random is nearly all holes.
void refuse_sparse(std::span<const Measured> rows, const std::string& file) {
  constexpr double most_holes = 0.75;
  std::vector<GridSample> samples;
  for (const Measured& row : rows) samples.push_back({row.sizes, 0});
  double points = 1;
  for (const std::vector<double>& axis : sizes_of(samples)) points *= static_cast<double>(axis.size());
  if (static_cast<double>(rows.size()) >= (1 - most_holes) * points) return;
  throw InputError(
      fmt::format("{}: {} rows leave more than {:g} % of the {:g} combinations of their sizes without a "
                  "time; --grid thin fits a grid to them",
                  file, rows.size(), 100 * most_holes, points));
}

constexpr std::size_t held_out_of = 10, held_out_at = 3;

/// Of rows of one head size: measured / predicted of those that a fit has not seen.
void add_held_out(const TableSizes& sizes, std::span<const Measured> rows, std::vector<double>& ratios) {
  std::map<std::vector<double>, std::size_t> pairs;
  const auto pair_of = [](const Measured& row) { return std::vector<double>(row.sizes.end() - 2, row.sizes.end()); };
  for (const Measured& row : rows) pairs.emplace(pair_of(row), 0);
  std::size_t next = 0;
  for (auto& [pair, number] : pairs) number = next++;
  std::vector<Measured> seen, held;
  for (const Measured& row : rows) {
    (pairs.at(pair_of(row)) % held_out_of == held_out_at ? held : seen).push_back(row);
  }
  if (seen.empty() || held.empty()) return;
  const SizeGrid grid = table_of_rows(sizes, seen);
  for (const Measured& row : held) {
    const Seconds said{row.reference.value / std::exp(grid.at(row.sizes))};
    ratios.push_back(row.time / std::max(said, row.computing));
  }
}

/// Each number of bytes but the first and the last, said by its neighbours.
void add_held_out(const SizeGrid& grid, std::vector<double>& ratios) {
  const std::vector<double>&ranks = grid.sizes()[0], &bytes = grid.sizes()[1];
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto at = [&](std::size_t b) { return grid.values()[r * bytes.size() + b]; };
    for (std::size_t b = 1; b + 1 < bytes.size(); ++b) {
      const double along = std::log(bytes[b] / bytes[b - 1]) / std::log(bytes[b + 1] / bytes[b - 1]);
      ratios.push_back(std::exp(at(b) - (1 - along) * at(b - 1) - along * at(b + 1)));
    }
  }
}

/// Sizes of collectives are few and measured at all combinations: the grid is that of the rows. Of several rows of one
/// combination it takes the middle of the logarithms.
FittedTable fitted_collectives(const MeasuredCsv& csv, const std::string& file, const FitOptions& options) {
  const TimeColumn time = time_column_of(csv, file);
  const std::optional<std::size_t> ranks_at = column_of(csv, "ranks"), bytes_at = column_of(csv, "bytes");
  if (!ranks_at || !bytes_at) refuse_row(file, 1, 1, "expected columns operation,ranks,bytes and a time");
  refuse_few_rows(csv, file);
  std::map<CollectiveKind, std::map<std::pair<double, double>, std::vector<double>>> found;
  for (const MeasuredRow& row : csv.rows) {
    const double ranks = row.numbers[*ranks_at];
    if (ranks < 2) refuse_row(file, row.line, 1, fmt::format("ranks: expected 2 or more, found {}", ranks));
    found[*operation_named(row.word)][{ranks, row.numbers[*bytes_at]}].push_back(
        std::log(time.unit * row.numbers[time.at]));
  }
  FittedTable fitted;
  fitted.rows = csv.rows.size();
  for (const auto& [kind, points] : found) {
    std::set<double> ranks, bytes;
    for (const auto& [sizes, times] : points) {
      ranks.insert(sizes.first);
      bytes.insert(sizes.second);
    }
    std::vector<double> values;
    for (const double r : ranks) {
      for (const double b : bytes) {
        const auto point = points.find({r, b});
        if (point == points.end()) {
          refuse_row(file, csv.rows.back().line, 1,
                     fmt::format("a hole: no row of {} with {} ranks and {} bytes", written(kind), r, b));
        }
        const std::vector<double>& times = point->second;
        const double middle = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
        for (const double each : times) {
          fitted.mean_error += std::abs(std::exp(middle - each) - 1) / static_cast<double>(fitted.rows);
        }
        values.push_back(middle);
      }
    }
    fitted.grid_points += values.size();
    fitted.efficiency.collectives.emplace(
        kind, SizeGrid({{ranks.begin(), ranks.end()}, {bytes.begin(), bytes.end()}}, std::move(values)));
  }
  fitted.efficiency.name = options.name;
  std::vector<double> ratios;
  for (const auto& [kind, grid] : fitted.efficiency.collectives) add_held_out(grid, ratios);
  if (fitted.rows >= fewest_rows_of_spread)
    fitted.efficiency.spread.emplace("collectives", spread_of(std::move(ratios)));
  return fitted;
}

}  // namespace

Spread spread_of(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const std::size_t last = ratios.size() - 1;
  return {ratios[last / 10], ratios[last - last / 10]};
}

std::vector<std::vector<double>> product_grid_sizes() {
  const std::vector<double> widths{128, 512, 1024, 2048, 4096, 8192, 16384, 65536};
  return {{1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}, widths, widths};
}

std::vector<std::vector<double>> batched_product_grid_sizes() {
  const std::vector<double> sizes{32, 64, 128, 256, 512, 1024, 2048, 4096};
  return {sizes, sizes, sizes};
}

std::vector<std::vector<double>> attention_grid_sizes() {
  return {{1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072},
          {1, 4, 16, 64, 256, 1024, 4096, 16384}};
}

FittedTable fitted_table(const std::string& csv, const std::string& file_name, const Device& device,
                         const FitOptions& options) {
  const MeasuredCsv table = read_measured_csv(csv, file_name);
  if (column_of(table, operation_column)) {
    FittedTable fitted = fitted_collectives(table, file_name, options);
    fitted.efficiency.model = device.model;
    return fitted;
  }
  if (!device.peak.contains(options.dtype) || !device.memory_bandwidth) {
    throw InputError(fmt::format("'{}' has no {}: shares are of a roofline", device.name,
                                 device.memory_bandwidth ? "peak of " + options.dtype : "memory_bandwidth"));
  }
  FittedTable fitted;
  if (column_of(table, sort_column)) fitted = fitted_sorts(table, file_name, device, options);
  Efficiency& made = fitted.efficiency;
  made.name = options.name;
  made.model = device.model;
  made.peak = device.peak;
  made.memory_bandwidth = device.memory_bandwidth;
  made.kernel_floor = options.kernel_floor;
  if (!fitted.shares.empty()) return fitted;
  const std::vector<Measured> rows = measured_rows(table, file_name, device, options);
  fitted.rows = rows.size();
  std::map<double, std::vector<Measured>> by_head_size;
  for (const Measured& row : rows) by_head_size[row.head_size].push_back(row);
  const bool is_attention = by_head_size.rbegin()->first > 0;
  const bool is_batched = !is_attention && column_of(table, "batch").has_value();
  std::vector<double> ratios;
  for (const auto& [size, of_size] : by_head_size) {
    TableSizes sizes;
    if (options.grid == TableGrid::thin) {
      sizes = size > 0 ? attention_grid_sizes() : is_batched ? batched_product_grid_sizes() : product_grid_sizes();
    } else {
      refuse_sparse(of_size, file_name);
    }
    SizeGrid grid = table_of_rows(sizes, of_size);
    if (rows.size() >= fewest_rows_of_spread) add_held_out(sizes, of_size, ratios);
    fitted.grid_points += grid.points();
    for (const Measured& row : of_size) {
      const Seconds said{row.reference.value / std::exp(grid.at(row.sizes))};
      const auto all = static_cast<double>(rows.size());
      fitted.mean_error += std::abs(std::max(said, row.computing) / row.time - 1) / all;
      fitted.roofline_error += std::abs(row.reference / row.time - 1) / all;
    }
    if (size > 0) {
      made.attention[options.dtype].emplace(size, std::move(grid));
    } else {
      (is_batched ? made.batched_product_by_size : made.product).emplace(options.dtype, std::move(grid));
    }
  }
  const std::string_view sort = is_attention ? "attention" : product_sort(options.dtype, is_batched);
  if (!ratios.empty()) made.spread.emplace(sort, spread_of(std::move(ratios)));
  return fitted;
}

}  // namespace plimsoll
