#include "validate/networks/probe_values.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace plimsoll {
namespace {

/// Sign, exponent and mantissa side by side, as all three formats have them.
struct NumberBits {
  std::uint32_t bytes, mantissa_bits, exponent_bits;
  std::uint32_t sixteenth;  ///< the exponent of 1/16
};

constexpr NumberBits bits_of(NumberFormat format) {
  switch (format) {
    case NumberFormat::bf16:
      return {2, 7, 8, 123};
    case NumberFormat::fp16:
      return {2, 10, 5, 11};
    case NumberFormat::fp32:
      break;
  }
  return {4, 23, 8, 123};
}

}  // namespace

std::vector<std::byte> probe_values(Bytes bytes, NumberFormat format, Signs signs) {
  constexpr std::size_t period = std::size_t{1} << 20U;
  const NumberBits layout = bits_of(format);
  std::mt19937 random(20261122);
  std::vector<std::byte> values(static_cast<std::size_t>(bytes.count));
  const std::size_t tile = std::min(values.size(), period);
  for (std::size_t at = 0; at + layout.bytes <= tile; at += layout.bytes) {
    const auto drawn = static_cast<std::uint32_t>(random());
    const std::uint32_t mantissa = drawn >> (32 - layout.mantissa_bits), exponent = layout.sixteenth + (drawn & 3);
    const std::uint32_t sign = signs == Signs::both ? (drawn >> 2U) & 1U : 0;
    const std::uint32_t bits =
        mantissa | exponent << layout.mantissa_bits | sign << (layout.mantissa_bits + layout.exponent_bits);
    std::memcpy(values.data() + at, &bits, layout.bytes);  // the lowest bytes: this machine is little-endian
  }
  for (std::size_t at = tile; at < values.size(); at += tile) {
    std::memcpy(values.data() + at, values.data(), std::min(tile, values.size() - at));
  }
  return values;
}

}  // namespace plimsoll
