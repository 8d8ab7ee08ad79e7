#pragma once
// Quantities as people write them: `141 GB` (10^9), `80GiB` (2^30), `25 GB/s`, `3.2 ms`, `989 TFLOPS`. A bare number
// is refused, and so is what is negative, not finite or absurdly large.

#include <optional>
#include <string>
#include <string_view>

#include "sim/core/units.h"

namespace plimsoll {

/// A value, or what is wrong with the text.
template <class Quantity>
struct Parsed {
  Quantity value{};
  std::string complaint;  ///< empty: fine

  bool fine() const { return complaint.empty(); }
};

Parsed<Bytes> parse_bytes(std::string_view);
Parsed<Seconds> parse_seconds(std::string_view);
Parsed<BytesPerSecond> parse_bandwidth(std::string_view);  ///< `unlimited` is allowed
Parsed<FlopsPerSecond> parse_flops_rate(std::string_view);

/// `unlimited` or a size; unset: unlimited.
Parsed<std::optional<Bytes>> parse_capacity(std::string_view);

/// A number without a unit, such as a count or a factor.
Parsed<double> parse_number(std::string_view);
Parsed<std::int64_t> parse_integer(std::string_view);

/// The longest time a file may state, thirty years.
inline constexpr Seconds longest_seconds{1e9};

std::string format_bytes(Bytes);                ///< `17 B`, `1.50 GB`
std::string format_seconds(Seconds);            ///< `3.20 ms`
std::string format_bandwidth(BytesPerSecond);   ///< `25.00 GB/s`, `unlimited`
std::string format_flops_rate(FlopsPerSecond);  ///< `989.00 TFLOPS`

}  // namespace plimsoll
