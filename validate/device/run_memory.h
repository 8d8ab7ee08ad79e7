#pragma once
// Memory for one run of a schedule that one host thread issues ahead of the GPU: who takes a piece is told which steps
// used it before, so that a stream can wait for them. What is taken in the order of issue may still be in use then.

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/memory/caching_allocator.h"
#include "validate/replayed.h"

namespace plimsoll {

/// Where segments come from: the device itself, or a test's fake.
class SegmentSource {
 public:
  SegmentSource() = default;
  virtual ~SegmentSource() = default;
  SegmentSource(const SegmentSource&) = delete;
  SegmentSource& operator=(const SegmentSource&) = delete;

  /// Nothing where there is no more.
  virtual std::byte* take(Bytes) = 0;
  /// Waits until no step uses the segment.
  virtual void give_back(std::byte*, Bytes) = 0;
};

/// Room at `address`, to be used after the steps `after`.
struct Grant {
  std::byte* address = nullptr;
  std::vector<StepId> after;
};

class RunMemory {
 public:
  RunMemory() = default;
  virtual ~RunMemory() = default;
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  /// For a step on the stream; nothing where there is no more. No bytes need no address.
  virtual std::optional<Grant> take(Bytes, StreamId) = 0;
  /// `by`: the steps after which nobody uses it.
  virtual void give_back(std::byte*, Bytes, std::span<const StepId> by) = 0;
  /// Unset where no allocator is measured.
  virtual std::optional<AllocatorPeaks> peaks() const = 0;
};

/// PyTorch's caching allocator for real: the rules of sim/memory decide, each of its segments is one of the source's.
/// Whatever a run took is given back when this dies.
class CachingMemory : public RunMemory {
 public:
  CachingMemory(SegmentSource& source, std::optional<Bytes> capacity)
      : source_(source), rules_(CachingSettings{}, capacity) {}
  ~CachingMemory() override;

  std::optional<Grant> take(Bytes, StreamId) override;
  void give_back(std::byte*, Bytes, std::span<const StepId> by) override;
  std::optional<AllocatorPeaks> peaks() const override { return peaks_; }

  Bytes reserved() const { return rules_.reserved(); }

 private:
  struct SegmentKey {
    StreamId stream;
    bool small = false;
    std::uint32_t segment = 0;
    friend auto operator<=>(const SegmentKey&, const SegmentKey&) = default;
  };
  struct Segment {
    std::byte* address = nullptr;
    Bytes size;
  };
  /// Free bytes that steps used before.
  struct Used {
    Bytes size;
    std::vector<StepId> by;
  };

  bool follow_rules();
  std::vector<StepId> users_of(std::byte*, Bytes);

  SegmentSource& source_;
  CachingAllocator rules_;
  std::map<SegmentKey, Segment> segments_;
  std::map<std::byte*, BlockId> blocks_;  ///< that are handed out
  std::map<std::byte*, Used> used_;       ///< by first address, without overlap
  AllocatorPeaks peaks_;
};

/// Blocks of exactly the sizes asked for, kept from run to run until others need the room; with a capacity of what may
/// be taken at once.
class KeptBlocks : public RunMemory {
 public:
  explicit KeptBlocks(SegmentSource& source) : source_(source) {}
  ~KeptBlocks() override;

  /// Everything has been given back, and the steps of the run before mean nothing any more.
  void begin_run(std::optional<Bytes> capacity);

  std::optional<Grant> take(Bytes, StreamId) override;
  void give_back(std::byte*, Bytes, std::span<const StepId> by) override;
  std::optional<AllocatorPeaks> peaks() const override { return std::nullopt; }

 private:
  void drop_free();

  SegmentSource& source_;
  std::optional<Bytes> capacity_;
  Bytes taken_, held_;  ///< held: with what is free
  std::map<std::byte*, Bytes> all_;
  std::multimap<Bytes, Grant> free_;
};

}  // namespace plimsoll
