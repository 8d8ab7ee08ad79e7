#include "validate/reference/sparse_forms.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "validate/reference/bit_stream.h"

namespace plimsoll::plain {
namespace {

bool is_set(const std::uint8_t* mask, std::int64_t i) {
  return ((mask[i / 8] >> (i % 8)) & 1U) != 0;
}

/// Rows and columns of a block that are in the matrix.
struct Corner {
  std::int64_t top, left, bottom, right;
};

Corner corner_of(const SparseSizes& s, std::int64_t i, std::int64_t j) {
  return {i * s.block, j * s.block, std::min((i + 1) * s.block, s.rows), std::min((j + 1) * s.block, s.columns)};
}

float square_sum(const float* x, const SparseSizes& s, std::int64_t i, std::int64_t j) {
  const Corner corner = corner_of(s, i, j);
  float sum = 0;
  for (std::int64_t r = corner.top; r < corner.bottom; ++r) {
    for (std::int64_t c = corner.left; c < corner.right; ++c) sum += x[r * s.columns + c] * x[r * s.columns + c];
  }
  return sum >= 0 ? sum : std::numeric_limits<float>::infinity();  // what is no number is not taken for 0
}

}  // namespace

void sign_mask(const float* y, std::int64_t numbers, int bits, std::uint8_t* mask) {
  if (bits == 8) {
    for (std::int64_t i = 0; i < numbers; ++i) mask[i] = y[i] > 0 ? 1 : 0;
    return;
  }
  std::fill_n(mask, (numbers + 7) / 8, std::uint8_t{0});
  for (std::int64_t i = 0; i < numbers; ++i) {
    mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | (y[i] > 0 ? 1 : 0) << (i % 8));
  }
}

void relu_gradient(const std::uint8_t* mask, int bits, const float* dy, std::int64_t numbers, float* dx) {
  for (std::int64_t i = 0; i < numbers; ++i) {
    const bool passes = bits == 8 ? mask[i] != 0 : is_set(mask, i);
    dx[i] = chosen(passes, dy[i], 0.0F * dy[i]);
  }
}

std::int64_t without_zeros(const float* x, std::int64_t numbers, std::int64_t reserved, float* values,
                           std::uint8_t* mask) {
  std::int64_t count = 0;
  BitWriter writer(mask);
  for (std::int64_t i = 0; i < numbers; ++i) {
    const std::uint32_t is_there = std::bit_cast<std::uint32_t>(x[i]) == 0 ? 0U : 1U;
    writer.put(is_there, 1);
    if (count < reserved) values[count] = x[i];  // the next value takes the place of a zero
    count += is_there;
  }
  writer.end();
  return count;
}

void with_zeros(const float* values, const std::uint8_t* mask, std::int64_t numbers, float* x) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < numbers; ++i) {
    count += is_set(mask, i) ? 1 : 0;
    // Where there is none, that of the one before is read.
    x[i] = chosen(is_set(mask, i), values[std::max<std::int64_t>(count - 1, 0)], 0.0F);
  }
}

void largest_blocks(const float* x, const SparseSizes& s, float* norms, const BlockRows& sparse) {
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < s.block_rows(); ++i) {
    for (std::int64_t j = 0; j < s.block_columns(); ++j) norms[next++] = square_sum(x, s, i, j);
  }
  // The least norm that stays; how many of the blocks that have it do, is what the larger ones leave.
  const std::int64_t last = std::max<std::int64_t>(s.kept - 1, 0);
  std::nth_element(norms, norms + last, norms + s.blocks(), std::greater<>{});
  const float least = norms[last];
  std::int64_t of_least = s.kept - std::count_if(norms, norms + last, [&](float norm) { return norm > least; });
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < s.block_rows(); ++i) {
    sparse.first[i] = static_cast<std::int32_t>(kept);
    for (std::int64_t j = 0; j < s.block_columns(); ++j) {
      const float norm = square_sum(x, s, i, j);
      if (kept == s.kept || norm < least || (norm == least && of_least-- <= 0)) continue;
      sparse.column[kept] = static_cast<std::int32_t>(j);
      const Corner corner = corner_of(s, i, j);
      float* values = sparse.values + kept * s.block * s.block;
      std::fill_n(values, s.block * s.block, 0.0F);
      for (std::int64_t r = corner.top; r < corner.bottom; ++r) {
        std::copy(x + r * s.columns + corner.left, x + r * s.columns + corner.right,
                  values + (r - corner.top) * s.block);
      }
      ++kept;
    }
  }
  sparse.first[s.block_rows()] = static_cast<std::int32_t>(kept);
}

void with_zero_blocks(const std::int32_t* first, const std::int32_t* column, const float* values, const SparseSizes& s,
                      float* x) {
  std::fill_n(x, s.rows * s.columns, 0.0F);
  for (std::int64_t i = 0; i < s.block_rows(); ++i) {
    for (std::int64_t k = first[i]; k < first[i + 1]; ++k) {
      const Corner corner = corner_of(s, i, column[k]);
      const float* block = values + k * s.block * s.block;
      for (std::int64_t r = corner.top; r < corner.bottom; ++r) {
        std::copy_n(block + (r - corner.top) * s.block, corner.right - corner.left, x + r * s.columns + corner.left);
      }
    }
  }
}

void block_product(const std::int32_t* first, const std::int32_t* column, const float* values, const SparseSizes& s,
                   const float* dy, std::int64_t inputs, std::int64_t outputs, float* product) {
  std::fill_n(product, inputs * outputs, 0.0F);
  for (std::int64_t i = 0; i < s.block_rows(); ++i) {
    for (std::int64_t k = first[i]; k < first[i + 1]; ++k) {
      const Corner corner = corner_of(s, i, column[k]);
      const float* block = values + k * s.block * s.block;
      for (std::int64_t r = corner.top; r < corner.bottom; ++r) {
        for (std::int64_t c = corner.left; c < std::min(corner.right, inputs); ++c) {
          const float value = block[(r - corner.top) * s.block + c - corner.left];
          for (std::int64_t o = 0; o < outputs; ++o) product[c * outputs + o] += value * dy[r * outputs + o];
        }
      }
    }
  }
}

}  // namespace plimsoll::plain
