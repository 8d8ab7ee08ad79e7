// Of several plans each budget gets the fastest that fits: by hand, and against a look at all of them.

#include "strategies/api/plan_front.h"

#include <catch2/catch.hpp>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

TEST_CASE("a plan is kept unless another is as fast within as little", "[front]") {
  PlanFront<char> front;
  CHECK(front.fastest_within({}) == nullptr);
  front.add(Bytes{5}, Seconds{4}, 'a');
  front.add(Bytes{5}, Seconds{4}, 'b');  // no better than a
  front.add(Bytes{3}, Seconds{9}, 'c');
  front.add(Bytes{8}, Seconds{4}, 'd');  // not faster than a
  front.add(Bytes{9}, Seconds{1}, 'e');
  CHECK(front.budgets() == std::vector<Bytes>{Bytes{3}, Bytes{5}, Bytes{9}});
  CHECK(front.least() == Bytes{3});
  CHECK(front.fastest_within(Bytes{2}) == nullptr);
  CHECK(*front.fastest_within(Bytes{3}) == 'c');
  CHECK(*front.fastest_within(Bytes{8}) == 'a');
  CHECK(*front.fastest_within({}) == 'e');
  front.add(Bytes{3}, Seconds{1}, 'f');  // beats all
  CHECK(front.budgets() == std::vector<Bytes>{Bytes{3}});
  CHECK(*front.fastest_within(Bytes{9}) == 'f');
}

TEST_CASE("the plan within each budget is the fastest of all that fit, the smallest of equals, the first of those",
          "[front]") {
  struct Made {
    Bytes needs;
    Seconds makespan;
  };
  for (const RandomCase seed : random_cases(1, 300)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Made> made(random.between(1, 20));
    PlanFront<std::size_t> front;
    for (std::size_t k = 0; k < made.size(); ++k) {
      made[k] = {Bytes{random.between(0, 12)}, Seconds{static_cast<double>(random.between(0, 6))}};
      front.add(made[k].needs, made[k].makespan, k);
    }
    for (std::int64_t budget = 0; budget <= 12; ++budget) {
      const Made* best = nullptr;
      for (const Made& each : made) {
        if (each.needs.count > budget) continue;
        const bool is_better = best == nullptr || each.makespan < best->makespan ||
                               (each.makespan == best->makespan && each.needs < best->needs);
        if (is_better) best = &each;
      }
      const std::size_t* found = front.fastest_within(Bytes{budget});
      REQUIRE((found == nullptr) == (best == nullptr));
      if (found != nullptr) CHECK(*found == static_cast<std::size_t>(best - made.data()));
    }
  }
}

}  // namespace
}  // namespace plimsoll
