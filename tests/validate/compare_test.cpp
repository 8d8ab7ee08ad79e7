#include "validate/compare.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace plimsoll {
namespace {

TEST_CASE("tau-b of four schedules by hand", "[validate]") {
  const std::vector<double> predicted{1.0, 1.1, 1.2, 1.3};
  CHECK(ranking_of(predicted, {{1.0, 0}, {1.1, 0}, {1.2, 0}, {1.3, 0}}).tau_b == Approx(1));
  CHECK(ranking_of(predicted, {{1.3, 0}, {1.2, 0}, {1.1, 0}, {1.0, 0}}).tau_b == Approx(-1));
  // One of the six pairs is turned round: (5 - 1) / 6.
  CHECK(ranking_of(predicted, {{1.1, 0}, {1.0, 0}, {1.2, 0}, {1.3, 0}}).tau_b == Approx(4.0 / 6));
  // Within the spread that pair is tied in the measurement only: 5 / sqrt(6 x 5).
  CHECK(ranking_of(predicted, {{1.04, 0.05}, {1.0, 0.05}, {1.2, 0}, {1.3, 0}}).tau_b == Approx(5 / std::sqrt(30.0)));
  CHECK(ranking_of(predicted, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}).tau_b == 1);  // nothing to rank
}

TEST_CASE("pairs are counted outside the noise, and those of them that are predicted in their order", "[validate]") {
  const Ranking ranking = ranking_of({1.0, 1.1, 1.2, 1.3}, {{1.04, 0.05}, {1.0, 0.05}, {1.3, 0}, {1.2, 0}});
  CHECK(ranking.pairs == 6);
  CHECK(ranking.outside_noise == 5);  // the first two are within 0.05
  CHECK(ranking.ranked_right == 4);   // the last two are turned round
}

TEST_CASE("errors: the mean and median of sizes, the worst with its sign", "[validate]") {
  const ErrorSummary summary = summary_of({0.01, -0.05, 0.03});
  CHECK(summary.mean == Approx(0.03));
  CHECK(summary.median == Approx(0.03));
  CHECK(summary.worst == Approx(-0.05));
}

TEST_CASE("seconds by kind count a copy beside a kernel in full", "[validate]") {
  Schedule schedule;
  schedule.steps.resize(3);
  schedule.steps[1].kind = StepKind::offload;
  Timeline timeline;
  timeline.steps = {{Seconds{0}, Seconds{2}}, {Seconds{1}, Seconds{3}}, {Seconds{2}, Seconds{5}}};
  const auto kinds = seconds_by_kind(schedule, timeline);
  CHECK(kinds.at(StepKind::forward) == Seconds{5});
  CHECK(kinds.at(StepKind::offload) == Seconds{2});
}

}  // namespace
}  // namespace plimsoll
