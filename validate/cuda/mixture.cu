// A mixture of experts: what validate/reference/experts.h says. No row's place depends on which thread is faster.

#include "validate/cuda/grid.cuh"
#include "validate/cuda/launch.h"

namespace plimsoll::launch {
namespace {

/// A block an expert: every thread counts its share of the choices, then gives them places behind those of the threads
/// before it.
__global__ void place_choices(ExpertSizes s, ExpertChoice c) {
  __shared__ std::int32_t counts[block_threads];
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t each = (s.choices() + block_threads - 1) / block_threads, first = threadIdx.x * each;
  const std::int64_t last = first + each < s.choices() ? first + each : s.choices();
  std::int32_t own = 0;
  for (std::int64_t i = first; i < last; ++i) own += c.expert[i] == expert ? 1 : 0;
  counts[threadIdx.x] = own;
  __syncthreads();
  std::int32_t place = 0, all = 0;
  for (unsigned t = 0; t < block_threads; ++t) {
    if (t < threadIdx.x) place += counts[t];
    all += counts[t];
  }
  for (std::int64_t i = first; i < last; ++i) {
    if (c.expert[i] != expert) continue;
    c.place[i] = place < s.room ? place : -1;
    if (place < s.room) c.choice[expert * s.room + place] = static_cast<std::int32_t>(i);
    ++place;
  }
  if (threadIdx.x == 0) c.count[expert] = all;
  for (std::int64_t row = all + threadIdx.x; row < s.room; row += block_threads) c.choice[expert * s.room + row] = -1;
}

}  // namespace

void choose(const float* chances, const ExpertSizes& s, const ExpertChoice& c, cudaStream_t stream) {
  for_each(s.tokens, stream,
           [=] __device__(std::int64_t t) { choose_experts(chances + t * s.experts, s, c.expert + t * s.top); });
  launch_blocks(place_choices, static_cast<unsigned>(s.experts), block_threads, stream, s, c);
}

template <class Number>
void send_to_experts(const ExpertSizes& s, const ExpertChoice& c, const Number* x, Number* rows, cudaStream_t stream) {
  for_each(s.experts * s.room * s.width, stream,
           [=] __device__(std::int64_t i) { rows[i] = stored_as<Number>(sent_to_expert(s, c, x, i)); });
}
template void send_to_experts(const ExpertSizes&, const ExpertChoice&, const float*, float*, cudaStream_t);
template void send_to_experts(const ExpertSizes&, const ExpertChoice&, const Bf16*, Bf16*, cudaStream_t);

template <class Number>
void bring_from_experts(const ExpertSizes& s, const ExpertChoice& c, const Number* drows, Number* dx,
                        cudaStream_t stream) {
  for_each(s.tokens * s.width, stream,
           [=] __device__(std::int64_t i) { dx[i] = stored_as<Number>(back_from_experts(s, c, drows, i)); });
}
template void bring_from_experts(const ExpertSizes&, const ExpertChoice&, const float*, float*, cudaStream_t);
template void bring_from_experts(const ExpertSizes&, const ExpertChoice&, const Bf16*, Bf16*, cudaStream_t);

template <class Number>
void mix_experts(const ExpertSizes& s, const ExpertChoice& c, const Number* rows, const float* chances, Number* y,
                 cudaStream_t stream) {
  for_each(s.tokens * s.width, stream,
           [=] __device__(std::int64_t i) { y[i] = stored_as<Number>(mixed_of_experts(s, c, rows, chances, i)); });
}
template void mix_experts(const ExpertSizes&, const ExpertChoice&, const float*, const float*, float*, cudaStream_t);
template void mix_experts(const ExpertSizes&, const ExpertChoice&, const Bf16*, const float*, Bf16*, cudaStream_t);

template <class Number>
void mix_experts_gradient(const ExpertSizes& s, const ExpertChoice& c, const Number* dy, const Number* rows,
                          const float* chances, Number* drows, float* dchances, cudaStream_t stream) {
  for_each(s.experts * s.room * s.width, stream,
           [=] __device__(std::int64_t i) { drows[i] = stored_as<Number>(gradient_of_mixed(s, c, dy, chances, i)); });
  for_each(s.tokens, stream,
           [=] __device__(std::int64_t t) { gradient_of_chances(s, c, dy, rows, chances, t, dchances); });
}
template void mix_experts_gradient(const ExpertSizes&, const ExpertChoice&, const float*, const float*, const float*,
                                   float*, float*, cudaStream_t);
template void mix_experts_gradient(const ExpertSizes&, const ExpertChoice&, const Bf16*, const Bf16*, const float*,
                                   Bf16*, float*, cudaStream_t);

}  // namespace plimsoll::launch
