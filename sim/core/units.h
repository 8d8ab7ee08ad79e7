#pragma once
// Units as types: bytes are whole numbers, times and rates are doubles, and only sums that make sense compile.

#include <compare>
#include <cstdint>
#include <limits>

namespace plimsoll {

/// A number of bytes; exact, never floating point.
struct Bytes {
  std::int64_t count = 0;

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(std::int64_t n, Bytes b) { return {n * b.count}; }
  constexpr Bytes& operator+=(Bytes b) {
    count += b.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes b) {
    count -= b.count;
    return *this;
  }
};

/// The largest size a file may state (4 PiB); readers also check that their sums fit 64 bits.
inline constexpr Bytes largest_bytes{std::int64_t{1} << 52};

/// A duration or a date in seconds.
struct Seconds {
  double value = 0;

  friend constexpr auto operator<=>(Seconds, Seconds) = default;
  friend constexpr Seconds operator+(Seconds a, Seconds b) { return {a.value + b.value}; }
  friend constexpr Seconds operator-(Seconds a, Seconds b) { return {a.value - b.value}; }
  friend constexpr Seconds operator*(double f, Seconds s) { return {f * s.value}; }
  friend constexpr double operator/(Seconds a, Seconds b) { return a.value / b.value; }
  constexpr Seconds& operator+=(Seconds s) {
    value += s.value;
    return *this;
  }
};

/// A bandwidth. `unlimited` takes no time for any number of bytes.
struct BytesPerSecond {
  double value = 0;
  friend constexpr auto operator<=>(BytesPerSecond, BytesPerSecond) = default;
};
inline constexpr BytesPerSecond unlimited_bandwidth{std::numeric_limits<double>::infinity()};

/// A number of floating point operations; a multiply-add counts as two.
struct Flops {
  double count = 0;
  friend constexpr auto operator<=>(Flops, Flops) = default;
};

struct FlopsPerSecond {
  double value = 0;
  friend constexpr auto operator<=>(FlopsPerSecond, FlopsPerSecond) = default;
};

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return {static_cast<double>(b.count) / r.value};
}
constexpr Seconds operator/(Flops f, FlopsPerSecond r) {
  return {f.count / r.value};
}

}  // namespace plimsoll
