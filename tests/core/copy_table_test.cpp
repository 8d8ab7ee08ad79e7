// The table of live buffers against a map.

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/lower/copy_table.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

using Known = std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::pair<Copy*, std::uint32_t>>;

CopyKey key_of(const Known::key_type& k) {
  CopyKey key{std::get<0>(k), std::get<1>(k), std::get<2>(k)};
  key.arrived = std::get<1>(k) % 3 == 0;
  return key;
}

}  // namespace

TEST_CASE("a table of live buffers holds what a map holds, each where it was put", "[copies]") {
  for (const RandomCase seed : random_cases(1, 20)) {
    std::mt19937_64 random(seed);
    const std::uint32_t storages = seed % 2 == 0 ? 3 : 400;
    CopyTable table(storages);
    Known known;
    for (std::uint32_t step = 0; step < 20'000; ++step) {
      const auto any = [&](std::uint64_t below) { return static_cast<std::uint32_t>(random() % below); };
      const Known::key_type k{any(storages), any(20), any(2)};
      const auto place = known.find(k);
      const Copy* found = table.find(key_of(k));
      REQUIRE(table.contains(key_of(k)) == (place != known.end()));
      REQUIRE(found == (place == known.end() ? nullptr : place->second.first));
      if (found != nullptr) REQUIRE(found->buffer.index == place->second.second);
      if (const std::uint32_t what = any(4); what < 2) {
        const auto [copy, fresh] = table.try_emplace(key_of(k));
        REQUIRE(fresh == (place == known.end()));
        if (!fresh) continue;
        REQUIRE((copy->users.empty() && copy->flows.empty() && !copy->maker && !copy->lossy && copy->holders.empty()));
        copy->buffer = BufferId{step};
        copy->overwritten(StepId{step});
        copy->lossy = true;
        copy->hold(PartId{7});
        known[k] = {copy, step};
      } else if (place != known.end() && what == 2) {
        table.erase(key_of(k));
        known.erase(place);
      } else if (place != known.end()) {
        const Known::key_type to{any(storages), any(20), any(2)};
        if (known.contains(to)) continue;
        table.rename(key_of(k), key_of(to));
        known[to] = place->second;
        known.erase(place);
      }
    }
  }
}

TEST_CASE("parts hold a copy until each has let it go", "[copies]") {
  for (const std::uint32_t parts : {1U, 2U, 3U, 6U}) {
    Copy copy;
    for (std::uint32_t round = 0; round < 2; ++round) {
      for (std::uint32_t p = 0; p < 2 * parts; ++p) copy.hold(PartId{p % parts});
      copy.holders.erase(PartId{parts});
      for (std::uint32_t p = 0; p < parts; ++p) {
        CHECK(static_cast<std::size_t>(copy.holders.end() - copy.holders.begin()) == parts - p);
        CHECK(copy.is_held_by(PartId{p}));
        copy.holders.erase(PartId{p});
        CHECK_FALSE(copy.is_held_by(PartId{p}));
      }
      CHECK(copy.holders.empty());
    }
  }
}

}  // namespace plimsoll
