// Grids of all measured sizes: rows of equal sizes, and holes.

#include "platforms/full_grid.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

using namespace plimsoll;

namespace {

double at(const SizeGrid& grid, double n, double k) {
  return grid.at(std::array{n, k});
}

}  // namespace

TEST_CASE("a full grid has the mean of rows of equal sizes", "[efficiency]") {
  const std::vector<GridSample> rows{{{1, 2}, 1}, {{1, 2}, 3}, {{8, 2}, 5}};
  const SizeGrid grid = full_grid(rows);
  CHECK(grid.sizes() == std::vector<std::vector<double>>{{1, 8}, {2}});
  CHECK(at(grid, 1, 2) == 2);
  CHECK(at(grid, 8, 2) == 5);
}

// Of the hole at (4, 2): between 0 and 2 it is 1, at ln 4 from both; between 5 and 7 it is 6, at ln 2 from both. The
// second counts four times as much: (1 + 4 * 6) / 5.
TEST_CASE("a hole takes what its neighbours say, the nearer ones more", "[efficiency]") {
  std::vector<GridSample> rows{{{1, 2}, 0}, {{16, 2}, 2}, {{4, 1}, 5}, {{4, 4}, 7}};
  CHECK(at(full_grid(rows), 4, 2) == Approx(5));
  // A corner has neighbours on one side alone: (4, 1) is nearer to (1, 1) than (16, 2) is, and (1, 2) the nearest.
  CHECK(at(full_grid(rows), 1, 1) == 0);
}
