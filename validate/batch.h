#pragma once
// What one step of training reads, and how well the network did on it.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

/// By micro-batch: the network's input, and the label of each row of the loss. No labels: each row's is its number
/// modulo the number of classes.
struct Batch {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::int32_t>> labels;
};

/// Sums over rows.
struct Score {
  double loss = 0;         ///< -log of the probability of the row's label
  std::int64_t right = 0;  ///< rows whose label is the most probable
  std::int64_t rows = 0;

  Score& operator+=(const Score& other) {
    loss += other.loss;
    right += other.right;
    rows += other.rows;
    return *this;
  }
};

/// Of probabilities (rows, classes). One that is 0 in fp32 counts as the smallest that is not.
Score score_of(const float* probabilities, std::int64_t rows, std::int64_t classes, const std::int32_t* labels);

}  // namespace plimsoll
