// Blocks of a recorded step, from events written out here.

#include "experiments/recordings/recorded_memory.h"

#include <catch2/catch.hpp>

namespace plimsoll {
namespace {

class EventWriter {
 public:
  void change(Nanoseconds date, std::int64_t bytes, std::int64_t address, std::int64_t device = 0) {
    total_ += bytes;
    recording_.memory.push_back({.date = date,
                                 .total = Bytes{total_},
                                 .device_type = 1,
                                 .device = device,
                                 .change = Bytes{bytes},
                                 .address = address,
                                 .order = ++events_,
                                 .thread = 3});
  }
  const StepRecording& recording() const { return recording_; }

 private:
  StepRecording recording_;
  std::int64_t total_ = 10'000, events_ = 0;
};

TEST_CASE("blocks of a step come and go with its events, and others' are left out", "[recordings]") {
  EventWriter events;
  events.change(5, 512, 1);  // before the step
  events.change(10, 1024, 2);
  events.change(10, 2048, 3);  // at the same date, later
  events.change(20, -1024, 2);
  events.change(25, -512, 1);
  events.change(30, 512, 2);
  events.change(99, 4096, 4);  // behind it
  const std::optional<RecordedMemory> memory = memory_of_step(events.recording(), {1, 10, 90});
  REQUIRE(memory);
  CHECK(memory->before == Bytes{10'512});
  CHECK(memory->peak == Bytes{10'512 + 1024 + 2048});
  CHECK(memory->behind == Bytes{10'000 + 2048 + 512});
  REQUIRE(memory->blocks.size() == 3);
  CHECK(memory->blocks[0].freed == 20);
  CHECK(memory->blocks[1].freed == RecordedBlock::never);
  CHECK(memory->blocks[2].allocated == 30);
  CHECK(!memory_of_step(events.recording(), {1, 200, 300}));
}

TEST_CASE("an operator takes the latest block of its size that outlives it", "[recordings]") {
  EventWriter events;
  events.change(10, 1024, 1);
  events.change(11, 1024, 2);
  events.change(12, 1024, 3);
  events.change(13, 512, 4);
  events.change(15, -1024, 3);
  const std::optional<RecordedMemory> memory = memory_of_step(events.recording(), {1, 0, 100});
  BlockClaims claims(*memory);
  const BlockClaims::Range range{3, 11, 20};
  CHECK(claims.claim(range, Bytes{1000}) == std::optional<std::size_t>(1));
  CHECK(claims.claim(range, Bytes{1000}) == std::optional<std::size_t>(0));
  CHECK(!claims.claim(range, Bytes{1000}));
  CHECK(claims.rest(range) == std::vector<std::size_t>{2, 3});
  CHECK(claims.rest(range).empty());
}

TEST_CASE("a block is as large as its tensor, rounded as PyTorch's allocator does", "[recordings]") {
  const auto holds = [](std::int64_t block, std::int64_t tensor) {
    return may_hold({.allocated = 0, .freed = 1, .bytes = Bytes{block}}, Bytes{tensor});
  };
  constexpr std::int64_t mib = 1 << 20;
  CHECK(holds(512, 1));
  CHECK(holds(1024, 513));
  CHECK(!holds(1024, 512));
  CHECK(!holds(512, 513));
  CHECK(holds(3 * mib, 2 * mib));
  CHECK(!holds(3 * mib + 512, 2 * mib));
  CHECK(!holds(2 * mib, mib));  // small blocks are cut
}

}  // namespace
}  // namespace plimsoll
