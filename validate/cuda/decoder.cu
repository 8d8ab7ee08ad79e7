// Rotation by positions and the gate of an MLP: what validate/reference/decoder_layers.cpp does.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {

/// A thread a pair of the first part; of the other parts a thread copies as many pairs.
void rotate(const float* x, const RotationSizes& s, bool back, float* y, cudaStream_t stream) {
  for_each(s.batch * s.sequence * s.columns / 2, stream, [=] __device__(std::int64_t i) {
    const std::int64_t half = s.half(), d = i % half, part = i / half, place = 2 * half * part + d;
    if (part % s.parts == 0)
      return PairRotation(s, part / (s.columns / s.size) % s.sequence, d, back).turn(x + place, y + place, half);
    y[place] = x[place];
    y[place + half] = x[place + half];
  });
}

void gated_silu(const float* gate, const float* up, float* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) { y[i] = plimsoll::gated_silu(gate[i], up[i]); });
}

void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup, std::int64_t n,
                         cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) {
    const GateGradients of(gate[i], up[i], dy[i]);
    dgate[i] = of.of_gate;
    dup[i] = of.of_up;
  });
}

}  // namespace plimsoll::launch
