#pragma once
// Adam whose two states are kept in 8 bits a number: blocks of 256 numbers share a scale, and a code is the place of a
// number in a table of 256.
// Source: Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022, with its dynamic tree table.

#include <array>
#include <cstdint>

#include "validate/networks/update_step.h"

namespace plimsoll::plain {

inline constexpr std::int64_t numbers_of_block = 256;

/// Ascending; of numbers from -1 to 1, or from 0 to 1.
std::array<float, 256> dynamic_table(bool with_sign);

/// Bytes of one state: a scale for each block, then a code for each number.
std::int64_t bytes_of_8_bit_state(std::int64_t numbers);

/// m and v are states of `bytes_of_8_bit_state`.
void adam_in_8_bits(float* w, const float* g, unsigned char* m, unsigned char* v, std::int64_t n,
                    const UpdateStep& = {});

}  // namespace plimsoll::plain
