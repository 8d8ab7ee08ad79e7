// What holds of every allocator on random traces.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sim/memory/caching_allocator.h"
#include "sim/memory/offset_assignment.h"
#include "tests/generate/random.h"
#include "tests/memory/requests.h"
#include "tests/random_case.h"

using namespace plimsoll;
using namespace plimsoll::test;

namespace {

/// A request, or the free of an earlier one.
struct Event {
  std::size_t buffer;
  bool allocates;
};
struct Trace {
  std::vector<Bytes> sizes;
  std::vector<std::uint32_t> streams, users;  ///< of each buffer; the user is the stream that frees it
  std::vector<Event> events;
  std::uint32_t stream_count = 1;
};

/// All that was taken is freed at the end.
Trace random_trace(Random& random, bool whole_pages) {
  Trace trace;
  trace.stream_count = random.between(1, 3);
  std::vector<std::size_t> live;
  const auto drop = [&](std::size_t which) {
    trace.events.push_back({live[which], false});
    live[which] = live.back();
    live.pop_back();
  };
  const std::uint32_t steps = random.between(5, 150);
  for (std::uint32_t i = 0; i < steps; ++i) {
    if (!live.empty() && random.chance(0.45)) {
      drop(random.below(static_cast<std::uint32_t>(live.size())));
      continue;
    }
    const bool small = random.chance(0.3);
    const std::int64_t size = small         ? random.between(1, MiB)
                              : whole_pages ? 2 * MiB * random.between(1, 30)
                                            : random.between(MiB + 1, 60 * MiB);
    trace.sizes.push_back({size});
    trace.streams.push_back(random.below(trace.stream_count));
    trace.users.push_back(random.chance(0.8) ? trace.streams.back() : random.below(trace.stream_count));
    trace.events.push_back({trace.sizes.size() - 1, true});
    live.push_back(trace.sizes.size() - 1);
  }
  while (!live.empty()) drop(live.size() - 1);
  return trace;
}

/// What is wrong with the blocks, judged from the outside; empty: nothing.
std::string trouble_in(const CachingAllocator& allocator) {
  std::map<std::tuple<StreamId, bool, std::uint32_t>, BlockView> before;
  std::map<BlockState, Bytes> bytes;
  Bytes requested;
  for (const BlockView& block : allocator.blocks()) {
    const std::tuple key{block.stream, block.small, block.segment};
    const auto [last, is_first] = before.try_emplace(key, block);
    const Bytes end = is_first ? Bytes{} : last->second.offset + last->second.size;
    if (block.offset != end) return "a gap or an overlap";
    const bool merges = block.state == BlockState::free || block.state == BlockState::unmapped;
    if (!is_first && merges && block.state == last->second.state) return "free neighbours that are two";
    last->second = block;
    bytes[block.state] += block.size;
    if (block.state == BlockState::allocated || block.state == BlockState::pending) requested += block.requested;
  }
  if (bytes[BlockState::allocated] != allocator.allocated()) return "allocated bytes are not the blocks'";
  if (bytes[BlockState::allocated] + bytes[BlockState::pending] != allocator.active()) return "nor are active ones";
  if (allocator.active() + bytes[BlockState::free] != allocator.reserved()) return "nor are reserved ones";
  return requested == allocator.requested() ? "" : "nor are requested ones";
}

/// Whether nothing is left that could go back once all free memory has gone back.
bool releases_all(CachingAllocator allocator, Segments segments) {
  allocator.release_cached();
  if (allocator.active() != allocator.allocated()) return false;  // it waits for other streams
  std::map<std::tuple<StreamId, bool, std::uint32_t>, std::vector<BlockView>> by_segment;
  for (const BlockView& block : allocator.blocks()) {
    by_segment[{block.stream, block.small, block.segment}].push_back(block);
    const std::int64_t page = (block.small ? 2 : 20) * MiB, first = (block.offset.count + page - 1) / page * page;
    const bool has_page = first + page <= block.offset.count + block.size.count;
    if (segments == Segments::expandable && block.state == BlockState::free && has_page) return false;
  }
  return segments == Segments::expandable || std::ranges::none_of(by_segment, [](const auto& segment) {
           return segment.second.size() == 1 && segment.second[0].state == BlockState::free;
         });
}

/// Most bytes reserved; everything is judged after each event.
Bytes peak_of(const Trace& trace, const CachingSettings& settings, bool uses_streams) {
  CachingAllocator allocator(settings);
  std::vector<std::optional<BlockId>> blocks(trace.sizes.size());
  Bytes peak;
  std::uint32_t count = 0;
  for (const Event& event : trace.events) {
    std::optional<BlockId>& block = blocks[event.buffer];
    const StreamId stream{trace.streams[event.buffer]}, user{trace.users[event.buffer]};
    if (event.allocates) {
      block = allocator.allocate(trace.sizes[event.buffer], stream);
      REQUIRE(block);
      REQUIRE(allocator[*block].requested == trace.sizes[event.buffer]);
    } else {
      if (uses_streams) allocator.record_use(*block, user);
      allocator.free(*block);
    }
    if (++count % 5 == 0) allocator.reach({count % trace.stream_count});
    peak = std::max(peak, allocator.reserved());
    const bool in_order = allocator.reserved() >= allocator.active() && allocator.active() >= allocator.allocated() &&
                          allocator.active() >= allocator.requested() &&
                          (uses_streams || allocator.allocated() >= allocator.requested());
    REQUIRE(in_order);
    REQUIRE(trouble_in(allocator) == "");
    if (count % 10 == 0) REQUIRE(releases_all(allocator, settings.segments));
  }
  allocator.release_cached();
  REQUIRE(allocator.active() == Bytes{0});
  REQUIRE(allocator.reserved() == Bytes{0});  // nothing is split any more, so nothing stays
  return peak;
}

/// Most bytes live, and what a plan of all of them takes.
OffsetPlan planned(const Trace& trace) {
  std::vector<Lifetime> lifetimes(trace.sizes.size());
  for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
    Lifetime& lifetime = lifetimes[trace.events[e].buffer];
    lifetime.size = trace.sizes[trace.events[e].buffer];
    (trace.events[e].allocates ? lifetime.begin : lifetime.end) = e;
  }
  return assign_offsets(lifetimes);
}

constexpr CachingSettings stitching{.segments = Segments::stitched, .fragment_limit = Bytes{2 * MiB}};

}  // namespace

TEST_CASE(
    "of any allocator, requested <= allocated <= active <= reserved, blocks tile their segments, and all goes back",
    "[memory]") {
  for (const RandomCase seed : fewer_cases(0, 59, 5)) {
    INFO("seed " << seed);
    Random random(seed);
    const Trace trace = random_trace(random, false);
    const OffsetPlan plan = planned(trace);
    REQUIRE(plan.size >= plan.load);
    for (const CachingSettings& settings :
         {CachingSettings{}, CachingSettings{.segments = Segments::expandable},
          CachingSettings{.max_split = Bytes{24 * MiB}}, stitching,
          CachingSettings{.segments = Segments::stitched, .fragment_limit = Bytes{20 * MiB}}}) {
      REQUIRE(peak_of(trace, settings, false) >= plan.load);  // no allocator takes less than what is live
      peak_of(trace, settings, true);
    }
  }
}

TEST_CASE("stitching every size takes no more than native segments, where sizes are whole pages", "[memory]") {
  int less = 0;
  for (const RandomCase seed : fewer_cases(0, 199)) {
    INFO("seed " << seed);
    Random random(seed);
    const Trace trace = random_trace(random, true);
    const Bytes native = peak_of(trace, {}, false), stitched = peak_of(trace, stitching, false);
    REQUIRE(stitched <= native);
    less += stitched < native ? 1 : 0;
  }
  if (all_cases()) CHECK(less > cases_of(50));
}

TEST_CASE("stitching sizes that are no whole pages takes at most a page more for each live buffer of a stream",
          "[memory]") {
  for (const RandomCase seed : fewer_cases(0, 99)) {
    INFO("seed " << seed);
    Random random(seed);
    const Trace trace = random_trace(random, false);
    std::map<std::uint32_t, std::int64_t> live, most;
    for (const Event& event : trace.events) {
      const std::uint32_t stream = trace.streams[event.buffer];
      live[stream] += event.allocates ? 1 : -1;
      most[stream] = std::max(most[stream], live[stream]);
    }
    std::int64_t buffers = 0;
    for (const auto& [stream, count] : most) buffers += count;
    REQUIRE(peak_of(trace, stitching, false) <= peak_of(trace, {}, false) + buffers * Bytes{2 * MiB});
  }
}
