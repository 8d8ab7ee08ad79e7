#pragma once
// What option values are allowed: small predicates for OptionInfo::allowed.

#include <charconv>
#include <cstdint>
#include <string_view>

namespace plimsoll {

/// A whole number from `Least` to `Most`, written without sign or spaces.
template <std::int64_t Least, std::int64_t Most>
bool integer_between(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= Least && value <= Most;
}

/// A number from `Least` / `Unit` to `Most` / `Unit`.
template <std::int64_t Least, std::int64_t Most, std::int64_t Unit>
bool number_between(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value * Unit >= Least && value * Unit <= Most;
}

}  // namespace plimsoll
