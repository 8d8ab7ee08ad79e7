#pragma once
// What the tables of rotor's family have in common: times that cannot be, units of memory, sizes of the work,
// wide vectors.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "strategies/models/chain_model.h"

// PLIMSOLL_VECTOR_CLONES before a function: clones for wider vectors, chosen when the program starts. Products are
// never contracted into sums here, so all clones give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLIMSOLL_VECTOR_CLONES
#endif

namespace plimsoll {

inline constexpr double infinite_double = std::numeric_limits<double>::infinity();
inline constexpr float infinite_float = std::numeric_limits<float>::infinity();

/// Rows (i, .) are read while they are in the cache by this many rows (i, l).
inline constexpr std::size_t last_stages_at_once = 8;
/// Cells of a table that are allocated at once.
inline constexpr std::size_t cells_a_block = std::size_t{1} << 18;

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

/// The largest unit in which every size of the chain is a whole number.
inline std::int64_t common_divisor(const ChainModel& model) {
  std::int64_t divisor = 0;
  for (const auto* sizes : {&model.x, &model.saved, &model.input_gradient, &model.forward_workspace,
                            &model.nograd_workspace, &model.backward_workspace, &model.new_gradients}) {
    for (const Bytes bytes : *sizes) divisor = std::gcd(divisor, bytes.count);
  }
  return std::max<std::int64_t>(divisor, 1);
}

}  // namespace plimsoll
