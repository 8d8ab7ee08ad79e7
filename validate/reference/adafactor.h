#pragma once
// Adafactor as PyTorch's program has it, at the first step of training: of a matrix's squared gradients only the means
// of its rows and columns are kept.
// Source: Shazeer, Stern, "Adafactor", ICML 2018; torch.optim.Adafactor for where its epsilons are and what matrices
// of a tensor of more dimensions are.

#include <cstdint>

namespace plimsoll::plain {

/// The last two dimensions of a tensor, and how many such matrices it has.
struct Matrices {
  std::int64_t count, rows, columns;
};

/// row_variances is (count, rows), column_variances (count, columns), `scratch` as large as w. `momentum`, as large as
/// w, may be null.
void adafactor(float* w, const float* g, float* row_variances, float* column_variances, float* momentum, Matrices,
               float* scratch);

/// Of a tensor of one dimension: nothing is factored.
void adafactor(float* w, const float* g, float* variances, float* momentum, std::int64_t n, float* scratch);

}  // namespace plimsoll::plain
