#include "traces/imports/pytorch/fx_extent.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace plimsoll {
namespace {

constexpr std::int64_t most_extent = std::int64_t{1} << 40;
constexpr int deepest = 50;

bool is_part_of_axis_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::int64_t divided_down(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

class ExtentReader {
 public:
  using SizeOf = std::function<std::optional<std::int64_t>(std::string_view)>;
  ExtentReader(std::string_view text, const SizeOf& size_of) : text_(text), size_of_(size_of) {}

  FxExtent extent() && {
    const std::int64_t value = sum();
    skip_blanks();
    if (fault_.empty() && at_ < text_.size()) fault_ = fmt::format("'{}' is not understood", text_.substr(at_));
    if (fault_.empty() && value < 0) fault_ = fmt::format("it is {}", value);
    return {value, fault_};
  }

 private:
  void fail(std::string why) {
    if (fault_.empty()) fault_ = std::move(why);
    at_ = text_.size();
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool takes(std::string_view sign) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  std::int64_t within(std::int64_t value) {
    if (value <= most_extent && value >= -most_extent) return value;
    fail("it is absurdly large");
    return 0;
  }

  std::int64_t times(std::int64_t a, std::int64_t b) {
    const double bound = static_cast<double>(a) * static_cast<double>(b);
    return within(std::abs(bound) > 2.0 * static_cast<double>(most_extent) ? 2 * most_extent : a * b);
  }

  std::int64_t sum() {
    std::int64_t value = product();
    for (;;) {
      if (takes("+")) {
        value = within(value + product());
      } else if (takes("-")) {
        value = within(value - product());
      } else {
        return value;
      }
    }
  }

  std::int64_t product() {
    std::int64_t value = signed_power();
    for (;;) {
      if (takes("//")) {
        value = quotient(value, signed_power());
      } else if (takes("*")) {
        value = times(value, signed_power());
      } else {
        return value;
      }
    }
  }

  std::int64_t quotient(std::int64_t a, std::int64_t b) {
    if (b != 0) return divided_down(a, b);
    fail("it divides by 0");
    return 0;
  }

  /// A sign is of the whole power behind it, as in Python: -q**2 is -(q**2).
  std::int64_t signed_power() {
    bool is_negative = false;
    while (takes("-")) is_negative = !is_negative;
    const std::int64_t value = power();
    return is_negative ? -value : value;
  }

  /// The exponent may be a power, too: 2**3**2 is 2**9.
  std::int64_t power() {
    if (++depth_ > deepest) fail("it is too deep");
    const std::int64_t base = single();
    std::int64_t value = base;
    if (takes("**")) {
      const std::int64_t exponent = signed_power();
      constexpr std::int64_t largest = 40;
      if (exponent < 0 || exponent > largest) fail("it is a strange power");
      value = 1;
      for (std::int64_t k = 0; k < exponent && fault_.empty(); ++k) value = times(value, base);
    }
    --depth_;
    return value;
  }

  std::int64_t single() {
    skip_blanks();
    std::int64_t value = 0;
    if (takes("(")) {
      value = sum();
      if (!takes(")")) fail("a bracket is not closed");
    } else if (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = number();
    } else if (at_ < text_.size() && is_part_of_axis_name(text_[at_])) {
      value = named();
    } else {
      fail("expected a number or a name");
    }
    return value;
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc()) fail("it is absurdly large");
    return within(value);
  }

  std::int64_t named() {
    const std::size_t first = at_;
    while (at_ < text_.size() && is_part_of_axis_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(first, at_ - first);
    if (takes("(")) return function(name);
    if (const std::optional<std::int64_t> size = size_of_(name)) return within(*size);
    fail(
        fmt::format("'{}' is an axis without a size, give it by --set {}=N or compile with dynamic=False", name, name));
    return 0;
  }

  std::int64_t function(std::string_view name) {
    std::vector<std::int64_t> of;
    do {
      of.push_back(sum());
    } while (takes(","));
    if (!takes(")")) fail("a bracket is not closed");
    if (name == "Max") return *std::ranges::max_element(of);
    if (name == "Min") return *std::ranges::min_element(of);
    if (of.size() == 1 && (name == "Sym" || name == "Identity")) return of[0];
    if (of.size() == 2 && (name == "FloorDiv" || name == "CleanDiv")) return quotient(of[0], of[1]);
    if (of.size() == 2 && name == "CeilDiv") return -quotient(-of[0], of[1]);
    if (of.size() == 2 && (name == "Mod" || name == "PythonMod")) return of[0] - quotient(of[0], of[1]) * of[1];
    fail(fmt::format("'{}' is not understood", name));
    return 0;
  }

  std::string_view text_;
  const SizeOf& size_of_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string fault_;
};

}  // namespace

FxExtent fx_extent(std::string_view text, const std::function<std::optional<std::int64_t>(std::string_view)>& size_of) {
  return ExtentReader(text, size_of).extent();
}

}  // namespace plimsoll
