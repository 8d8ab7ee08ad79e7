#include "experiments/load/largest.h"

#include <algorithm>
#include <initializer_list>

namespace plimsoll {
namespace {

constexpr int most_starts = 32;

/// Values by their place in the range.
class Climb {
 public:
  Climb(const LoadRange& range, const Fits& fits) : range_(range), fits_(fits), count_(range.count()) {}

  bool fits(std::uint64_t place) const { return fits_(range_.at(place)); }

  /// From a place that fits to one that fits with a next one that does not, or to the end.
  std::uint64_t from(std::uint64_t low) const {
    std::uint64_t high = count_;
    while (low + 1 < count_ && high == count_) {
      const std::uint64_t next = std::min(count_ - 1, doubled(low));
      (fits(next) ? low : high) = next;
    }
    while (high - low > 1 && high < count_) {
      const std::uint64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low;
  }

  /// The first of some places above one, the next one aside, that fits.
  std::optional<std::uint64_t> above(std::uint64_t place) const {
    const std::uint64_t value = range_.at(place) / range_.step;
    return first_of({place + 2, place + 3, place + 4, place + value / 4, place + value / 2}, place + 2);
  }

  /// Where the first place does not fit.
  std::optional<std::uint64_t> anywhere() const { return first_of({1, 2, 3, 6, 12}, 1); }

  bool is_last(std::uint64_t place) const { return place + 1 == count_; }

 private:
  /// Twice the value, and one further at least.
  std::uint64_t doubled(std::uint64_t place) const { return place + std::max(1U, range_.at(place) / range_.step); }

  std::optional<std::uint64_t> first_of(std::initializer_list<std::uint64_t> places, std::uint64_t least) const {
    const auto found =
        std::ranges::find_if(places, [&](std::uint64_t p) { return p >= least && p < count_ && fits(p); });
    return found == places.end() ? std::nullopt : std::optional(*found);
  }

  const LoadRange& range_;
  const Fits& fits_;
  std::uint64_t count_;
};

}  // namespace

std::optional<std::uint32_t> largest_that(const LoadRange& range, const Fits& fits) {
  const Climb climb(range, fits);
  std::optional<std::uint64_t> next = climb.fits(0) ? std::optional<std::uint64_t>(0) : climb.anywhere();
  if (!next) return std::nullopt;
  std::uint64_t largest = 0;
  for (int start = 0; next && start < most_starts; ++start) {
    largest = climb.from(*next);
    next = climb.is_last(largest) ? std::nullopt : climb.above(largest);
  }
  return range.at(next ? *next : largest);
}

}  // namespace plimsoll
