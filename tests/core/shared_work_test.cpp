#include "sim/measure/shared_work.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

struct SharedWorkCase {
  IterationWork work;
  DeviceClasses classes;
};

/// Up to six ops of 1 to 9 s on each of `classes`, the last class with one or two devices.
SharedWorkCase shared_work_case(std::uint64_t seed, std::uint32_t classes) {
  Random random(seed);
  SharedWorkCase made;
  for (std::uint32_t c = 0; c < classes; ++c) {
    made.classes.one.push_back(id_at<DeviceId>(made.classes.of.size()));
    made.classes.count.push_back(c + 1 == classes ? random.between(1, 2) : 1);
    made.classes.of.insert(made.classes.of.end(), made.classes.count.back(), c);
  }
  made.work.micro_batches = random.between(1, 2);
  const std::uint32_t ops = random.between(1, 6);
  for (std::uint32_t o = 0; o < ops; ++o) {
    OnEachClass times;
    for (std::uint32_t c = 0; c < classes; ++c) times.push_back(Seconds{static_cast<double>(random.between(1, 9))});
    (random.chance(0.2) ? made.work.updates : made.work.micro_batch).push_back(times);
  }
  return made;
}

/// The ops as often as they run.
std::vector<OnEachClass> all_runs(const IterationWork& work) {
  std::vector<OnEachClass> runs = work.updates;
  for (double m = 0; m < work.micro_batches; ++m) {
    runs.insert(runs.end(), work.micro_batch.begin(), work.micro_batch.end());
  }
  return runs;
}

/// The least time of all assignments of whole ops.
double least_whole(const std::vector<OnEachClass>& runs, const DeviceClasses& classes) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> load(classes.of.size(), 0);
  const auto put = [&](const auto& self, std::size_t op) -> void {
    const double longest = std::ranges::max(load);
    if (longest >= best) return;
    if (op == runs.size()) {
      best = longest;
      return;
    }
    for (std::size_t d = 0; d < load.size(); ++d) {
      load[d] += runs[op][classes.of[d]].value;
      self(self, op + 1);
      load[d] -= runs[op][classes.of[d]].value;
    }
  };
  put(put, 0);
  return best;
}

/// Of two classes the least time of fractions: ops in the order of the ratio of their times go to the first class until
/// both end together.
double least_in_fractions(std::vector<OnEachClass> runs, const DeviceClasses& classes) {
  std::ranges::sort(runs, {}, [](const OnEachClass& op) { return op[0].value / op[1].value; });
  const auto n0 = static_cast<double>(classes.count[0]), n1 = static_cast<double>(classes.count[1]);
  double first = 0, second = 0;
  for (const OnEachClass& op : runs) second += op[1].value / n1;
  for (const OnEachClass& op : runs) {
    const double a = op[0].value / n0, b = op[1].value / n1;
    if (first + a >= second - b) return first + a * (second - first) / (a + b);
    first += a;
    second -= b;
  }
  return first;
}

TEST_CASE("no assignment of ops to unlike devices beats the bound of their work", "[bounds]") {
  for (const RandomCase seed : random_cases(1, 400)) {
    const auto classes = static_cast<std::uint32_t>(1 + seed % 3);
    const SharedWorkCase given = shared_work_case(seed, classes);
    const std::vector<OnEachClass> runs = all_runs(given.work);
    const double bound = shared_work(given.work, given.classes, given.classes.of.size()).value;
    CHECK(bound <= least_whole(runs, given.classes) * (1 + 1e-12));
    if (classes != 2) continue;
    const double fractions = least_in_fractions(runs, given.classes);
    CHECK(bound <= fractions * (1 + 1e-12));
    CHECK(bound >= 0.9 * fractions);
  }
}

TEST_CASE("equal devices share the sum of the work", "[bounds]") {
  const DeviceClasses classes{{DeviceId{0}}, {4}, {0, 0, 0, 0}};
  const IterationWork work{{{Seconds{3}}, {Seconds{5}}}, {{Seconds{4}}}, 2};
  CHECK(shared_work(work, classes, 4) == Seconds{5});
  CHECK(shared_work(work, classes, 2) == Seconds{10});
}

TEST_CASE("a slow device beside a fast one helps as far as it can", "[bounds]") {
  const DeviceClasses classes{{DeviceId{0}, DeviceId{1}}, {1, 1}, {0, 1}};
  const IterationWork work{{{Seconds{1}, Seconds{9}}, {Seconds{1}, Seconds{9}}}, {}, 1};
  CHECK(shared_work(work, classes, 2).value == Approx(1.8).epsilon(0.02));
}

}  // namespace
}  // namespace plimsoll
