// Numbers that say the same although they are not equal, and those that do not.

#include "sim/core/tolerance.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {
namespace {

TEST_CASE("two ways to one quantity agree to nine digits, whichever comes first, and NaN with nothing", "[tolerance]") {
  CHECK(agree(0, 0));
  CHECK(agree(1e3, 1e3 * (1 + 5e-10)));
  CHECK(agree(-1e3 * (1 + 5e-10), -1e3));
  CHECK_FALSE(agree(1e3, 1e3 * (1 + 2e-9)));
  CHECK_FALSE(agree(1e3 * (1 + 2e-9), 1e3));
  CHECK_FALSE(agree(1e-12, 0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(agree(nan, 1));
  CHECK_FALSE(agree(nan, nan));
}

TEST_CASE("the order of a sum decides neither whether a bound is reached nor whether a sum is less", "[tolerance]") {
  std::vector<double> numbers;
  for (int k = 1; k <= 5'000; ++k) numbers.push_back(1.0 / k);
  double up = 0, down = 0;
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    up += numbers[k];
    down += numbers[numbers.size() - 1 - k];
  }
  REQUIRE(up != down);
  for (const auto& [one, other] : {std::pair(Seconds{up}, Seconds{down}), std::pair(Seconds{down}, Seconds{up})}) {
    CHECK(reaches(one, other));
    CHECK_FALSE(is_below(one, other));
    CHECK(beyond_rounding(one / other - 1) == 0);
  }
  CHECK_FALSE(reaches(1 + 1e-11, 1.0));
  CHECK(is_below(1 - 1e-11, 1.0));
  CHECK(beyond_rounding(1e-11) == 1e-11);
  CHECK(beyond_rounding(1e-11, model_tolerance) == 0);
}

TEST_CASE("the next whole number of one that is whole but for rounding is itself", "[tolerance]") {
  CHECK(whole_above(3 * (0.1 + 0.2)) == 1);
  CHECK(whole_above(3 + 1e-10) == 3);
  CHECK(whole_above(3.001) == 4);
  CHECK(whole_below(3 - 1e-10) == 3);
  CHECK(whole_below(2.999) == 2);
}

}  // namespace
}  // namespace plimsoll
