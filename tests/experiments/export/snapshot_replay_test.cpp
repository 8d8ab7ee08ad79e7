// A memory snapshot's buffers, asked of allocators again. The program's own tests read and write pickles.

#include "experiments/export/snapshot_replay.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "experiments/study/allocator_spec.h"
#include "tests/experiments/export/recorded_history.h"

namespace plimsoll {
namespace {

constexpr Bytes mebibytes(std::int64_t count) {
  return Bytes{count << 20};
}

TEST_CASE("what is older than a snapshot's history is asked for first, in its own size", "[snapshot]") {
  // A buffer of 30 MiB is freed that the history did not see; one of 5 MiB stays, in a segment of 20, that it did not
  // see either. PyTorch's native allocator takes 30 MiB in a segment of its own, 5 in one of 20.
  const std::int64_t freed = GENERATE(1 << 30, 1000);  // the second overlaps what is there: of another run
  MemorySnapshot snapshot;
  snapshot.traces = {{{.action = AllocatorAction::free_requested, .address = freed, .size = mebibytes(30)},
                      {.action = AllocatorAction::free_completed, .address = freed, .size = mebibytes(30)},
                      {.action = AllocatorAction::segment_free, .address = freed, .size = mebibytes(30)}}};
  snapshot.segments = {
      {.device = 0,
       .address = 5 << 20,
       .total = mebibytes(20),
       .blocks = {{.address = 5 << 20, .size = mebibytes(5), .requested = mebibytes(5), .state = BlockState::allocated},
                  {.address = 10 << 20, .size = mebibytes(15), .state = BlockState::free}}}};
  const std::array choices{parse_allocator("cuda", "test")};
  const std::vector<SnapshotFindings> found = replay_snapshot(snapshot, choices);
  REQUIRE(found.size() == 1);
  CHECK(found[0].older == 2);
  CHECK(found[0].in_segments == mebibytes(20));
  CHECK(found[0].at_start == mebibytes(50));
  REQUIRE(found[0].candidates.size() == 1);
  CHECK(found[0].candidates[0].reserved == mebibytes(20));
  CHECK(found[0].candidates[0].peak == mebibytes(50));
  CHECK(found[0].peak_allocated == mebibytes(35));
}

/// What the native allocator makes of a snapshot of one device.
SnapshotFindings found_in(const MemorySnapshot& snapshot) {
  const std::array choices{parse_allocator("cuda", "test")};
  const std::vector<SnapshotFindings> found = replay_snapshot(snapshot, choices);
  REQUIRE(found.size() == 1);
  return found[0];
}

TEST_CASE("free room in segments that are older than the history serves its requests", "[snapshot]") {
  // Before: 8 and 6 MiB in a segment of 20, of which 6 are free; 30 MiB, all free. Then 5 and 29 MiB are asked for.
  test::RecordedHistory history(1);
  history.allocate(8 << 20, 0);
  const std::int64_t short_lived = history.allocate(30 << 20, 0);
  history.allocate(6 << 20, 0);
  history.free(short_lived);
  const std::size_t begin = history.events();
  history.allocate(5 << 20, 0);
  history.allocate(29 << 20, 0);
  const SnapshotFindings found = found_in(history.snapshot(begin));
  CHECK(found.older == 2);
  CHECK(found.at_start == mebibytes(50));
  CHECK(found.candidates[0].reserved == mebibytes(50));
  CHECK(found.candidates[0].peak == mebibytes(50));
  CHECK(found.peak_allocated == mebibytes(8 + 6 + 6 + 30));  // a mebibyte is not split off
}

TEST_CASE("a history that was cut off anywhere reserves and allocates what it did", "[snapshot]") {
  const std::uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  Random random(seed);
  test::RecordedHistory history(seed);
  std::vector<std::int64_t> live, reserved, allocated;  // the latter two by number of events so far
  const auto note = [&] {
    reserved.resize(history.events() + 1, history.reserved());
    allocated.resize(history.events() + 1, history.allocated());
  };
  note();
  for (int k = 0; k < 150; ++k) {
    const std::uint32_t what = random.below(20);
    if (what < 11 || live.empty()) {
      const std::int64_t size = 1 + static_cast<std::int64_t>(random.below(1U << (8 + random.below(18))));
      const std::int64_t stream = static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(seed % 3 + 1)));
      const SnapshotPool pool{0, seed % 4 == 0 ? static_cast<std::int64_t>(random.below(2)) : 0};
      live.push_back(history.allocate(size, stream, pool));
    } else if (what < 19) {
      std::swap(live[random.below(static_cast<std::uint32_t>(live.size()))], live.back());
      history.free(live.back());
      live.pop_back();
    } else if (seed % 4 != 0) {  // which pool a segment was of that has gone is not in a snapshot
      history.give_back(1);
    }
    note();
  }
  for (std::size_t from = 0; from <= history.events(); ++from) {
    CAPTURE(from);
    // Nothing begins between a new segment and the request that it is for, nor between the two events of a free.
    const MemorySnapshot snapshot = history.snapshot(from);
    if (from > 0) {
      const AllocatorAction before = history.snapshot(from - 1).traces[0][0].action;
      if (before == AllocatorAction::segment_alloc || before == AllocatorAction::free_requested) continue;
    }
    const SnapshotFindings found = found_in(snapshot);
    REQUIRE(found.candidates[0].reserved.count == history.reserved());
    REQUIRE(found.candidates[0].peak.count ==
            *std::max_element(reserved.begin() + static_cast<std::ptrdiff_t>(from), reserved.end()));
    REQUIRE(found.peak.count == found.candidates[0].peak.count);
    // A block that is older and goes is known but for what was not split off before free memory.
    const std::int64_t most = *std::max_element(allocated.begin() + static_cast<std::ptrdiff_t>(from), allocated.end());
    REQUIRE(found.peak_allocated.count <= most);
    REQUIRE(found.peak_allocated.count >= most - static_cast<std::int64_t>(found.older << 20));
    if (from == 0) REQUIRE(found.peak_allocated.count == most);
  }
}

}  // namespace
}  // namespace plimsoll
