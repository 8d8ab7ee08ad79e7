#pragma once
// A product summed over rows, taken over some of them (winner-take-all column-row sampling) or over random sums of
// them, in plain loops.

#include <cstdint>

namespace plimsoll {

/// A matrix, of whose rows `kept` stay.
struct SampleSizes {
  std::int64_t rows, columns, kept;
};

namespace plain {

/// Half of the kept rows, rounded up, are those with the largest norms, of equal ones the first; the others are drawn
/// among the rest with chances as their norms, with repetition, and scaled so that the mean over draws is the sum over
/// all. `norms`: room for one a row.
void sample_rows(const float* x, const SampleSizes&, std::uint64_t seed, float* norms, std::int64_t* numbers,
                 float* values);

/// values^T dy over the sampled rows, of a dy with all rows and `outputs` columns; the first `inputs` columns of the
/// values.
void sampled_product(const std::int64_t* numbers, const float* values, const SampleSizes&, const float* dy,
                     std::int64_t inputs, std::int64_t outputs, float* product);

/// `kept` sums of all rows, each with a random sign, over the root of `kept`: the mean over seeds of values^T values is
/// x^T x.
void project_rows(const float* x, const SampleSizes&, std::uint64_t seed, float* values);

/// values^T (the same sums of the rows of dy).
void projected_product(std::uint64_t seed, const float* values, const SampleSizes&, const float* dy,
                       std::int64_t inputs, std::int64_t outputs, float* product);

}  // namespace plain
}  // namespace plimsoll
