// Memory that a host gives ahead of a GPU, on a device that is only counted.

#include "validate/device/run_memory.h"
#include "tests/random_case.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

namespace plimsoll {
namespace {

constexpr Bytes MiB{1 << 20};
constexpr StreamId compute{0}, copies{1};

/// Addresses that are nobody's, with what is taken of them.
class FakeDevice : public SegmentSource {
 public:
  explicit FakeDevice(Bytes size = Bytes{std::int64_t{1} << 40}) : size_(size) {}

  std::byte* take(Bytes bytes) override {
    if (taken() + bytes > size_) return nullptr;
    auto* address = std::bit_cast<std::byte*>(next_);
    next_ += static_cast<std::uintptr_t>(bytes.count) + 4096;
    segments[address] = bytes;
    return address;
  }
  void give_back(std::byte* address, Bytes bytes) override {
    REQUIRE(segments.at(address) == bytes);
    segments.erase(address);
  }
  Bytes taken() const {
    Bytes sum;
    for (const auto& [address, bytes] : segments) sum += bytes;
    return sum;
  }

  std::map<std::byte*, Bytes> segments;

 private:
  Bytes size_;
  std::uintptr_t next_ = 1 << 20;
};

Grant granted(RunMemory& memory, Bytes bytes, StreamId stream = compute) {
  std::optional<Grant> grant = memory.take(bytes, stream);
  REQUIRE(grant);
  return *grant;
}

void freed(RunMemory& memory, const Grant& grant, Bytes bytes, StepId by) {
  memory.give_back(grant.address, bytes, std::span(&by, 1));
}

TEST_CASE("a segment appears with the first request that needs it and goes when the run ends", "[device]") {
  FakeDevice device;
  {
    CachingMemory memory(device, std::nullopt);
    CHECK(device.segments.empty());
    const Grant small = granted(memory, Bytes{1000});
    CHECK(device.taken() == 2 * MiB);  // PyTorch's small segment
    CHECK(granted(memory, Bytes{1000}).address == small.address + 1024);
    granted(memory, 3 * MiB);
    CHECK(device.taken() == 22 * MiB);
    CHECK(memory.peaks()->reserved == 22 * MiB);
    CHECK(memory.peaks()->allocated == 3 * MiB + Bytes{2048});
    CHECK(granted(memory, Bytes{0}).address == nullptr);
  }
  CHECK(device.segments.empty());
}

TEST_CASE("who takes a block is told which steps used it, piece by piece", "[device]") {
  FakeDevice device;
  CachingMemory memory(device, std::nullopt);
  const Grant first = granted(memory, 4 * MiB), second = granted(memory, 4 * MiB), rest = granted(memory, 12 * MiB);
  CHECK(first.after.empty());
  CHECK(second.address == first.address + (4 * MiB).count);
  freed(memory, first, 4 * MiB, StepId{3});
  freed(memory, second, 4 * MiB, StepId{5});
  const Grant low = granted(memory, 2 * MiB);  // the two are one free block now
  CHECK(low.address == first.address);
  CHECK(low.after == std::vector<StepId>{StepId{3}});
  const Grant both = granted(memory, 6 * MiB);  // what is left of the first, and the second
  CHECK(both.address == first.address + (2 * MiB).count);
  CHECK(both.after == std::vector<StepId>{StepId{3}, StepId{5}});
  freed(memory, both, 6 * MiB, StepId{8});
  CHECK(granted(memory, 6 * MiB).after == std::vector<StepId>{StepId{8}});  // who came before is waited for by then
  freed(memory, rest, 12 * MiB, StepId{9});
}

TEST_CASE("streams have their own segments, as in PyTorch", "[device]") {
  FakeDevice device;
  CachingMemory memory(device, std::nullopt);
  freed(memory, granted(memory, 4 * MiB), 4 * MiB, StepId{1});
  granted(memory, 4 * MiB, copies);
  CHECK(device.taken() == 40 * MiB);
}

TEST_CASE("at the capacity, segments that are free go back before others come", "[device]") {
  FakeDevice device;
  CachingMemory memory(device, 30 * MiB);
  const Grant big = granted(memory, 20 * MiB);
  CHECK(!memory.take(24 * MiB, compute));  // nothing is free
  freed(memory, big, 20 * MiB, StepId{1});
  const Grant other = granted(memory, 24 * MiB);
  CHECK(device.taken() == 24 * MiB);
  CHECK(other.after.empty());  // the device waits when a segment goes back
  CHECK(memory.peaks()->reserved == 24 * MiB);
}

TEST_CASE("a device that has less than its capacity is out of memory, and all of it comes back", "[device]") {
  FakeDevice device(10 * MiB);
  {
    CachingMemory memory(device, 100 * MiB);
    granted(memory, Bytes{100});
    CHECK(!memory.take(3 * MiB, compute));
  }
  CHECK(device.segments.empty());
}

void check_random_traffic(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  FakeDevice device;
  CachingMemory memory(device, seed % 2 == 0 ? std::optional(120 * MiB) : std::nullopt);
  struct Live {
    Grant grant;
    Bytes bytes;
  };
  std::vector<Live> live;
  std::map<std::byte*, std::pair<std::byte*, StepId>> last_users;  // by first address: past the end, and who
  for (std::uint32_t step = 0; step < 2000; ++step) {
    if (live.size() > 12 || (!live.empty() && below(2) == 0)) {
      const std::size_t i = below(live.size());
      freed(memory, live[i].grant, live[i].bytes, StepId{step});
      std::byte *first = live[i].grant.address, *end = first + live[i].bytes.count;
      std::erase_if(last_users, [&](const auto& u) { return u.first >= first && u.second.first <= end; });
      last_users[first] = {end, StepId{step}};
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const Bytes bytes{static_cast<std::int64_t>(1 + below(below(2) == 0 ? 4096 : 12'000'000))};
    const std::optional<Grant> grant = memory.take(bytes, StreamId{static_cast<std::uint32_t>(below(3))});
    std::erase_if(last_users, [&](const auto& u) {  // of segments that went back
      return std::ranges::none_of(
          device.segments, [&](const auto& s) { return s.first <= u.first && u.first < s.first + s.second.count; });
    });
    if (!grant) continue;
    std::byte* end = grant->address + bytes.count;
    CHECK(std::ranges::any_of(
        device.segments, [&](const auto& s) { return s.first <= grant->address && end <= s.first + s.second.count; }));
    for (const Live& other : live) {
      const bool apart = end <= other.grant.address || other.grant.address + other.bytes.count <= grant->address;
      REQUIRE(apart);
    }
    for (auto user = last_users.begin(); user != last_users.end();) {
      const bool overlaps = user->first < end && grant->address < user->second.first;
      if (overlaps) CHECK(std::ranges::find(grant->after, user->second.second) != grant->after.end());
      user = overlaps ? last_users.erase(user) : std::next(user);
    }
    live.push_back({*grant, bytes});
  }
  CHECK(memory.reserved() == device.taken());
}

TEST_CASE("live blocks never overlap, lie in segments, and everyone before is named, on random traffic", "[device]") {
  for (const RandomCase seed : random_cases(1, 6)) check_random_traffic(seed);
}

TEST_CASE("kept blocks are used again at their size, after who used them, and within a capacity", "[device]") {
  FakeDevice host;
  {
    KeptBlocks blocks(host);
    blocks.begin_run(Bytes{300});
    const Grant first = granted(blocks, Bytes{100});
    granted(blocks, Bytes{200});
    CHECK(!blocks.take(Bytes{1}, compute));
    freed(blocks, first, Bytes{100}, StepId{4});
    const Grant again = granted(blocks, Bytes{100});
    CHECK(again.address == first.address);
    CHECK(again.after == std::vector<StepId>{StepId{4}});
    blocks.begin_run(std::nullopt);  // the steps of that run are no more
    CHECK(granted(blocks, Bytes{100}).after.empty());
    CHECK(host.taken() == Bytes{300});
    blocks.begin_run(Bytes{300});
    granted(blocks, Bytes{250});  // what is only kept makes room
    CHECK(host.taken() == Bytes{250});
  }
  CHECK(host.segments.empty());
}

}  // namespace
}  // namespace plimsoll
