#include "validate/reference/few_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "validate/reference/bit_stream.h"
#include "validate/reference/formulas.h"

namespace plimsoll::plain {
namespace {

constexpr std::int64_t row_length = 256;

constexpr int fraction_of_float = 23, bias_of_float = 127;
constexpr std::uint32_t sign_of_float = 1U << 31U, infinity_of_float = 255U << fraction_of_float;

/// The bits of the number whose last place is the format's smallest number.
std::uint32_t large_for(const FloatFormat& format) {
  const int exponent = 1 - format.bias() - format.fraction() + fraction_of_float;
  return static_cast<std::uint32_t>(exponent + bias_of_float) << fraction_of_float;
}

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

// Both without branches on the value, so that they take as long for all. Numbers below the smallest normal one are
// rounded, and restored, by what is added to a number so large that its last place is the smallest number's.

std::uint32_t narrowed(float x, const FloatFormat& format) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), size = bits & ~sign_of_float;
  const int cut = fraction_of_float - format.fraction();
  const std::uint32_t infinity = ((1U << format.exponent) - 1U) << format.fraction();
  const std::uint32_t nearly_half = (1U << cut >> 1U) - (cut > 0 ? 1U : 0U), is_odd = size >> cut & (cut > 0 ? 1U : 0U);
  const auto lower = static_cast<std::uint32_t>(bias_of_float - format.bias()) << fraction_of_float;  // of exponents
  const std::uint32_t normal = std::min(((size + nearly_half + is_odd) - lower) >> cut, infinity);
  const std::uint32_t large = large_for(format);
  const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(large);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(sum) - large;
  const std::uint32_t code = chosen(size < lower + (1U << fraction_of_float), small, normal);
  return chosen(size > infinity_of_float, infinity | 1U, code) | bits >> 31U << (format.bits - 1);
}

float widened(std::uint32_t code, const FloatFormat& format) {
  const std::uint32_t size = code & ((1U << (format.bits - 1)) - 1U), exponent = size >> format.fraction();
  const int cut = fraction_of_float - format.fraction();
  const auto lower = static_cast<std::uint32_t>(bias_of_float - format.bias()) << fraction_of_float;
  const std::uint32_t large = large_for(format);
  const float small = std::bit_cast<float>(large + size) - std::bit_cast<float>(large);
  const std::uint32_t any = chosen(exponent == 0, std::bit_cast<std::uint32_t>(small), (size << cut) + lower);
  const std::uint32_t last = infinity_of_float | (size << cut & ~(~0U << fraction_of_float));
  const std::uint32_t bits = chosen(exponent == (1U << format.exponent) - 1U, last, any);
  return std::bit_cast<float>(bits | code >> (format.bits - 1) << 31U);
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
  BitWriter writer(packed);
  for (std::int64_t i = 0; i < numbers; ++i) {
    std::uint32_t step = 0;  // by halves, without branches on the value: there are 2^bits - 1 bounds
    for (std::uint32_t half = 1U << (bits - 1); half > 0; half /= 2) {
      step += x[i] < steps.bounds[step + half - 1] ? 0U : half;
    }
    writer.put(step, bits);
  }
  writer.end();
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
    if (count < reserved) {  // the next value takes the place of a zero
      values[count] = x[i];
      places[count] = static_cast<std::uint8_t>(i % row_length);
    }
    count += is_plus_zero(x[i]) ? 0 : 1;
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

}  // namespace plimsoll::plain
