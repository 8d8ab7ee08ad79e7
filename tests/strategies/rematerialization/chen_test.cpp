#include "strategies/rematerialization/cuts/chen.h"

#include <catch2/catch.hpp>

#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"

using namespace plimsoll;

TEST_CASE("chen keeps the first input of each segment and saves the last segment at once", "[remat]") {
  CHECK(to_string(chen_sequence(6, 2)) == "F0 F1 S2 S3 S4 S5 B5 B4 B3 B2 S0 S1 B1 B0");
  CHECK(to_string(chen_sequence(5, 4)) == "F0 F1 F2 S3 S4 B4 B3 S2 B2 S1 B1 S0 B0");
}

TEST_CASE("chen with one segment is store_all, more segments than stages are one each", "[remat]") {
  CHECK(chen_sequence(9, 1) == store_all_sequence(9));
  CHECK(chen_sequence(5, 100) == chen_sequence(5, 4));
  CHECK(chen_sequence(1, 3) == store_all_sequence(1));
}

TEST_CASE("chen cuts round(sqrt(n)) segments by default, not counting the loss", "[remat]") {
  CHECK(chen_segments(1) == 1);
  CHECK(chen_segments(2) == 1);
  CHECK(chen_segments(4) == 2);  // sqrt(3) = 1.73
  CHECK(chen_segments(7) == 2);  // sqrt(6) = 2.45
  CHECK(chen_segments(8) == 3);  // sqrt(7) = 2.65
  CHECK(chen_segments(101) == 10);
}

TEST_CASE("chen is legal and repeats every stage before the last segment once", "[remat][property]") {
  for (const RandomCase seed : random_cases(0, 299)) {
    CAPTURE(seed);
    ChainModel model = random_chain_model({.stages = 1 + seed % 40, .nograd_differs = false}, seed);
    model.recomputable.assign(model.stages(), true);
    model.keeps_input = model.keeps_output = model.recomputable;
    const std::size_t segments = 1 + seed % 9;
    const ChainCost cost = evaluate(model, chen_sequence(model.stages(), segments));
    REQUIRE(cost.violation == "");
    const std::size_t before_loss = model.stages() - 1;
    const std::size_t count = std::max<std::size_t>(1, std::min(segments, before_loss));
    Seconds repeated;
    for (std::size_t i = 0; i < (count - 1) * (before_loss / count); ++i) repeated += model.forward[i];
    REQUIRE(cost.recompute == repeated);
  }
}

TEST_CASE("chen keeps the memory of n equal stages near 2 sqrt(n)", "[remat]") {
  const std::size_t n = GENERATE(std::size_t{16}, std::size_t{64}, std::size_t{256}, std::size_t{1024});
  ChainModel model;
  model.x.assign(n + 2, Bytes{1});
  model.x[0] = model.x.back() = Bytes{0};
  model.saved.assign(n + 1, Bytes{1});
  model.saved.back() = Bytes{0};
  model.input_gradient.assign(n + 1, Bytes{0});
  model.forward_workspace = model.nograd_workspace = model.backward_workspace = model.new_gradients =
      std::vector<Bytes>(n + 1);
  model.forward = model.nograd = model.backward = std::vector<Seconds>(n + 1, Seconds{1});
  model.recomputable.assign(n + 1, true);
  model.keeps_input = model.keeps_output = model.recomputable;
  const auto root = static_cast<std::int64_t>(chen_segments(n + 1));
  CHECK(root * root == static_cast<std::int64_t>(n));
  CHECK(evaluate(model, chen_sequence(n + 1, chen_segments(n + 1))).peak == Bytes{2 * root - 1});
}
