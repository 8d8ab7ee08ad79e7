// BlockPacking within a block against all offsets of few small buffers, dissected blocks, and public instances.

#include "sim/memory/exact_packing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/memory/offset_assignment.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

bool share_dates(const Lifetime& a, const Lifetime& b) {
  return a.begin < b.end && b.begin < a.end;
}

/// No two that live at once share bytes, and none lies outside.
bool is_packed(const std::vector<Lifetime>& lifetimes, Bytes block, const BlockPacking& packing) {
  for (std::size_t a = 0; a < lifetimes.size(); ++a) {
    const Bytes from = packing.offsets[a], end = from + lifetimes[a].size;
    if (from < Bytes{0} || end > block) return false;
    for (std::size_t b = 0; b < a; ++b) {
      const bool apart = end <= packing.offsets[b] || packing.offsets[b] + lifetimes[b].size <= from;
      if (!apart && share_dates(lifetimes[a], lifetimes[b])) return false;
    }
  }
  return true;
}

/// Whether some vector of offsets does.
bool fits_by_all_offsets(const std::vector<Lifetime>& lifetimes, std::int64_t block, std::vector<std::int64_t>& at) {
  const std::size_t b = at.size();
  if (b == lifetimes.size()) return true;
  for (std::int64_t o = 0; o + lifetimes[b].size.count <= block; ++o) {
    bool is_free = true;
    for (std::size_t a = 0; a < b; ++a) {
      const bool apart = at[a] + lifetimes[a].size.count <= o || o + lifetimes[b].size.count <= at[a];
      is_free &= apart || !share_dates(lifetimes[a], lifetimes[b]);
    }
    if (!is_free) continue;
    at.push_back(o);
    if (fits_by_all_offsets(lifetimes, block, at)) return true;
    at.pop_back();
  }
  return false;
}

/// Eight buffers with a load of 6 B that take 7 B, some of them changed by one.
std::vector<Lifetime> small_lifetimes(Random& random) {
  std::vector<Lifetime> lifetimes{{Bytes{3}, 1, 4}, {Bytes{2}, 3, 6},  {Bytes{1}, 5, 7}, {Bytes{3}, 1, 2},
                                  {Bytes{2}, 7, 8}, {Bytes{4}, 6, 10}, {Bytes{3}, 4, 5}, {Bytes{1}, 3, 7}};
  for (Lifetime& each : lifetimes) {
    if (random.chance(0.1)) each.size += Bytes{1};
    if (random.chance(0.1)) --each.begin;
    if (random.chance(0.1)) ++each.end;
  }
  return lifetimes;
}

/// A block of 1,000 B and 1,000 dates cut again and again, across or along, into so many buffers.
std::vector<Lifetime> dissected(Random& random, std::size_t count) {
  struct Rectangle {
    std::uint32_t low, high, begin, end;
  };
  std::vector<Rectangle> parts{{0, 1000, 0, 1000}};
  while (parts.size() < count) {
    Rectangle& part = parts[random.below(static_cast<std::uint32_t>(parts.size()))];
    Rectangle other = part;
    if (random.chance(0.5) && part.high - part.low > 1) {
      part.high = other.low = random.between(part.low + 1, part.high - 1);
    } else if (part.end - part.begin > 1) {
      part.end = other.begin = random.between(part.begin + 1, part.end - 1);
    } else {
      continue;
    }
    parts.push_back(other);
  }
  std::vector<Lifetime> lifetimes;
  for (const Rectangle& part : parts) lifetimes.push_back({Bytes{part.high - part.low}, part.begin, part.end});
  return lifetimes;
}

/// Lines `id,begin,end,size` after a first one.
std::vector<Lifetime> public_instance(const std::string& file) {
  std::vector<Lifetime> lifetimes;
  FILE* pipe = popen(("zcat " + file).c_str(), "r");
  REQUIRE(pipe != nullptr);
  char first[64];
  REQUIRE(fgets(first, sizeof first, pipe) != nullptr);
  unsigned id = 0, begin = 0, end = 0;
  long size = 0;
  while (std::fscanf(pipe, "%u,%u,%u,%ld", &id, &begin, &end, &size) == 4) lifetimes.push_back({{size}, begin, end});
  REQUIRE(pclose(pipe) == 0);
  return lifetimes;
}

TEST_CASE("a block is enough for the search where it is enough for some offsets, and only there", "[packing]") {
  std::size_t impossible_at_load = 0;
  for (const RandomCase seed : random_cases(1, 400)) {
    INFO("seed " << seed);
    Random random(seed);
    const std::vector<Lifetime> lifetimes = small_lifetimes(random);
    const Bytes load = assign_offsets(lifetimes).load;
    for (std::int64_t block = load.count; block < load.count + 3; ++block) {
      std::vector<std::int64_t> at;
      const bool expected = fits_by_all_offsets(lifetimes, block, at);
      const BlockPacking found = pack_within(lifetimes, Bytes{block}, 100'000);
      REQUIRE(found.end == (expected ? PackingEnd::found : PackingEnd::impossible));
      if (expected) REQUIRE(is_packed(lifetimes, Bytes{block}, found));
      impossible_at_load += expected ? 0 : 1;
      if (expected) break;
    }
  }
  if (all_cases()) CHECK(impossible_at_load > 10);
}

TEST_CASE("the parts of a dissected block are packed into it without a gap", "[packing]") {
  for (const RandomCase seed : random_cases(1, 30)) {
    INFO("seed " << seed);
    Random random(seed);
    const std::vector<Lifetime> lifetimes = dissected(random, random.between(11, 60));
    const BlockPacking found = pack_within(lifetimes, Bytes{1000}, 500'000);
    REQUIRE(found.end == PackingEnd::found);
    CHECK(is_packed(lifetimes, Bytes{1000}, found));
    CHECK(pack_within(lifetimes, Bytes{999}, 500'000).end == PackingEnd::impossible);
  }
}

TEST_CASE("a search ends where its nodes do", "[packing]") {
  Random random(1);
  const std::vector<Lifetime> lifetimes = dissected(random, 60);
  CHECK(pack_within(lifetimes, Bytes{1000}, 10).end == PackingEnd::cut_off);
}

TEST_CASE("what is packed into a block is packed into larger ones", "[packing]") {
  for (const RandomCase seed : fewer_cases(1, 60)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Lifetime> lifetimes = dissected(random, random.between(11, 40));
    for (Lifetime& each : lifetimes) {
      if (random.chance(0.2)) each.size += Bytes{random.between(1, 60)};
    }
    const OffsetPlan plan = assign_offsets(lifetimes);
    CHECK(plan.size >= plan.load);
    CHECK(pack_within(lifetimes, plan.load - Bytes{1}, 100'000).end == PackingEnd::impossible);
    for (const std::int64_t more : {0, 1, 30, 500}) {
      const Bytes block = plan.size + Bytes{more};
      const BlockPacking found = pack_within(lifetimes, block, 1'000'000);
      REQUIRE(found.end == PackingEnd::found);
      CHECK(is_packed(lifetimes, block, found));
    }
  }
}

TEST_CASE("eleven public instances are packed within their published block", "[packing]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no public instance is packed");
    return;
  }
  for (const RandomCase k : fewer_cases(0, 10, 5)) {
    const char name = "ABCDEFGHIJK"[k];
    INFO(name);
    const std::string folder = std::string(shared) + "/data/offset_assignment/minimalloc_";
    const std::vector<Lifetime> lifetimes = public_instance(folder + name + ".csv.gz");
    REQUIRE(lifetimes.size() > 150);
    const BlockPacking found = pack_within(lifetimes, Bytes{1'048'576}, 1'000'000);
    REQUIRE(found.end == PackingEnd::found);
    CHECK(is_packed(lifetimes, Bytes{1'048'576}, found));
  }
}

}  // namespace
}  // namespace plimsoll
