#include "validate/reference/decoder_layers.h"

#include <algorithm>

namespace plimsoll {

RotationSizes::RotationSizes(const Tensor& x, const Op& op)
    : batch(x.shape[0]),
      sequence(x.shape[1]),
      columns(x.shape[2]),
      size(whole_attribute(op, "head_size")),
      parts(whole_attribute(op, "parts")),
      base(static_cast<float>(whole_attribute(op, "base"))) {}

}  // namespace plimsoll

namespace plimsoll::plain {
namespace {

float inverse_root(const float* row, std::int64_t columns) {
  double squares = 0;
  for (std::int64_t c = 0; c < columns; ++c) squares += double{row[c]} * double{row[c]};
  return 1.0F / std::sqrt(static_cast<float>(squares / static_cast<double>(columns)) + norm_epsilon);
}

}  // namespace

void root_norm(const float* x, const float* scale, RowSizes s, float* y) {
  for (std::int64_t first = 0; first < s.rows * s.columns; first += s.columns) {
    const float inverse = inverse_root(x + first, s.columns);
    for (std::int64_t c = 0; c < s.columns; ++c) y[first + c] = x[first + c] * inverse * scale[c];
  }
}

/// dx = (g - normal x times the mean of (g normal x)) / root, with g = dy scale.
void root_norm_input_gradient(const float* x, const float* scale, const float* dy, RowSizes s, float* dx) {
  for (std::int64_t first = 0; first < s.rows * s.columns; first += s.columns) {
    const float inverse = inverse_root(x + first, s.columns);
    double dot = 0;
    for (std::int64_t c = 0; c < s.columns; ++c) dot += dy[first + c] * scale[c] * (x[first + c] * inverse);
    const auto mean = static_cast<float>(dot / static_cast<double>(s.columns));
    for (std::int64_t c = 0; c < s.columns; ++c) {
      dx[first + c] = inverse * (dy[first + c] * scale[c] - x[first + c] * inverse * mean);
    }
  }
}

void root_norm_weight_gradient(const float* x, const float* dy, RowSizes s, float* dscale) {
  std::fill_n(dscale, s.columns, 0.0F);
  for (std::int64_t first = 0; first < s.rows * s.columns; first += s.columns) {
    const float inverse = inverse_root(x + first, s.columns);
    for (std::int64_t c = 0; c < s.columns; ++c) dscale[c] += dy[first + c] * x[first + c] * inverse;
  }
}

void rotate(const float* x, const RotationSizes& s, bool back, float* y) {
  std::copy_n(x, s.batch * s.sequence * s.columns, y);
  for (std::int64_t t = 0; t < s.sequence; ++t) {
    for (std::int64_t d = 0; d < s.half(); ++d) {
      const PairRotation pair(s, t, d, back);
      for (std::int64_t b = 0; b < s.batch; ++b) {
        const std::int64_t row = (b * s.sequence + t) * s.columns;
        for (std::int64_t c = row + d; c < row + s.columns; c += s.parts * s.size) pair.turn(x + c, y + c, s.half());
      }
    }
  }
}

void gated_silu(const float* gate, const float* up, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = plimsoll::gated_silu(gate[i], up[i]);
}

void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                         std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const GateGradients of(gate[i], up[i], dy[i]);
    dgate[i] = of.of_gate;
    dup[i] = of.of_up;
  }
}

}  // namespace plimsoll::plain
