#include "validate/reference/few_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "validate/reference/bit_stream.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

double FloatFormat::largest() const {
  return std::ldexp(2.0 - std::ldexp(1.0, -fraction()), bias());
}

namespace plain {
namespace {

constexpr std::int64_t row_length = 256;

bool is_plus_zero(float x) {
  return std::bit_cast<std::uint32_t>(x) == 0;
}

/// The squared distance of the values of a grid, from one to before another, from their mean.
class Spread {
 public:
  explicit Spread(const std::vector<double>& values) : sums_{0}, squares_{0} {
    for (const double value : values) {
      sums_.push_back(sums_.back() + value);
      squares_.push_back(squares_.back() + value * value);
    }
  }
  double mean(std::size_t from, std::size_t to) const {
    return (sums_[to] - sums_[from]) / static_cast<double>(to - from);
  }
  double operator()(std::size_t from, std::size_t to) const {
    const double sum = sums_[to] - sums_[from];
    return squares_[to] - squares_[from] - sum * sum / static_cast<double>(to - from);
  }

 private:
  std::vector<double> sums_, squares_;
};

DerivativeSteps best_gelu_steps(int bits) {
  constexpr std::size_t points = 512;
  constexpr double end = 4;
  const std::size_t steps = std::size_t{1} << bits;
  const auto at = [](double point) { return 2 * end * point / points - end; };
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points; ++i) {
    slopes.push_back(gelu_slope(static_cast<float>(at(static_cast<double>(i) + 0.5))));
  }
  const Spread spread(slopes);
  std::vector<double> cost(points + 1);  // of the first points, in as many steps as rounds
  for (std::size_t to = 1; to <= points; ++to) cost[to] = spread(0, to);
  std::vector<std::vector<std::size_t>> begins{std::vector<std::size_t>(points + 1, 0)};
  for (std::size_t step = 1; step < steps; ++step) {
    std::vector<double> better(points + 1, std::numeric_limits<double>::infinity());
    std::vector<std::size_t>& begin = begins.emplace_back(points + 1);
    for (std::size_t to = step + 1; to <= points; ++to) {
      for (std::size_t from = step; from < to; ++from) {
        const double all = cost[from] + spread(from, to);
        if (!(all < better[to])) continue;
        better[to] = all;
        begin[to] = from;
      }
    }
    cost = std::move(better);
  }
  DerivativeSteps made;
  std::size_t to = points;
  for (std::size_t step = steps; step-- > 0;) {
    const std::size_t from = begins[step][to];
    made.levels.push_back(static_cast<float>(spread.mean(from, to)));
    if (step > 0) made.bounds.push_back(static_cast<float>(at(static_cast<double>(from))));
    to = from;
  }
  std::ranges::reverse(made.bounds);
  std::ranges::reverse(made.levels);
  return made;
}

}  // namespace

std::uint32_t narrowed(float x, const FloatFormat& format) {
  const std::uint32_t sign = std::signbit(x) ? 1U << (format.bits - 1) : 0U;
  const std::uint32_t infinity = ((1U << format.exponent) - 1U) << format.fraction();
  if (std::isnan(x)) return sign | infinity | 1U;
  const double size = std::abs(static_cast<double>(x));
  if (size == 0) return sign;
  if (std::isinf(x)) return sign | infinity;
  const int least = 1 - format.bias();  // exponent of the smallest normal numbers, and of those below them
  const int exponent = std::max(std::ilogb(size), least);
  const double unit = std::ldexp(1.0, exponent - format.fraction());
  const double rounded = std::nearbyint(size / unit) * unit;
  if (rounded > format.largest()) return sign | infinity;
  if (rounded < std::ldexp(1.0, least)) return sign | static_cast<std::uint32_t>(rounded / unit);
  const int written = std::ilogb(rounded);
  const double fraction = std::ldexp(rounded, format.fraction() - written) - std::ldexp(1.0, format.fraction());
  return sign | static_cast<std::uint32_t>(written + format.bias()) << format.fraction() |
         static_cast<std::uint32_t>(fraction);
}

float widened(std::uint32_t code, const FloatFormat& format) {
  const std::uint32_t fraction = code & ((1U << format.fraction()) - 1U);
  const std::uint32_t exponent = (code >> format.fraction()) & ((1U << format.exponent) - 1U);
  const float sign = (code >> (format.bits - 1)) != 0 ? -1.0F : 1.0F;
  if (exponent == (1U << format.exponent) - 1U) {
    return sign * (fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
  }
  const double size = exponent == 0 ? fraction : fraction + std::ldexp(1.0, format.fraction());
  const int scale = std::max(static_cast<int>(exponent), 1) - format.bias() - format.fraction();
  return sign * static_cast<float>(std::ldexp(size, scale));
}

void narrow(const float* x, std::int64_t numbers, const FloatFormat& format, std::uint8_t* packed) {
  const int bytes = format.bits / 8;
  for (std::int64_t i = 0; i < numbers; ++i) {
    const std::uint32_t code = narrowed(x[i], format);
    for (int b = 0; b < bytes; ++b) packed[i * bytes + b] = static_cast<std::uint8_t>(code >> (8 * b));
  }
}

void widen(const std::uint8_t* packed, std::int64_t numbers, const FloatFormat& format, float* x) {
  const int bytes = format.bits / 8;
  for (std::int64_t i = 0; i < numbers; ++i) {
    std::uint32_t code = 0;
    for (int b = 0; b < bytes; ++b) code |= static_cast<std::uint32_t>(packed[i * bytes + b]) << (8 * b);
    x[i] = widened(code, format);
  }
}

const DerivativeSteps& gelu_steps(int bits) {
  static std::mutex one_at_a_time;
  static std::map<int, DerivativeSteps> found;  // searching takes longer than packing
  const std::scoped_lock lock(one_at_a_time);
  const auto known = found.find(bits);
  return known != found.end() ? known->second : found.emplace(bits, best_gelu_steps(bits)).first->second;
}

void steps_of(const float* x, std::int64_t numbers, int bits, const DerivativeSteps& steps, std::uint8_t* packed) {
  std::fill_n(packed, (numbers * bits + 7) / 8, std::uint8_t{0});
  for (std::int64_t i = 0; i < numbers; ++i) {
    const auto step = static_cast<std::uint32_t>(std::ranges::upper_bound(steps.bounds, x[i]) - steps.bounds.begin());
    put_bits(packed, i * bits, step);
  }
}

void stepped_gradient(const std::uint8_t* packed, int bits, const DerivativeSteps& steps, const float* dy,
                      std::int64_t numbers, float* dx) {
  for (std::int64_t i = 0; i < numbers; ++i) dx[i] = dy[i] * steps.levels[bits_at(packed, i * bits, bits)];
}

std::int64_t compress_rows(const float* x, std::int64_t numbers, std::int64_t reserved, float* values,
                           std::int32_t* first, std::uint8_t* places) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < numbers; ++i) {
    if (i % row_length == 0) first[i / row_length] = static_cast<std::int32_t>(count);
    if (is_plus_zero(x[i])) continue;
    if (count < reserved) {
      values[count] = x[i];
      places[count] = static_cast<std::uint8_t>(i % row_length);
    }
    ++count;
  }
  first[(numbers + row_length - 1) / row_length] = static_cast<std::int32_t>(count);
  return count;
}

void expand_rows(const float* values, const std::int32_t* first, const std::uint8_t* places, std::int64_t numbers,
                 float* x) {
  std::fill_n(x, numbers, 0.0F);
  for (std::int64_t row = 0; row * row_length < numbers; ++row) {
    for (std::int32_t v = first[row]; v < first[row + 1]; ++v) x[row * row_length + places[v]] = values[v];
  }
}

}  // namespace plain
}  // namespace plimsoll
