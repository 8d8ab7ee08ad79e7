#pragma once
// The largest value of a range that fits, found by doubling and bisection, with a look at what lies above.

#include <cstdint>
#include <functional>
#include <optional>

namespace plimsoll {

/// The multiples of `step` from `from` to `to`, both of which are among them.
struct LoadRange {
  std::uint32_t from = 1, to = 1, step = 1;

  std::uint64_t count() const { return (to - from) / step + 1; }
  std::uint32_t at(std::uint64_t i) const { return static_cast<std::uint32_t>(from + i * step); }
};

/// Whether a value fits. It may be asked twice about one.
using Fits = std::function<bool(std::uint32_t)>;

/// The largest value for which `fits` has said yes. What fits may come and go along the range. So above it have been
/// asked about, in vain: the next value (unless the range ends), the three behind it, a quarter and a half more, and
/// what doubling and bisection have passed. Where one of them fits, the search goes on from there, at most 32 times.
/// Where the first value does not fit, the next three, the sixth and the twelfth behind it are asked about.
std::optional<std::uint32_t> largest_that(const LoadRange&, const Fits&);

}  // namespace plimsoll
