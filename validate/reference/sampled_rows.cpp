#include "validate/reference/sampled_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "validate/reference/chance.h"

namespace plimsoll::plain {
namespace {

/// Of a normal distribution, from two numbers of a counter (Box and Muller).
float normal_of(std::uint64_t seed, std::uint64_t counter) {
  const double size = std::sqrt(-2 * std::log(1 - double{unit_of(seed, 2 * counter)}));
  return static_cast<float>(size * std::cos(2 * std::numbers::pi * double{unit_of(seed, 2 * counter + 1)}));
}

/// Sum number k of the rows of a matrix, each of which has a number of its own in it.
void add_up(const float* x, std::int64_t columns, const SampleSizes& s, std::uint64_t seed, std::int64_t k,
            float* sum) {
  std::fill_n(sum, columns, 0.0F);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float number = number_in_sum(s, seed, k, r);
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += number * x[r * columns + c];
  }
  const float scale = 1 / std::sqrt(static_cast<float>(s.kept));
  for (std::int64_t c = 0; c < columns; ++c) sum[c] *= scale;
}

}  // namespace

float number_in_sum(const SampleSizes& s, std::uint64_t seed, std::int64_t k, std::int64_t r) {
  const auto counter = static_cast<std::uint64_t>(k * s.rows + r);
  switch (s.sums) {
    case Projection::rademacher:
      return unit_of(seed, counter) < 0.5F ? 1.0F : -1.0F;
    case Projection::gaussian:
      return normal_of(seed, counter);
    case Projection::dct: {
      const auto rows = static_cast<double>(s.rows);
      const double drawn = std::floor(rows * double{unit_of(seed, static_cast<std::uint64_t>(k))});
      const double angle = std::numbers::pi * (static_cast<double>(r) + 0.5) * drawn / rows;
      return drawn == 0 ? 1.0F : static_cast<float>(std::sqrt(2.0) * std::cos(angle));
    }
  }
  return 0;
}

void sample_rows(const float* x, const SampleSizes& s, std::uint64_t seed, float* norms, std::int64_t* numbers,
                 float* values) {
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float sum = 0;
    for (std::int64_t c = 0; c < s.columns; ++c) sum += x[r * s.columns + c] * x[r * s.columns + c];
    norms[r] = sum >= 0 ? std::sqrt(sum) : std::numeric_limits<float>::infinity();  // what is no number stays
  }
  const std::int64_t winners = s.kept == s.rows ? s.rows : (s.kept + 1) / 2, drawn = s.kept - winners;
  const auto is_before = [&](std::int64_t a, std::int64_t b) {
    return norms[a] > norms[b] || (norms[a] == norms[b] && a < b);
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(s.rows));
  std::iota(order.begin(), order.end(), 0);
  // The last winner tells them all: so no row is sorted, and the time grows as the values.
  std::int64_t last = -1;
  if (winners > 0) {
    std::ranges::nth_element(order, order.begin() + (winners - 1), is_before);
    last = order[static_cast<std::size_t>(winners - 1)];
  }
  std::int64_t* winner = numbers;
  std::vector<std::int64_t> others;
  std::vector<double> sums;  // of the norms of the others, one by one
  for (std::int64_t r = 0; r < s.rows; ++r) {
    if (last >= 0 && !is_before(last, r)) {
      *winner++ = r;
    } else {
      others.push_back(r);
      sums.push_back(norms[r] + (sums.empty() ? 0 : sums.back()));
    }
  }
  const double rest = sums.empty() ? 0 : sums.back();
  for (std::int64_t k = 0; k < s.kept; ++k) {
    float scale = 1;
    if (k >= winners) {
      const double draw = rest * unit_of(seed, static_cast<std::uint64_t>(k));
      const auto place = std::min(std::ranges::upper_bound(sums, draw) - sums.begin(), std::ssize(sums) - 1);
      numbers[k] = others[static_cast<std::size_t>(place)];
      const double norm = norms[numbers[k]];
      scale = norm > 0 ? static_cast<float>(rest / (static_cast<double>(drawn) * norm)) : 0.0F;
    }
    for (std::int64_t c = 0; c < s.columns; ++c) values[k * s.columns + c] = scale * x[numbers[k] * s.columns + c];
  }
}

void sampled_product(const std::int64_t* numbers, const float* values, const SampleSizes& s, const float* dy,
                     std::int64_t inputs, std::int64_t outputs, float* product) {
  std::fill_n(product, inputs * outputs, 0.0F);
  for (std::int64_t k = 0; k < s.kept; ++k) {
    for (std::int64_t i = 0; i < inputs; ++i) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        product[i * outputs + o] += values[k * s.columns + i] * dy[numbers[k] * outputs + o];
      }
    }
  }
}

void project_rows(const float* x, const SampleSizes& s, std::uint64_t seed, float* values) {
  for (std::int64_t k = 0; k < s.kept; ++k) add_up(x, s.columns, s, seed, k, values + k * s.columns);
}

void projected_product(std::uint64_t seed, const float* values, const SampleSizes& s, const float* dy,
                       std::int64_t inputs, std::int64_t outputs, float* product) {
  std::fill_n(product, inputs * outputs, 0.0F);
  std::vector<float> sum(static_cast<std::size_t>(outputs));
  for (std::int64_t k = 0; k < s.kept; ++k) {
    add_up(dy, outputs, s, seed, k, sum.data());
    for (std::int64_t i = 0; i < inputs; ++i) {
      const float value = values[k * s.columns + i];
      for (std::int64_t o = 0; o < outputs; ++o) product[i * outputs + o] += value * sum[static_cast<std::size_t>(o)];
    }
  }
}

}  // namespace plimsoll::plain
