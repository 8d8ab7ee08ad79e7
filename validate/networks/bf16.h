#pragma once
// Numbers of bfloat16: the upper half of a float's bits. Formulas are computed in fp32, results rounded once.

#include <cstdint>
#include <cstring>

// Functions of both processors: nvcc needs to be told, other compilers do not know the words.
#ifdef __CUDACC__
#define PLIMSOLL_ON_BOTH __host__ __device__
#else
#define PLIMSOLL_ON_BOTH
#endif

namespace plimsoll {

struct Bf16 {
  std::uint16_t bits;
};

PLIMSOLL_ON_BOTH inline float as_float(float x) {
  return x;
}

PLIMSOLL_ON_BOTH inline float as_float(Bf16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16U;
  float wide = 0;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/// To the nearest, of two as near the even one; beyond the largest infinity, and what is no number stays none.
PLIMSOLL_ON_BOTH inline Bf16 as_bf16(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
}

/// The number that a kernel stores for a result.
template <class Number>
PLIMSOLL_ON_BOTH inline Number stored_as(float);
template <>
PLIMSOLL_ON_BOTH inline float stored_as<float>(float x) {
  return x;
}
template <>
PLIMSOLL_ON_BOTH inline Bf16 stored_as<Bf16>(float x) {
  return as_bf16(x);
}

}  // namespace plimsoll
