// Revolve: the published counts of forwards, and the heterogeneous variant against its recursion as written.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "strategies/rematerialization/revolve/revolve.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"

namespace plimsoll {
namespace {

using Kind = ChainStep::Kind;

std::int64_t binomial(std::int64_t n, std::int64_t k) {
  std::int64_t value = 1;
  for (std::int64_t i = 1; i <= k; ++i) value = value * (n - k + i) / i;
  return value;
}

// Griewank and Walther, theorem of section 2: n steps, s checkpoints, r the least number of repetitions with
// n <= (s + r over s); then t(n, s) = r n - (s + r over r - 1) forward steps.
std::int64_t published_forwards(std::int64_t n, std::int64_t s) {
  std::int64_t r = 0;
  while (binomial(s + r, s) < n) ++r;
  return r == 0 ? 0 : r * n - binomial(s + r, r - 1);
}

ChainModel unit_stages(std::size_t stages) {
  ChainModel model;
  model.x.assign(stages + 1, Bytes{1});
  model.saved.assign(stages, Bytes{1});
  model.input_gradient.assign(stages, Bytes{0});
  model.forward_workspace = model.nograd_workspace = model.backward_workspace = model.new_gradients =
      std::vector<Bytes>(stages);
  model.forward = model.nograd = model.backward = std::vector<Seconds>(stages, Seconds{1});
  model.recomputable.assign(stages, true);
  model.keeps_input.assign(stages, true);
  model.keeps_output.assign(stages, true);
  return model;
}

std::int64_t forwards_of(const ChainSequence& sequence) {
  return std::ranges::count(sequence, Kind::forward, &ChainStep::kind);
}

TEST_CASE("revolve needs the published number of forwards", "[revolve]") {
  for (std::size_t n = 1; n <= 300; ++n) {
    const RevolveSchedule schedule(n, 40);
    for (std::size_t s = 1; s <= 40; ++s) {
      CAPTURE(n, s);
      REQUIRE(schedule.fewest_forwards(s) ==
              published_forwards(static_cast<std::int64_t>(n), static_cast<std::int64_t>(s)));
    }
  }
  // The well-known corner: 10 steps with 3 checkpoints are reversed with 15 forward steps beside the saving ones.
  CHECK(RevolveSchedule(10, 3).fewest_forwards(3) == 15);
}

TEST_CASE("revolve's sequences are legal, have the promised forwards and keep to their slots", "[revolve]") {
  for (std::size_t n = 1; n <= 40; ++n) {
    ChainModel model = unit_stages(n);
    const RevolveSchedule schedule(n, n);
    for (std::size_t s = 1; s <= n; ++s) {
      CAPTURE(n, s);
      const ChainSequence sequence = schedule.sequence(s);
      const ChainCost cost = evaluate(model, sequence);
      REQUIRE(cost.violation == "");
      REQUIRE(forwards_of(sequence) == schedule.fewest_forwards(s));
      REQUIRE(std::ranges::count(sequence, Kind::forward_saving, &ChainStep::kind) == static_cast<std::ptrdiff_t>(n));
      // s checkpoints, and two values while a forward runs or a stage is reversed.
      REQUIRE(cost.peak.count <= static_cast<std::int64_t>(s) + 2);
    }
  }
}

// Literal: stages i..l with x_i there and m bytes for everything but x_i; "keep nothing" is written out on its own.
class HeteroRecursion {
 public:
  explicit HeteroRecursion(const ChainModel& model) : m_{model} {}

  double opt(std::size_t i, std::size_t l, std::int64_t memory) {
    if (memory < 0) return infinite;
    if (const auto known = memo_.find({i, l, memory}); known != memo_.end()) return known->second;
    double best = without_checkpoint(i, l, memory);
    for (std::size_t j = i + 1; j <= l; ++j) {
      if (!runs(i, j, l, memory)) continue;
      best = std::min(best, sum(i, j) + opt(j, l, memory - m_.x[j].count) + opt(i, j - 1, memory));
    }
    return memo_[{i, l, memory}] = best;
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();

  std::int64_t held(std::size_t l) const {
    std::int64_t bytes = l + 1 < m_.stages() ? m_.input_gradient[l + 1].count : 0;
    for (std::size_t k = l + 1; k < m_.stages(); ++k) bytes += m_.new_gradients[k].count;
    return bytes;
  }

  double sum(std::size_t i, std::size_t j) const {
    double time = 0;
    for (std::size_t k = i; k < j; ++k) time += m_.nograd[k].value;
    return time;
  }

  // Whether forwards i..j-1 that keep nothing fit.
  bool runs(std::size_t i, std::size_t j, std::size_t l, std::int64_t memory) const {
    for (std::size_t k = i; k < j; ++k) {
      const std::int64_t input = k > i ? m_.x[k].count : 0;
      if (!m_.recomputable[k] || held(l) + input + m_.x[k + 1].count + m_.nograd_workspace[k].count > memory) {
        return false;
      }
    }
    return true;
  }

  // x_i only: every stage of i..l is reached by its own run of forwards.
  double without_checkpoint(std::size_t i, std::size_t l, std::int64_t memory) const {
    double time = 0;
    for (std::size_t k = i; k <= l; ++k) {
      const std::int64_t input = k > i ? m_.x[k].count : 0;
      const std::int64_t forward = held(k) + input + m_.saved[k].count + m_.forward_workspace[k].count;
      const std::int64_t backward = held(k) + input + m_.saved[k].count + m_.input_gradient[k].count +
                                    m_.new_gradients[k].count + m_.backward_workspace[k].count;
      if (std::max(forward, backward) > memory || !runs(i, k, k, memory)) return infinite;
      time += sum(i, k);
    }
    return time;
  }

  const ChainModel& m_;
  std::map<std::tuple<std::size_t, std::size_t, std::int64_t>, double> memo_;
};

TEST_CASE("revolve_hetero equals its recursion as written at every budget, and rotor is never slower",
          "[revolve][property]") {
  for (const RandomCase seed : fewer_cases(0, 1499)) {
    const ChainModel model = random_chain_model({.stages = 1 + seed % 8}, seed);
    constexpr std::int64_t most = 200;
    const BlockTable table(revolve_blocks(model), OptionUse::last_block, Bytes{most}, 100'000);
    HeteroRecursion recursion(model);
    const RotorExact rotor(model);
    const double work = evaluate(model, store_all_sequence(model.stages())).time.value;
    for (std::int64_t memory = 0; memory <= 60; ++memory) {
      CAPTURE(seed, memory);
      const double expected = recursion.opt(0, model.stages() - 1, memory);
      const std::optional<Seconds> extra = table.extra(Bytes{memory});
      REQUIRE(extra.value_or(Seconds{std::numeric_limits<double>::infinity()}).value == expected);
      if (!extra) continue;
      const auto plan = rotor.solve(model.resident + model.x[0] + Bytes{memory});
      REQUIRE(plan);
      REQUIRE(plan->time.value <= work + expected);
    }
  }
}

TEST_CASE("equal stages: revolve_hetero with memory for s checkpoints finds the published optimum", "[revolve]") {
  // Nothing but inputs has a size: m bytes are m inputs besides the first. A forward needs room for its result.
  const std::size_t n = GENERATE(std::size_t{5}, std::size_t{12}, std::size_t{31});
  ChainModel model = unit_stages(n);
  model.saved.assign(n, Bytes{0});
  const BlockTable table(revolve_blocks(model), OptionUse::last_block, Bytes{static_cast<std::int64_t>(n) + 2}, 1000);
  for (std::int64_t s = 1; s <= static_cast<std::int64_t>(n); ++s) {
    CAPTURE(n, s);
    const std::optional<Seconds> extra = table.extra(Bytes{s + 1});
    REQUIRE(extra);
    // A result that is not kept takes up to two bytes beside the s checkpoints, and these can also be checkpoints.
    CHECK(extra->value <= static_cast<double>(published_forwards(static_cast<std::int64_t>(n), s)));
    CHECK(extra->value >= static_cast<double>(published_forwards(static_cast<std::int64_t>(n), s + 2)));
  }
}

}  // namespace
}  // namespace plimsoll
