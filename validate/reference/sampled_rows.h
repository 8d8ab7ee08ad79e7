#pragma once
// A product summed over rows, taken over some of them (winner-take-all column-row sampling) or over random sums of
// them, in plain loops.

#include <cstdint>

#include "sim/core/codec.h"

namespace plimsoll {

/// A matrix, of whose rows `kept` stay, or so many sums of all.
struct SampleSizes {
  std::int64_t rows, columns, kept;
  Projection sums = Projection::rademacher;
};

namespace plain {

/// Half of the kept rows, rounded up, are those with the largest norms, of equal ones the first, in the matrix's order;
/// behind them lie those that are drawn among the rest with chances as their norms, with repetition, and scaled so that
/// the mean over draws is the sum over all. `norms`: room for one a row.
void sample_rows(const float* x, const SampleSizes&, std::uint64_t seed, float* norms, std::int64_t* numbers,
                 float* values);

/// values^T dy over the sampled rows, of a dy with all rows and `outputs` columns; the first `inputs` columns of the
/// values.
void sampled_product(const std::int64_t* numbers, const float* values, const SampleSizes&, const float* dy,
                     std::int64_t inputs, std::int64_t outputs, float* product);

/// What row r is multiplied by in sum number k. Of a cosine transform, whose row is drawn for the whole sum, the root
/// of the number of rows times its number there: the mean square of each is 1.
float number_in_sum(const SampleSizes&, std::uint64_t seed, std::int64_t k, std::int64_t r);

/// `kept` sums of all rows, each times its number, over the root of `kept`: the mean over seeds of values^T values is
/// x^T x.
void project_rows(const float* x, const SampleSizes&, std::uint64_t seed, float* values);

/// values^T (the same sums of the rows of dy).
void projected_product(std::uint64_t seed, const float* values, const SampleSizes&, const float* dy,
                       std::int64_t inputs, std::int64_t outputs, float* product);

}  // namespace plain
}  // namespace plimsoll
