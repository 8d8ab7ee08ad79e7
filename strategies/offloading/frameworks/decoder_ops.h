#pragma once
// What the ops of a transformer decoder's forward are for: layers, projections, attention. From kinds of ops and from
// the order in which torch.compile lists them; names of modules are not needed.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

enum class DecoderRole : std::uint8_t {
  outside,         ///< of all layers: embedding, last norm, head, loss
  parameter_side,  ///< made of parameters only: a cast, a gathered shard
  norm,            ///< before attention and before the feed-forward
  query_key_value,
  rotary,  ///< between those and attention
  attention,
  attention_out,
  residual,  ///< the sum behind attention, and what leads to it
  feed_forward_in,
  activation,  ///< between the two
  feed_forward_out,
  layer_output,  ///< the sum behind the feed-forward, which the next layer reads
};

struct DecoderOps {
  std::vector<DecoderRole> role;                    ///< by op; of others than forwards: outside
  std::vector<std::optional<std::uint32_t>> layer;  ///< by op; also of parameter_side within a layer
  std::uint32_t layers = 0;
};

/// Or in one sentence why the graph's forward is no decoder whose layers are norm, attention, sum, norm, feed-forward,
/// sum, with attention as one op.
std::variant<DecoderOps, std::string> decoder_ops(const Graph&);

/// A product of matrices.
bool is_matrix_product(const Op&);

/// Attention as one op.
bool is_attention(const Op&);

/// Among devices.
bool is_collective_kind(const Op&);

/// By op: made of parameters only.
std::vector<bool> parameter_side_ops(const Graph&);

}  // namespace plimsoll
