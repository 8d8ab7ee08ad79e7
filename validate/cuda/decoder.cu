// Rotation by positions and the gate of an MLP: what validate/reference/decoder_layers.cpp does.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {

/// A thread a pair of the first part; of the other parts a thread copies as many pairs.
template <class Number>
void rotate(const Number* x, const RotationSizes& s, bool back, Number* y, cudaStream_t stream) {
  for_each(s.batch * s.sequence * s.columns / 2, stream, [=] __device__(std::int64_t i) {
    const std::int64_t half = s.half(), d = i % half, part = i / half, place = 2 * half * part + d;
    if (part % s.parts == 0)
      return PairRotation(s, part / (s.columns / s.size) % s.sequence, d, back).turn(x + place, y + place, half);
    y[place] = x[place];
    y[place + half] = x[place + half];
  });
}
template void rotate(const float*, const RotationSizes&, bool, float*, cudaStream_t);
template void rotate(const Bf16*, const RotationSizes&, bool, Bf16*, cudaStream_t);

template <class Number>
void gated_silu(const Number* gate, const Number* up, Number* y, std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) {
    y[i] = stored_as<Number>(plimsoll::gated_silu(as_float(gate[i]), as_float(up[i])));
  });
}
template void gated_silu(const float*, const float*, float*, std::int64_t, cudaStream_t);
template void gated_silu(const Bf16*, const Bf16*, Bf16*, std::int64_t, cudaStream_t);

template <class Number>
void gated_silu_gradient(const Number* gate, const Number* up, const Number* dy, Number* dgate, Number* dup,
                         std::int64_t n, cudaStream_t stream) {
  for_each(n, stream, [=] __device__(std::int64_t i) {
    const GateGradients of(as_float(gate[i]), as_float(up[i]), as_float(dy[i]));
    dgate[i] = stored_as<Number>(of.of_gate);
    dup[i] = stored_as<Number>(of.of_up);
  });
}
template void gated_silu_gradient(const float*, const float*, const float*, float*, float*, std::int64_t, cudaStream_t);
template void gated_silu_gradient(const Bf16*, const Bf16*, const Bf16*, Bf16*, Bf16*, std::int64_t, cudaStream_t);

}  // namespace plimsoll::launch
