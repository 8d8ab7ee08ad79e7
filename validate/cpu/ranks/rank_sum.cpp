#include "validate/cpu/ranks/rank_sum.h"

#include <cstring>

#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

float* numbers(std::byte* address) {
  return static_cast<float*>(static_cast<void*>(address));
}

const float* numbers(const std::byte* address) {
  return static_cast<const float*>(static_cast<const void*>(address));
}

}  // namespace

void add_numbers(std::byte* to, const std::byte* from, Bytes bytes) {
  plain::accumulate(numbers(to), numbers(from), bytes.count / 4);
}

void sum_ranks(const std::vector<std::byte*>& ranks, Bytes bytes) {
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    add_numbers(ranks[0], ranks[r], bytes);
  }
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    std::memcpy(ranks[r], ranks[0], static_cast<std::size_t>(bytes.count));
  }
}

}  // namespace plimsoll
