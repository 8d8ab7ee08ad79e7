// How long a sweep still takes, where strategies differ a thousandfold.

#include "experiments/sweep/sweep_estimate.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace plimsoll {
namespace {

TEST_CASE("what is left is told by the pace of each strategy", "[sweep]") {
  SweepEstimate estimate(2);
  estimate.expect("fast", 100);
  estimate.expect("slow", 50);
  CHECK(!estimate.left().has_value());
  estimate.done("fast", 10, Seconds{1});
  CHECK(estimate.left()->seconds.value == Approx((90 * 0.1 + 50 * 0.1) / 2));  // nothing is known of the slow one
  CHECK(estimate.left()->at_least);
  estimate.done("slow", 1, Seconds{100});
  CHECK(estimate.left()->seconds.value == Approx((90 * 0.1 + 49 * 100) / 2));
  CHECK(!estimate.left()->at_least);
  estimate.done("fast", 90, Seconds{9});
  estimate.done("slow", 49, Seconds{4900});
  CHECK(estimate.left()->seconds.value == 0);
}

TEST_CASE("a strategy that has ended nothing is as slow as what runs of it, at least", "[sweep]") {
  SweepEstimate estimate(1);
  estimate.expect("fast", 10);
  estimate.expect("slow", 40);
  estimate.done("fast", 10, Seconds{1});
  const auto begun = SweepEstimate::Clock::now();
  estimate.started(0, {"slow", 20, "slow for x", begun});
  const auto after = [&](int s) { return estimate.left(begun + std::chrono::seconds(s)); };
  CHECK(after(1)->seconds.value == Approx(40 * 0.1));
  CHECK(after(60)->seconds.value == Approx(40 * 3.0));
  CHECK(after(60)->at_least);
  estimate.finished(0);
  CHECK(!estimate.left()->at_least);
  CHECK(estimate.left()->seconds.value < 20 * 0.1);  // at its own pace, whatever the others'
}

TEST_CASE("the group that runs longest is what a sweep is at", "[sweep]") {
  SweepEstimate estimate(2);
  CHECK(estimate.now().empty());
  estimate.started(4, {"s", 1, "first"});
  estimate.started(2, {"s", 1, "second"});
  CHECK(estimate.now() == "first");
  estimate.ended(4);
  CHECK(estimate.now() == "second");
  estimate.ended(2);
  CHECK(estimate.now().empty());
}

}  // namespace
}  // namespace plimsoll
