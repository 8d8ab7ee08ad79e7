// What must leave a memory at least, against all ways to choose it.

#include "strategies/hybrid/cluster/least_away.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Kept from one instant until before another.
struct KeptValue {
  std::size_t first, end;
  std::int64_t bytes;
};

/// The least sum over all amounts of each value that suffice at each instant, as far as all values of it do.
std::int64_t least_of_all(const std::vector<KeptValue>& values, const std::vector<std::int64_t>& needs) {
  std::vector<std::int64_t> amounts(values.size());
  std::int64_t least = INT64_MAX;
  const auto suffice = [&] {
    for (std::size_t i = 0; i < needs.size(); ++i) {
      std::int64_t away = 0, all = 0;
      for (std::size_t v = 0; v < values.size(); ++v) {
        const bool is_kept = values[v].first <= i && i < values[v].end;
        away += is_kept ? amounts[v] : 0;
        all += is_kept ? values[v].bytes : 0;
      }
      if (away < std::min(needs[i], all)) return false;
    }
    return true;
  };
  for (std::size_t v = 0; v < values.size();) {
    std::int64_t sum = 0;
    for (const std::int64_t each : amounts) sum += each;
    if (sum < least && suffice()) least = sum;
    for (v = 0; v < values.size() && ++amounts[v] > values[v].bytes; ++v) amounts[v] = 0;
  }
  return least;
}

}  // namespace

TEST_CASE("the least that must leave is that of all choices", "[hybrid]") {
  std::size_t moved = 0;
  for (const RandomCase seed : random_cases(1, 200)) {
    Random random(seed);
    const std::size_t instants = random.between(2, 7);
    std::vector<std::int64_t> needs(instants);
    for (std::int64_t& each : needs) each = random.chance(0.6) ? random.below(6) : 0;
    std::vector<KeptValue> values(random.between(1, 5));
    for (KeptValue& each : values) {
      each.first = random.below(static_cast<std::uint32_t>(instants));
      each.end = each.first + random.between(1, 5);
      each.bytes = random.between(1, 3);
    }
    LeastAway least;
    for (std::size_t i = 0; i < instants; ++i) {
      for (const KeptValue& each : values) {
        if (each.first == i) least.keep(Bytes{each.bytes}, each.end);
      }
      least.end(i);
      least.need(Bytes{needs[i]});
    }
    CHECK(least.moved().count == least_of_all(values, needs));
    moved += least.moved() > Bytes{} ? 1 : 0;
  }
  if (all_cases()) CHECK(moved > 120U);
}

}  // namespace plimsoll
