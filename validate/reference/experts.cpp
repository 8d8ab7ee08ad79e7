#include "validate/reference/experts.h"

#include <algorithm>
#include <charconv>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/network.h"

namespace plimsoll {

namespace {

/// Nothing is added where the op does not say how much.
float balance_of(const Op& op) {
  const std::string_view text = attribute_of(op, balance_attribute).value_or("0");
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECTS(error == std::errc{} && end == text.data() + text.size());
  return value;
}

}  // namespace

ExpertSizes::ExpertSizes(const Tensor& chances, const Tensor& rows, const Op& op)
    : tokens(chances.bytes.count / 4 / chances.shape.back()),
      experts(chances.shape.back()),
      room(rows.shape[1]),
      top(whole_attribute(op, "top")),
      width(rows.shape[2]),
      balance(balance_of(op)) {}

}  // namespace plimsoll

namespace plimsoll::plain {

void choose(const float* chances, const ExpertSizes& s, const ExpertChoice& c) {
  std::fill_n(c.choice, s.experts * s.room, -1);
  std::fill_n(c.count, s.experts, 0);
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    choose_experts(chances + token * s.experts, s, c.expert + token * s.top);
    for (std::int64_t choice = token * s.top; choice < (token + 1) * s.top; ++choice) {
      std::int32_t& rows = c.count[c.expert[choice]];
      c.place[choice] = rows < s.room ? rows : -1;
      ++rows;
      if (c.place[choice] >= 0)
        c.choice[c.expert[choice] * s.room + c.place[choice]] = static_cast<std::int32_t>(choice);
    }
  }
}

}  // namespace plimsoll::plain
