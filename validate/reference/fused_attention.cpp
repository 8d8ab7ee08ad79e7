#include "validate/reference/fused_attention.h"

#include <algorithm>

namespace plimsoll {

FusedSizes fused_sizes(const Graph& graph, const Op& op) {
  const bool is_forward = op.inputs.size() == 2;
  const Tensor &q = graph[op.inputs[is_forward ? 0 : 1]], &kv = graph[op.inputs[is_forward ? 1 : 2]];
  const Tensor& sums = graph[is_forward ? op.outputs[1] : op.inputs[4]];
  const std::int64_t group = sums.shape.size() == 4 ? sums.shape[2] : 1, heads = sums.shape[1] * group;
  FusedSizes made{.batch = q.shape[0],
                  .heads = heads,
                  .size = q.shape[2] / heads,
                  .queries = q.shape[1],
                  .keys = kv.shape[1],
                  .group = group};
  made.scale = 1.0F / std::sqrt(static_cast<float>(made.size));
  return made;
}

}  // namespace plimsoll

namespace plimsoll::plain {

void fused_attention(const FusedSizes& s, const float* q, const float* kv, float* mixed, float* sums) {
  for (std::int64_t row = 0; row < s.rows(s.queries); ++row) attend(s, q, kv, row, mixed, sums);
}

void fused_attention_backward(const FusedSizes& s, const FusedSaved& of, float* dq, float* dkv) {
  for (std::int64_t row = 0; row < s.rows(s.queries); ++row) gradient_of_query(s, of, row, dq);
  for (std::int64_t row = 0; row < s.rows_of_keys(); ++row) gradient_of_key(s, of, row, dkv);
}

void merge_attention(const FusedSizes& s, float* mixed, float* sums, const float* other, const float* other_sums) {
  for (std::int64_t row = 0; row < s.rows(s.queries); ++row) {
    const float largest = std::max(sums[row], other_sums[row]);
    if (other_sums[row] == -INFINITY) continue;  // it sees none of those keys
    const float own = std::exp(sums[row] - largest), others = std::exp(other_sums[row] - largest);
    const FusedRow at(s, row, s.queries);
    for (std::int64_t d = at.query(s, at.place); d < at.query(s, at.place) + s.size; ++d) {
      mixed[d] = (own * mixed[d] + others * other[d]) / (own + others);
    }
    sums[row] = largest + std::log(own + others);
  }
}

}  // namespace plimsoll::plain
