#include "validate/reference/adam_in_8_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "validate/reference/formulas.h"

namespace plimsoll::plain {
namespace {

/// One block of a state, as numbers.
class StateBlock {
 public:
  StateBlock(const std::array<float, 256>& table, unsigned char* state, std::int64_t blocks, std::int64_t block)
      : table_(table),
        scale_(state + block * static_cast<std::int64_t>(sizeof(float))),
        codes_(state + blocks * static_cast<std::int64_t>(sizeof(float)) + block * numbers_of_block) {
    std::memcpy(&scale_of_block_, scale_, sizeof scale_of_block_);
  }

  float number(std::int64_t i) const { return scale_of_block_ * table_[codes_[i]]; }

  /// The largest becomes 1, and each number the nearest of the table.
  void keep(const std::vector<float>& numbers) {
    scale_of_block_ = 0;
    for (const float x : numbers) scale_of_block_ = std::max(scale_of_block_, std::abs(x));
    std::memcpy(scale_, &scale_of_block_, sizeof scale_of_block_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      codes_[i] = code_of(scale_of_block_ > 0 ? numbers[i] / scale_of_block_ : 0);
    }
  }

 private:
  /// Of two that are as near, the smaller one.
  unsigned char code_of(float x) const {
    const auto* above = std::ranges::lower_bound(table_, x);
    if (above == table_.begin()) return 0;
    if (above == table_.end()) return 255;
    const auto at = static_cast<std::size_t>(above - table_.begin());
    return static_cast<unsigned char>(x - table_[at - 1] <= table_[at] - x ? at - 1 : at);
  }

  const std::array<float, 256>& table_;
  unsigned char *scale_, *codes_;
  float scale_of_block_ = 0;
};

}  // namespace

// Decade e from 0.1^6 to 1 is cut into 2^e parts (twice as many without a sign), whose middles are in the table, with
// both signs; 0 and 1 complete it.
std::array<float, 256> dynamic_table(bool with_sign) {
  std::array<float, 256> table{};
  std::size_t next = 0;
  double decade = 1e-6;
  for (int e = 0; e < 7; ++e, decade *= 10) {
    const int parts = (with_sign ? 1 : 2) << e;
    for (int p = 0; p < parts; ++p) {
      const auto middle = static_cast<float>(decade * (0.1 + 0.9 * (p + 0.5) / parts));
      table[next++] = middle;
      if (with_sign) table[next++] = -middle;
    }
  }
  table[next++] = 0;
  table[next++] = 1;
  std::ranges::sort(table);
  return table;
}

std::int64_t bytes_of_8_bit_state(std::int64_t numbers) {
  const std::int64_t blocks = (numbers + numbers_of_block - 1) / numbers_of_block;
  return numbers + blocks * static_cast<std::int64_t>(sizeof(float));
}

void adam_in_8_bits(float* w, const float* g, unsigned char* m, unsigned char* v, std::int64_t n,
                    const UpdateStep& step) {
  static const std::array<float, 256> with_sign = dynamic_table(true), without_sign = dynamic_table(false);
  const std::int64_t blocks = (n + numbers_of_block - 1) / numbers_of_block;
  std::vector<float> new_m, new_v;
  for (std::int64_t b = 0; b < blocks; ++b) {
    StateBlock block_m(with_sign, m, blocks, b), block_v(without_sign, v, blocks, b);
    const std::int64_t first = b * numbers_of_block, size = std::min(numbers_of_block, n - first);
    new_m.resize(static_cast<std::size_t>(size));
    new_v.resize(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      float& m_i = new_m[static_cast<std::size_t>(i)];
      float& v_i = new_v[static_cast<std::size_t>(i)];
      m_i = block_m.number(i);
      v_i = block_v.number(i);
      adam_update(w[first + i], g[first + i], m_i, v_i, step);
    }
    block_m.keep(new_m);
    block_v.keep(new_v);
  }
}

}  // namespace plimsoll::plain
