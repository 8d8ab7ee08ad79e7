#pragma once
// How an update of parameters is made: its rate, and which step of training it belongs to.

#include <cmath>
#include <cstdint>

namespace plimsoll {

inline constexpr float learning_rate = 0.01F, first_decay = 0.9F, second_decay = 0.999F;

/// At the first step of training unless something else is said.
struct UpdateStep {
  float rate = learning_rate;
  float first = 1 - first_decay, second = 1 - second_decay;  ///< 1 - decay^t at step t: what running means lack of it
};

/// Of step t, from 1.
inline UpdateStep update_step(float rate, std::int64_t t) {
  const auto lack = [t](float decay) { return 1 - std::pow(decay, static_cast<float>(t)); };
  return {rate, lack(first_decay), lack(second_decay)};
}

}  // namespace plimsoll
