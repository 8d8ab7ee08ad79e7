#pragma once
// What decoders as Llama's have beside attention and products: norm by the root of the mean square, rotation by
// positions, the gate of the MLP. Formulas of single numbers are shared with CUDA kernels; plain loops.

#include <cmath>
#include <cstdint>

#include "validate/networks/kernel_arguments.h"
#include "validate/reference/formulas.h"

namespace plimsoll {

/// x is (batch, sequence, heads x parts x size): the first part of each head is turned, the others stay. Number d of a
/// part's first half and number d of its second are a pair, which position t turns by t / base^(2 d / size).
/// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; pairs as Llama's in
/// Hugging Face's transformers.
struct RotationSizes {
  std::int64_t batch, sequence, columns, size, parts;
  float base;

  RotationSizes(const Tensor& x, const Op&);
  PLIMSOLL_ON_BOTH std::int64_t half() const { return size / 2; }
};

/// Of a pair at a position, there or (in the backward) back.
struct PairRotation {
  float cosine, sine;

  PLIMSOLL_ON_BOTH PairRotation(const RotationSizes& s, std::int64_t position, std::int64_t d, bool back)
      : cosine(1), sine(0) {
    const float share = static_cast<float>(2 * d) / static_cast<float>(s.size);
    const float angle = static_cast<float>(position) / std::pow(s.base, share);
    cosine = std::cos(angle);
    sine = back ? -std::sin(angle) : std::sin(angle);
  }

  template <class Number>
  PLIMSOLL_ON_BOTH void turn(const Number* x, Number* y, std::int64_t half) const {
    const float first = as_float(x[0]), second = as_float(x[half]);
    y[0] = stored_as<Number>(first * cosine - second * sine);
    y[half] = stored_as<Number>(second * cosine + first * sine);
  }
};

PLIMSOLL_ON_BOTH inline float gated_silu(float gate, float up) {
  return gate * sigmoid(gate) * up;
}

/// Of the gate, and of what it lets through.
struct GateGradients {
  float of_gate, of_up;

  PLIMSOLL_ON_BOTH GateGradients(float gate, float up, float dy) : of_gate(0), of_up(0) {
    const float open = sigmoid(gate);
    of_gate = dy * up * open * (1 + gate * (1 - open));
    of_up = dy * gate * open;
  }
};

}  // namespace plimsoll

namespace plimsoll::plain {

/// y = x / sqrt(mean of x^2 + epsilon) scale, by row.
/// Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
void root_norm(const float* x, const float* scale, RowSizes, float* y);
void root_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes, float* dx);
void root_norm_weight_gradient(const float* x, const float* dy, RowSizes, float* dscale);

void rotate(const float* x, const RotationSizes&, bool back, float* y);

void gated_silu(const float* gate, const float* up, float* y, std::int64_t n);
void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup, std::int64_t n);

}  // namespace plimsoll::plain
