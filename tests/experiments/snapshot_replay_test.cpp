// A memory snapshot's buffers, asked of allocators again. The program's own tests read and write pickles.

#include "experiments/snapshot_replay.h"

#include <array>
#include <catch2/catch.hpp>

#include "experiments/allocator_spec.h"

namespace plimsoll {
namespace {

constexpr Bytes mebibytes(std::int64_t count) {
  return Bytes{count << 20};
}

TEST_CASE("what is older than a snapshot's history is asked for first, in its own size", "[snapshot]") {
  // A buffer of 30 MiB is freed that the history did not see; one of 5 MiB stays, in a segment of 20, that it did not
  // see either. PyTorch's native allocator takes 30 MiB in a segment of its own, 5 in one of 20.
  MemorySnapshot snapshot;
  snapshot.traces = {{{.action = AllocatorAction::free_requested, .address = 1000, .size = mebibytes(30)},
                      {.action = AllocatorAction::free_completed, .address = 1000, .size = mebibytes(30)},
                      {.action = AllocatorAction::segment_free, .address = 1000, .size = mebibytes(30)}}};
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
}

}  // namespace
}  // namespace plimsoll
