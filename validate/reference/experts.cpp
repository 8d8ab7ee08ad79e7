#include "validate/reference/experts.h"

#include <algorithm>
#include <vector>

namespace plimsoll {

ExpertSizes::ExpertSizes(const Tensor& chances, const Tensor& rows, std::int64_t chosen)
    : tokens(chances.bytes.count / 4 / chances.shape.back()),
      experts(chances.shape.back()),
      room(rows.shape[1]),
      top(chosen),
      width(rows.shape[2]) {}

}  // namespace plimsoll

namespace plimsoll::plain {

void choose(const float* chances, const ExpertSizes& s, const ExpertChoice& c) {
  std::fill_n(c.choice, s.experts * s.room, -1);
  std::vector<std::int32_t> taken(static_cast<std::size_t>(s.experts), 0);
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    choose_experts(chances + token * s.experts, s, c.expert + token * s.top);
    for (std::int64_t choice = token * s.top; choice < (token + 1) * s.top; ++choice) {
      std::int32_t& rows = taken[static_cast<std::size_t>(c.expert[choice])];
      c.place[choice] = rows < s.room ? rows++ : -1;
      if (c.place[choice] >= 0)
        c.choice[c.expert[choice] * s.room + c.place[choice]] = static_cast<std::int32_t>(choice);
    }
  }
}

}  // namespace plimsoll::plain
