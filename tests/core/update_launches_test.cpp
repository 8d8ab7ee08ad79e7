#include "sim/model/update_launches.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// The same by packing chunks one by one: a kernel is full where the next chunk is one too many, or of one tensor too
/// many.
std::size_t packed(const std::vector<std::int64_t>& numbers, std::size_t tensors) {
  std::size_t kernels = 0, chunks = 0;
  std::set<std::size_t> inside;
  for (std::size_t t = 0; t < numbers.size(); ++t) {
    for (std::int64_t at = 0; at < numbers[t]; at += 65536) {
      const bool is_new = !inside.contains(t);
      if (kernels == 0 || chunks == 320 || (is_new && inside.size() == tensors)) {
        ++kernels;
        chunks = 0;
        inside.clear();
      }
      inside.insert(t);
      ++chunks;
    }
  }
  return kernels;
}

TEST_CASE("kernels for lists of tensors: so many tensors and chunks each", "[updates]") {
  const std::vector<std::int64_t> many(161, 1000);
  CHECK(kernels_for_lists(many, 1) == 2);  // 110 + 51
  CHECK(kernels_for_lists(many, 2) == 3);  // 64 + 64 + 33
  CHECK(kernels_for_lists(many, 4) == 5);  // 4 of 36, 17
  CHECK(kernels_for_lists({320 * 65536}, 1) == 1);
  CHECK(kernels_for_lists({320 * 65536 + 1}, 1) == 2);
  CHECK(kernels_for_lists({0, 0}, 1) == 0);
  CHECK(kernels_for_lists({}, 4) == 0);
}

TEST_CASE("kernels for lists are those of a packing chunk by chunk", "[updates]") {
  const std::size_t most[] = {110, 64, 48, 36, 30};
  for (const RandomCase seed : random_cases(1, 100)) {
    Random random(seed);
    std::vector<std::int64_t> numbers(random.below(300));
    for (std::int64_t& n : numbers) n = random.below(1U << random.below(25));
    for (std::size_t lists = 1; lists <= 5; ++lists) {
      REQUIRE(kernels_for_lists(numbers, lists) == packed(numbers, most[lists - 1]));
    }
  }
}

}  // namespace
}  // namespace plimsoll
