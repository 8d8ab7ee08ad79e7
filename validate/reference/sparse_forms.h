#pragma once
// Packed forms that say which values are there, in plain loops: masks of signs, values without zeros, block sparse
// rows.

#include <cstdint>

namespace plimsoll {

/// A matrix in blocks of `block` x `block` numbers, of which `kept` stay; those at the right and lower edge are filled
/// up with zeros.
struct SparseSizes {
  std::int64_t rows, columns, block, kept;

  std::int64_t block_rows() const { return (rows + block - 1) / block; }
  std::int64_t block_columns() const { return (columns + block - 1) / block; }
  std::int64_t blocks() const { return block_rows() * block_columns(); }
};

/// Block sparse rows: those of block row i are `first[i]` to `first[i + 1]`, each with its column of blocks.
struct BlockRows {
  std::int32_t* first;   ///< block_rows() + 1
  std::int32_t* column;  ///< kept
  float* values;         ///< kept x block x block
};

namespace plain {

/// `bits`: 1, from a byte's low bit up, or 8. Set where a value is above 0.
void sign_mask(const float* y, std::int64_t numbers, int bits, std::uint8_t* mask);
/// `dy` where the mask is set, else 0 with the sign of `dy`: to the bit what a product with 1 or 0 gives.
void relu_gradient(const std::uint8_t* mask, int bits, const float* dy, std::int64_t numbers, float* dx);

/// A bit for each value, set where it is not +0, and those values in their order, `reserved` of them at most. Returns
/// how many there are, also where they are more.
std::int64_t without_zeros(const float* x, std::int64_t numbers, std::int64_t reserved, float* values,
                           std::uint8_t* mask);
void with_zeros(const float* values, const std::uint8_t* mask, std::int64_t numbers, float* x);

/// The `kept` blocks with the largest sums of squares; of equal ones the first. `norms`: room for one a block.
void largest_blocks(const float* x, const SparseSizes&, float* norms, const BlockRows&);
void with_zero_blocks(const std::int32_t* first, const std::int32_t* column, const float* values, const SparseSizes&,
                      float* x);
/// blocks^T dy, of a dy with all rows and `outputs` columns; the first `inputs` columns of the blocks' matrix.
void block_product(const std::int32_t* first, const std::int32_t* column, const float* values, const SparseSizes&,
                   const float* dy, std::int64_t inputs, std::int64_t outputs, float* product);

}  // namespace plain
}  // namespace plimsoll
