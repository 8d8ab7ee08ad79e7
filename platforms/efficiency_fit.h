#pragma once
// Tables of efficiencies from measured times: a CSV file becomes a grid that is as near to all its rows as it can be.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {

/// Fewer rows than this say nothing of a spread.
inline constexpr std::size_t fewest_rows_of_spread = 100;

/// The tenth and the ninetieth of a hundred ratios measured / predicted, of which there is at least one.
Spread spread_of(std::vector<double> ratios);

/// The sizes of a grid for products: 12 of m, 8 of n and of k, as far as rows reach.
std::vector<std::vector<double>> product_grid_sizes();
/// Likewise for products of a batch, 8 of each.
std::vector<std::vector<double>> batched_product_grid_sizes();
/// And for attention: sequences and heads of all samples.
std::vector<std::vector<double>> attention_grid_sizes();

/// How well a table says the rows again that it was made of.
struct FittedTable {
  Efficiency efficiency;
  std::size_t rows = 0, grid_points = 0;
  double mean_error = 0, roofline_error = 0;  ///< mean of |predicted / measured - 1|; collectives have no roofline
  std::map<std::string, double, std::less<>> shares = {};  ///< of whole sorts, by their keys in efficiency files
};

/// thin: a grid of usual sizes, least squares of all rows. full: all sizes of the rows, with each row's own share.
enum class TableGrid : std::uint8_t { thin, full };

struct FitOptions {
  std::string name;   ///< of the efficiencies
  std::string dtype;  ///< a key of the device's peaks
  Seconds kernel_floor{2e-6};
  TableGrid grid = TableGrid::thin;  ///< of products and attention
};

/// Columns `m,n,k` and a time (`time_us`, `time_ms` or `time_s`): products y(m, n) = x(m, k) w(k, n). With a column
/// `batch`: so many of them by one kernel. Columns
/// `batch,sequence,heads,head_size` and a time: causal fused attention, forward; others are passed by. Of several rows
/// of the same sizes all count. Columns `operation,ranks,bytes` and a time: collectives in one node, all combinations.
/// Columns `sort,flops,bytes` and a time: shares of whole sorts (platforms/sort_shares.h).
/// A table of enough rows has their spread: of products and attention every tenth pair of the last two sizes is left
/// out of a second fit, of collectives each number of bytes in turn, and said by the rest.
/// Throws InputError, with the row's place, for what cannot be: another column where the time should be, fewer than 8
/// rows, a time that beats the device's peak by more than 5 %, a full grid of which three in four points are holes.
FittedTable fitted_table(const std::string& csv, const std::string& file_name, const Device&, const FitOptions&);

}  // namespace plimsoll
