#pragma once
// A mixture of experts: which of them a token goes to, its row there and back. Every expert has room for so many rows;
// tokens come in their order, and one that finds no room is left out there.
// Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017;
// Fedus et al., "Switch Transformers", 2021 (room, order of tokens); shares of the chosen sum to one as in Jiang et
// al., "Mixtral of Experts", 2024.

#include <cstdint>

#include "sim/core/graph.h"
#include "validate/networks/packing.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

/// chances are (tokens, experts), rows of experts (experts, room, width), rows of tokens (tokens, width).
struct ExpertSizes {
  std::int64_t tokens, experts, room, top, width;
  float balance = 0;  ///< of the loss for unequal numbers of tokens, in a gradient of chances

  ExpertSizes(const Tensor& chances, const Tensor& rows, const Op&);

  PLIMSOLL_ON_BOTH std::int64_t choices() const { return tokens * top; }
  /// Of an `ExpertChoice`.
  std::int64_t scratch() const { return 4 * (2 * choices() + experts * room + experts); }
};

/// Found anew from the chances by whoever needs it, in its scratch.
struct ExpertChoice {
  std::int32_t* expert;  ///< of token t's choice k: number t top + k
  std::int32_t* place;   ///< its row at the expert; -1: it found no room
  std::int32_t* choice;  ///< of each expert's row; -1: it is empty
  std::int32_t* count;   ///< of each expert, those without room too

  ExpertChoice(void* scratch, const ExpertSizes& s)
      : expert(static_cast<std::int32_t*>(scratch)),
        place(expert + s.choices()),
        choice(place + s.choices()),
        count(choice + s.experts * s.room) {}

  /// Where a choice's row begins; -1: there is none.
  PLIMSOLL_ON_BOTH std::int64_t row(const ExpertSizes& s, std::int64_t of) const {
    return place[of] < 0 ? -1 : (expert[of] * s.room + place[of]) * s.width;
  }
};

/// The likeliest experts of a token, the likelier first, of equal ones the first.
PLIMSOLL_ON_BOTH inline void choose_experts(const float* chances, const ExpertSizes& s, std::int32_t* chosen) {
  for (std::int64_t k = 0; k < s.top; ++k) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < s.experts; ++e) {
      bool is_taken = false;
      for (std::int64_t j = 0; j < k; ++j) is_taken = is_taken || chosen[j] == e;
      if (!is_taken && (best < 0 || chances[e] > chances[best])) best = e;
    }
    chosen[k] = best;
  }
}

/// A choice's part in what its token becomes: its chance among the chosen.
PLIMSOLL_ON_BOTH inline float share_of_choice(const float* chances, const ExpertSizes& s, const std::int32_t* expert,
                                              std::int64_t of) {
  const std::int64_t token = of / s.top;
  float sum = 0;
  for (std::int64_t k = 0; k < s.top; ++k) sum += chances[token * s.experts + expert[token * s.top + k]];
  return chances[token * s.experts + expert[of]] / sum;
}

/// Number i of the rows of experts.
template <class Number>
PLIMSOLL_ON_BOTH inline float sent_to_expert(const ExpertSizes& s, const ExpertChoice& c, const Number* x,
                                             std::int64_t i) {
  const std::int32_t choice = c.choice[i / s.width];
  return choice < 0 ? 0 : as_float(x[choice / s.top * s.width + i % s.width]);
}

/// Number i of a token's gradient: the sum of what its rows have.
template <class Number>
PLIMSOLL_ON_BOTH inline float back_from_experts(const ExpertSizes& s, const ExpertChoice& c, const Number* dy,
                                                std::int64_t i) {
  float sum = 0;
  for (std::int64_t k = 0; k < s.top; ++k) {
    const std::int64_t row = c.row(s, i / s.width * s.top + k);
    if (row >= 0) sum += as_float(dy[row + i % s.width]);
  }
  return sum;
}

/// Number i of a token: its rows at experts by their shares.
template <class Number>
PLIMSOLL_ON_BOTH inline float mixed_of_experts(const ExpertSizes& s, const ExpertChoice& c, const Number* rows,
                                               const float* chances, std::int64_t i) {
  float sum = 0;
  for (std::int64_t k = 0; k < s.top; ++k) {
    const std::int64_t choice = i / s.width * s.top + k, row = c.row(s, choice);
    if (row >= 0) sum += share_of_choice(chances, s, c.expert, choice) * as_float(rows[row + i % s.width]);
  }
  return sum;
}

/// Number i of the gradient of the rows of experts.
template <class Number>
PLIMSOLL_ON_BOTH inline float gradient_of_mixed(const ExpertSizes& s, const ExpertChoice& c, const Number* dy,
                                                const float* chances, std::int64_t i) {
  const std::int32_t choice = c.choice[i / s.width];
  if (choice < 0) return 0;
  return share_of_choice(chances, s, c.expert, choice) * as_float(dy[choice / s.top * s.width + i % s.width]);
}

/// Of a chance, by a loss of `balance` times experts times the sum over experts of the choices that fell on one, by
/// tokens, and the mean of its chances. Numbers of choices have no gradient.
/// Source: Fedus et al., "Switch Transformers", 2021, equations 4 to 6.
PLIMSOLL_ON_BOTH inline float gradient_of_balance(const ExpertSizes& s, const ExpertChoice& c, std::int64_t expert) {
  const auto tokens = static_cast<float>(s.tokens);
  return s.balance * static_cast<float>(s.experts) * (static_cast<float>(c.count[expert]) / tokens) / tokens;
}

/// Of a token's chances: through the shares, which sum to one; of those that were not chosen only what balances.
template <class Number>
PLIMSOLL_ON_BOTH inline void gradient_of_chances(const ExpertSizes& s, const ExpertChoice& c, const Number* dy,
                                                 const Number* rows, const float* chances, std::int64_t token,
                                                 float* dchances) {
  const auto of_share = [&](std::int64_t choice) {
    const std::int64_t row = c.row(s, choice);
    float dot = 0;
    for (std::int64_t j = 0; j < s.width && row >= 0; ++j)
      dot += as_float(dy[token * s.width + j]) * as_float(rows[row + j]);
    return dot;
  };
  const float* own = chances + token * s.experts;
  float* out = dchances + token * s.experts;
  float sum = 0, mean = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) out[e] = 0;
  for (std::int64_t choice = token * s.top; choice < (token + 1) * s.top; ++choice) {
    const float of = of_share(choice);
    out[c.expert[choice]] = of;
    sum += own[c.expert[choice]];
    mean += of * own[c.expert[choice]];
  }
  mean /= sum;
  for (std::int64_t choice = token * s.top; choice < (token + 1) * s.top; ++choice) {
    out[c.expert[choice]] = (out[c.expert[choice]] - mean) / sum;
  }
  for (std::int64_t e = 0; e < s.experts && s.balance > 0; ++e) out[e] += gradient_of_balance(s, c, e);
}

}  // namespace plimsoll

namespace plimsoll::plain {

/// Fills it in.
void choose(const float* chances, const ExpertSizes&, const ExpertChoice&);

}  // namespace plimsoll::plain
