#pragma once
// The next event of each stream, and the earliest of all: a tree of blocks of eight dates, each block's earliest date
// being one of the eight in the block above. A heap does the same in fewer comparisons, but the processor cannot
// foresee them; here there is nothing to foresee, and a block is one cache line.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll {

class EventTree {
 public:
  explicit EventTree(std::size_t streams) {
    std::size_t dates = std::max<std::size_t>(streams, 1);
    do {
      dates = (dates + width - 1) / width;
      levels_.emplace_back(dates);
    } while (dates > 1);
  }

  bool empty() const { return earliest_ == never; }
  double earliest() const { return earliest_; }

  /// The stream's event is due at `date`, whether or not it had one before.
  void set(std::uint32_t stream, double date) {
    std::size_t at = stream;
    for (std::vector<Block>& level : levels_) {
      Block& block = level[at / width];
      double& place = block.dates[at % width];
      if (place == date) return;  // and so all above are as they were
      place = date;
      date = block.earliest();
      at /= width;
    }
    earliest_ = date;
  }

  void remove(std::uint32_t stream) { set(stream, never); }

  /// Appends the streams, in ascending order, whose event is due no more than `window` after the earliest.
  void append_due(double window, std::vector<std::uint32_t>& streams) const {
    append_due(levels_.size() - 1, 0, window, streams);
  }

 private:
  static constexpr std::size_t width = 8;
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct alignas(64) Block {
    std::array<double, width> dates{never, never, never, never, never, never, never, never};

    double earliest() const {
      const auto& [a, b, c, d, e, f, g, h] = dates;
      return std::min(std::min(std::min(a, b), std::min(c, d)), std::min(std::min(e, f), std::min(g, h)));
    }

    /// One bit a date, the first lowest. Two dates at a time: compilers do not find that by themselves.
    std::uint64_t due(double from, double window) const {
      using Dates = double __attribute__((vector_size(16)));
      using Bits = std::int64_t __attribute__((vector_size(16)));
      Bits due{};
      for (std::int64_t i = 0; i < std::int64_t{width}; i += 2) {
        const Dates two{dates[static_cast<std::size_t>(i)], dates[static_cast<std::size_t>(i) + 1]};
        due |= (two - from <= window) & Bits{std::int64_t{1} << i, std::int64_t{2} << i};
      }
      return static_cast<std::uint64_t>(due[0] | due[1]);
    }
  };

  void append_due(std::size_t level, std::size_t block, double window, std::vector<std::uint32_t>& streams) const {
    for (std::uint64_t due = levels_[level][block].due(earliest_, window); due != 0; due &= due - 1) {
      const std::size_t at = block * width + static_cast<std::size_t>(std::countr_zero(due));
      if (level == 0) {
        streams.push_back(static_cast<std::uint32_t>(at));
      } else {
        append_due(level - 1, at, window, streams);
      }
    }
  }

  std::vector<std::vector<Block>> levels_;  ///< the first holds one date a stream, the last is one block
  double earliest_ = never;
};

}  // namespace plimsoll
