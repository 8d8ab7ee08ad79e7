#pragma once
// Formulas of single numbers that plain loops and CUDA kernels share, so that each is written once.

#include <cmath>
#include <cstdint>

#include "validate/networks/bf16.h"
#include "validate/networks/update_step.h"

namespace plimsoll {

inline constexpr float norm_epsilon = 1e-5F, running_share = 0.1F, tiny = 1e-8F;

/// x times the normal distribution's share below x.
PLIMSOLL_ON_BOTH inline float gelu(float x) {
  return 0.5F * x * (1.0F + std::erf(x * 0.70710678F));
}

PLIMSOLL_ON_BOTH inline float gelu_slope(float x) {
  const float below = 0.5F * (1.0F + std::erf(x * 0.70710678F));
  return below + x * 0.39894228F * std::exp(-0.5F * x * x);  // 1 / sqrt(2 pi)
}

PLIMSOLL_ON_BOTH inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

/// One unit of an LSTM: its gates (input | forget | candidate | output, each `width` apart) and its new cell.
struct LstmUnit {
  float i, f, g, o, cell, squashed;

  template <class Number>
  PLIMSOLL_ON_BOTH LstmUnit(const Number* gates, std::int64_t width, std::int64_t j, float cell_before)
      : i(sigmoid(as_float(gates[j]))),
        f(sigmoid(as_float(gates[width + j]))),
        g(std::tanh(as_float(gates[2 * width + j]))),
        o(sigmoid(as_float(gates[3 * width + j]))),
        cell(f * cell_before + i * g),
        squashed(std::tanh(cell)) {}

  /// Gradient that reaches the new cell: its own and that through the new hidden state.
  PLIMSOLL_ON_BOTH float cell_gradient(float of_hidden, float of_cell) const {
    return of_cell + of_hidden * o * (1 - squashed * squashed);
  }
};

PLIMSOLL_ON_BOTH inline void sgd_update(float& w, float g, const UpdateStep& step = {}) {
  w -= step.rate * g;
}

PLIMSOLL_ON_BOTH inline void momentum_update(float& w, float g, float& v, const UpdateStep& step = {}) {
  v = first_decay * v + g;
  w -= step.rate * v;
}

// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + tiny) at step t.
// Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
PLIMSOLL_ON_BOTH inline void adam_update(float& w, float g, float& m, float& v, const UpdateStep& step = {}) {
  m = first_decay * m + (1 - first_decay) * g;
  v = second_decay * v + (1 - second_decay) * g * g;
  w -= step.rate * (m / step.first) / (std::sqrt(v / step.second) + tiny);
}

/// Windows of k x k with stride s over a picture with channels last, padded before so that ceil(size / s) come out.
struct PoolSizes {
  std::int64_t batch, height, width, channels, rows, columns;  ///< of the picture; `rows` x `columns` windows
  std::int64_t window = 3, stride = 2, before = 1;
};

/// Where in a picture the largest number of a window is; the first where several are. `i`, `j`: which window.
template <class Number>
PLIMSOLL_ON_BOTH inline std::int64_t largest_in_window(const Number* x, const PoolSizes& s, std::int64_t n,
                                                       std::int64_t i, std::int64_t j, std::int64_t c) {
  const std::int64_t above = i * s.stride - s.before, left_of = j * s.stride - s.before;
  const std::int64_t top = above > 0 ? above : 0, left = left_of > 0 ? left_of : 0;
  const std::int64_t bottom = above + s.window < s.height ? above + s.window : s.height;
  const std::int64_t right = left_of + s.window < s.width ? left_of + s.window : s.width;
  std::int64_t best = ((n * s.height + top) * s.width + left) * s.channels + c;
  for (std::int64_t h = top; h < bottom; ++h) {
    for (std::int64_t v = left; v < right; ++v) {
      const std::int64_t pixel = ((n * s.height + h) * s.width + v) * s.channels + c;
      if (as_float(x[pixel]) > as_float(x[best])) best = pixel;
    }
  }
  return best;
}

}  // namespace plimsoll
