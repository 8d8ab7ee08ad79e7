#include "sim/io/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

__extension__ using uint128 = unsigned __int128;

/// A unit is factor * 10^exponent of the base unit.
struct Unit {
  std::string_view name;
  std::int64_t factor = 1;
  int exponent = 0;
};

constexpr Unit prefixes[] = {{"", 1, 0},           {"k", 1, 3},          {"K", 1, 3},          {"M", 1, 6},
                             {"G", 1, 9},          {"T", 1, 12},         {"P", 1, 15},         {"E", 1, 18},
                             {"Ki", 1LL << 10, 0}, {"Mi", 1LL << 20, 0}, {"Gi", 1LL << 30, 0}, {"Ti", 1LL << 40, 0},
                             {"Pi", 1LL << 50, 0}};
constexpr Unit no_prefixes[] = {{"", 1, 0}};
constexpr Unit size_units[] = {{"B", 1, 0}};
constexpr Unit time_units[] = {{"s", 1, 0},    {"ms", 1, -3}, {"us", 1, -6},  {"\u00b5s", 1, -6}, {"ns", 1, -9},
                               {"ps", 1, -12}, {"m", 60, 0},  {"min", 60, 0}, {"h", 3600, 0},     {"d", 86400, 0}};
constexpr Unit bandwidth_units[] = {
    {"Bps", 1, 0}, {"B/s", 1, 0}, {"bps", 125, -3}, {"bit/s", 125, -3}, {"b/s", 125, -3}};
constexpr Unit rate_units[] = {{"FLOPS", 1, 0}, {"FLOP/s", 1, 0}, {"f", 1, 0}};

/// What is asked for: the words for messages, and every prefix on every unit.
struct Kind {
  std::string_view expected;
  std::span<const Unit> prefixes, units;
};
constexpr Kind sizes{"a size such as 80 GB or 64 MiB", prefixes, size_units};
constexpr Kind durations{"a time such as 3.2 ms or 5 us", no_prefixes, time_units};
constexpr Kind bandwidths{"a bandwidth such as 25 GB/s or 400 Gbps", prefixes, bandwidth_units};
constexpr Kind rates{"a rate such as 989 TFLOPS", prefixes, rate_units};

std::optional<Unit> find_unit(std::string_view name, const Kind& kind) {
  for (const Unit& unit : kind.units) {
    if (!name.ends_with(unit.name)) continue;
    const std::string_view prefix_name = name.substr(0, name.size() - unit.name.size());
    for (const Unit& prefix : kind.prefixes) {
      if (prefix.name == prefix_name) return Unit{"", prefix.factor * unit.factor, prefix.exponent + unit.exponent};
    }
  }
  return std::nullopt;
}

std::vector<std::string> names_of_units(const Kind& kind) {
  std::vector<std::string> names;
  for (const Unit& unit : kind.units) {
    for (const Unit& prefix : kind.prefixes) names.push_back(std::string(prefix.name).append(unit.name));
  }
  return names;
}

struct Number {
  bool negative = false;
  std::string text;                ///< digits with at most one point, no exponent
  std::uint64_t digits = 0;        ///< the same without the point
  int fraction = 0, exponent = 0;  ///< value = digits * 10^(exponent - fraction)
  bool too_long = false;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The number at the start of `text`, which is shortened by it; nothing when there is none.
std::optional<Number> take_number(std::string_view& text) {
  constexpr std::size_t most_digits = 18;  // fits 64 bits
  Number number;
  std::size_t at = 0;
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) number.negative = text[at++] == '-';
  std::size_t count = 0;
  bool point = false;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    number.text += text[at];
    if (text[at] == '.') {
      point = true;
      continue;
    }
    const bool leading_zero = number.digits == 0 && text[at] == '0';
    if (!leading_zero) ++count;
    if (count > most_digits) number.too_long = true;
    if (!number.too_long) number.digits = number.digits * 10 + static_cast<std::uint64_t>(text[at] - '0');
    if (point) ++number.fraction;
  }
  if (number.text.empty() || number.text == ".") return std::nullopt;
  const bool exponent_follows = at + 1 < text.size() && (text[at] == 'e' || text[at] == 'E') &&
                                (is_digit(text[at + 1]) || ((text[at + 1] == '-' || text[at + 1] == '+') &&
                                                            at + 2 < text.size() && is_digit(text[at + 2])));
  if (exponent_follows) {
    std::size_t first = at + 1;
    if (text[first] == '+') ++first;
    const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), number.exponent);
    if (error != std::errc() || number.exponent < -400 || number.exponent > 400) number.too_long = true;
    at = static_cast<std::size_t>(end - text.data());
  }
  text.remove_prefix(at);
  return number;
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string found(std::string_view text) {
  constexpr std::size_t longest = 60;
  return fmt::format("found '{}'", text.size() > longest ? fmt::format("{}...", text.substr(0, longest)) : text);
}

struct Written {
  Number number;
  Unit unit;
};

Parsed<Written> take_quantity(std::string_view text, const Kind& kind) {
  std::string_view rest = trimmed(text);
  const std::optional<Number> number = take_number(rest);
  if (!number) return {{}, fmt::format("expected {}, {}", kind.expected, found(text))};
  rest = trimmed(rest);
  if (rest.empty()) return {{}, fmt::format("missing unit, expected {}, {}", kind.expected, found(text))};
  if (number->negative) return {{}, fmt::format("must not be negative, {}", found(text))};
  if (number->too_long) return {{}, fmt::format("too many digits, {}", found(text))};
  if (const std::optional<Unit> unit = find_unit(rest, kind)) return {{*number, *unit}, ""};
  return {{},
          fmt::format("unknown unit '{}', expected {}{}", rest.substr(0, 60), kind.expected,
                      suggestion(rest, names_of_units(kind)))};
}

/// Correctly rounded where the unit is a power of ten; else one rounding more.
double scaled(const Written& written) {
  const std::string text = fmt::format("{}e{}", written.number.text, written.number.exponent + written.unit.exponent);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {  // too small is zero, too large is refused by the caller
    return written.number.exponent < written.number.fraction ? 0 : std::numeric_limits<double>::infinity();
  }
  return value * static_cast<double>(written.unit.factor);
}

/// A finite value of at most `largest`.
template <class Quantity>
Parsed<Quantity> parse_rounded(std::string_view text, const Kind& kind, double largest) {
  const Parsed<Written> written = take_quantity(text, kind);
  if (!written.fine()) return {{}, written.complaint};
  const double value = scaled(written.value);
  if (!(value <= largest)) return {{}, fmt::format("absurdly large, {}", found(text))};
  return {{value}, ""};
}

/// `1.50 GB`: two decimals in the largest prefix that leaves at least 1, rounding included.
std::string with_prefix(double value, std::string_view unit) {
  constexpr std::string_view names[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (prefix + 1 < std::size(names) && value >= 999.995) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.2f} {}{}", value, names[prefix], unit);
}

}  // namespace

Parsed<Bytes> parse_bytes(std::string_view text) {
  const Parsed<Written> written = take_quantity(text, sizes);
  if (!written.fine()) return {{}, written.complaint};
  const auto& [number, unit] = written.value;
  const int exponent = number.exponent + unit.exponent - number.fraction;
  const std::string too_large =
      fmt::format("absurdly large, expected at most {} B, {}", largest_bytes.count, found(text));
  if (number.digits == 0) return {};
  if (exponent > 18) return {{}, too_large};
  // Both factors stay below 10^18, so that the product fits; what is larger is too large whatever divides it.
  uint128 count = uint128{number.digits} * static_cast<std::uint64_t>(unit.factor);
  for (int i = 0; i < exponent; ++i) {
    count *= 10;
    if (count > uint128{1} << 100) return {{}, too_large};
  }
  for (int i = 0; i > exponent; --i) {
    if (count % 10 != 0) return {{}, fmt::format("not a whole number of bytes, {}", found(text))};
    count /= 10;
  }
  if (count > static_cast<std::uint64_t>(largest_bytes.count)) return {{}, too_large};
  return {Bytes{static_cast<std::int64_t>(count)}, ""};
}

Parsed<Seconds> parse_seconds(std::string_view text) {
  return parse_rounded<Seconds>(text, durations, longest_seconds.value);
}

namespace {

/// A rate below 1 a second is a slip, and what takes its time by it takes longer than numbers reach.
template <class Rate>
Parsed<Rate> at_least_one(const Parsed<Rate>& parsed, std::string_view text, std::string_view least) {
  if (!parsed.fine() || parsed.value.value >= 1) return parsed;
  if (parsed.value.value <= 0) return {{}, fmt::format("must be more than zero, {}", found(text))};
  return {{}, fmt::format("absurdly small, expected at least {}, {}", least, found(text))};
}

}  // namespace

Parsed<BytesPerSecond> parse_bandwidth(std::string_view text) {
  if (trimmed(text) == "unlimited") return {unlimited_bandwidth, ""};
  constexpr double largest = 1e18;
  return at_least_one(parse_rounded<BytesPerSecond>(text, bandwidths, largest), text, "1 B/s");
}

Parsed<FlopsPerSecond> parse_flops_rate(std::string_view text) {
  constexpr double largest = 1e21;
  return at_least_one(parse_rounded<FlopsPerSecond>(text, rates, largest), text, "1 FLOPS");
}

Parsed<std::optional<Bytes>> parse_capacity(std::string_view text) {
  if (trimmed(text) == "unlimited") return {};
  const Parsed<Bytes> parsed = parse_bytes(text);
  return {parsed.value, parsed.complaint};
}

Parsed<double> parse_number(std::string_view text) {
  const std::string_view word = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = end == word.data() + word.size() && !word.empty();
  if (!whole || error != std::errc() || !std::isfinite(value)) return {{}, "expected a number, " + found(text)};
  return {value, ""};
}

Parsed<std::int64_t> parse_integer(std::string_view text) {
  const std::string_view word = trimmed(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = end == word.data() + word.size() && !word.empty();
  if (!whole || error != std::errc()) return {{}, "expected a whole number, " + found(text)};
  return {value, ""};
}

std::string format_bytes(Bytes bytes) {
  if (bytes.count < 0) return fmt::format("-{}", format_bytes(Bytes{} - bytes));
  if (bytes.count < 1000) return fmt::format("{} B", bytes.count);
  return with_prefix(static_cast<double>(bytes.count), "B");
}

std::string format_seconds(Seconds seconds) {
  if (seconds.value < 0) return fmt::format("-{}", format_seconds(Seconds{} - seconds));
  if (seconds.value == 0) return "0 s";
  if (seconds.value >= 0.999995) return fmt::format("{:.2f} s", seconds.value);
  if (seconds.value >= 0.999995e-3) return fmt::format("{:.2f} ms", seconds.value * 1e3);
  if (seconds.value >= 0.999995e-6) return fmt::format("{:.2f} us", seconds.value * 1e6);
  return fmt::format("{:.2f} ns", seconds.value * 1e9);
}

std::string format_bandwidth(BytesPerSecond bandwidth) {
  if (bandwidth == unlimited_bandwidth) return "unlimited";
  return with_prefix(bandwidth.value, "B/s");
}

std::string format_flops_rate(FlopsPerSecond rate) {
  return with_prefix(rate.value, "FLOPS");
}

}  // namespace plimsoll
