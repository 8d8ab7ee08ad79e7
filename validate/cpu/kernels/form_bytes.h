#pragma once
// What packed forms are made of: numbers of four bytes, read and written where they lie.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "sim/core/codec.h"
#include "sim/core/graph.h"

namespace plimsoll {

constexpr std::int64_t bytes_of_number = 4;

inline std::int64_t numbers_of(const Tensor& tensor) {
  return tensor.bytes.count / bytes_of_number;
}

/// Room for values that a codec keeps, of which there may be fewer.
inline std::int64_t reserved_values(const Codec& codec, const Tensor& tensor) {
  return static_cast<std::int64_t>(std::ceil(codec.keep * static_cast<double>(numbers_of(tensor))));
}

template <class T>
T* as(std::byte* bytes) {
  return static_cast<T*>(static_cast<void*>(bytes));
}
template <class T>
const T* as(const std::byte* bytes) {
  return static_cast<const T*>(static_cast<const void*>(bytes));
}

}  // namespace plimsoll
