// How long a sweep still takes, where strategies differ a thousandfold.

#include "experiments/sweep/sweep_estimate.h"

#include <catch2/catch.hpp>

namespace plimsoll {
namespace {

TEST_CASE("what is left is told by the pace of each strategy", "[sweep]") {
  SweepEstimate estimate(2);
  estimate.expect("fast", 100);
  estimate.expect("slow", 50);
  CHECK(!estimate.left().has_value());
  estimate.done("fast", 10, Seconds{1});
  CHECK(estimate.left()->value == Approx((90 * 0.1 + 50 * 0.1) / 2));  // nothing is known of the slow one
  estimate.done("slow", 1, Seconds{100});
  CHECK(estimate.left()->value == Approx((90 * 0.1 + 49 * 100) / 2));
  estimate.done("fast", 90, Seconds{9});
  estimate.done("slow", 49, Seconds{4900});
  CHECK(estimate.left()->value == 0);
}

TEST_CASE("the group that runs longest is what a sweep is at", "[sweep]") {
  SweepEstimate estimate(2);
  CHECK(estimate.now().empty());
  estimate.started(4, "first");
  estimate.started(2, "second");
  CHECK(estimate.now() == "first");
  estimate.ended(4);
  CHECK(estimate.now() == "second");
  estimate.ended(2);
  CHECK(estimate.now().empty());
}

}  // namespace
}  // namespace plimsoll
