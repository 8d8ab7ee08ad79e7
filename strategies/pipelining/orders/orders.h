#pragma once
// The orders in which the ranks of a pipeline take their turns. A rank is a device, part g the g-th of the pipeline's
// parts of the model; in formulas p ranks, m micro-batches, v parts a rank; F, B and W are a part's forward, backward
// and, where the backward is split, weight gradients.

#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/partition.h"

namespace plimsoll {

/// Pieces of a part's tape.
namespace piece {
inline constexpr std::uint32_t forward = number_of(PieceName::forward), backward = number_of(PieceName::backward),
                               weights = number_of(PieceName::weights), leave = number_of(PieceName::leave),
                               arrive = number_of(PieceName::arrive);
}  // namespace piece

struct PipelineOrder {
  std::vector<std::uint32_t> rank_of;    ///< by part
  std::vector<std::vector<Turn>> turns;  ///< by rank
  bool weights_apart = false;            ///< W are turns of their own; else within B
  std::vector<std::uint32_t> stage_of;   ///< by part: the g-th of the model; empty: part g. Others of it are copies
};

/// All F, then all B: of the first micro-batch first (fifo) or of the last (lifo). Huang et al. 2019.
enum class BackwardOrder { fifo, lifo };
PipelineOrder gpipe_order(std::uint32_t p, std::uint32_t m, BackwardOrder);

/// By stage: `warm_up` F on each of its ranks, then one F and one B by turns, then the B that are left. A stage is on
/// as many ranks as it has copies (none given: one each), of which the k-th of r takes micro-batches k, k + r, ...
PipelineOrder one_forward_one_backward_order(std::uint32_t m, const std::vector<std::uint32_t>& warm_up,
                                             const std::vector<std::uint32_t>& copies = {});

/// As PipeDream counts them: the ranks of the stages behind, of which each of a stage's copies feeds its share.
std::vector<std::uint32_t> warm_up_for(const std::vector<std::uint32_t>& copies);

/// The same with p - r - 1 forwards to warm up rank r of p: 1F1B.
PipelineOrder one_forward_one_backward_order(std::uint32_t m, std::uint32_t p);

/// Groups of micro-batches that a rank takes of one part before it goes on to the next part: as PyTorch's, max(1, m /
/// p) of them, as equal as can be, the larger ones first; or of `group` each, the last of what is left.
std::vector<std::uint32_t> interleaved_groups(std::uint32_t p, std::uint32_t m, std::uint32_t group = 0);

/// Megatron-LM's, Narayanan et al. 2021: part g on rank g mod p, the micro-batches of a group through all parts of a
/// rank before the next group. With g micro-batches in the largest group rank r warms up with (v - 1) g + 2 (p - r - 1)
/// forwards, with all where m = p, and with `less_memory` (v - 1) g + p - r - 1. No rank waits for ever where all
/// groups but a single one have at least p.
enum class WarmUp { megatron, less_memory };
PipelineOrder interleaved_order(std::uint32_t p, std::uint32_t v, std::span<const std::uint32_t> groups, WarmUp);

/// With PyTorch's groups of m micro-batches.
PipelineOrder interleaved_order(std::uint32_t p, std::uint32_t v, std::uint32_t m, WarmUp);

/// Zero bubble by hand, Qi et al. 2024: (p - r - 1) `depth` F to warm up, and W delayed by as much as the last rank is
/// ahead; depth 1 is ZB-H1, 2 is ZB-H2.
PipelineOrder zero_bubble_order(std::uint32_t p, std::uint32_t m, std::uint32_t depth);

/// DualPipe cut in half, DeepSeek-AI 2025: two parts a rank in a V; m >= 2p.
PipelineOrder dualpipe_v_order(std::uint32_t p, std::uint32_t m);

// What planners of orders know of the parts of a pipeline.

/// Times in seconds and bytes of one micro-batch, by part; plain training within each part.
struct PartCosts {
  std::vector<double> f, b, w;                       ///< of the pieces
  std::vector<double> sent;                          ///< time of a transfer from part g to g + 1; one less than parts
  std::vector<double> returned;                      ///< of its gradient, from g + 1 to g
  std::vector<std::int64_t> kept, kept_for_weights;  ///< after the forward, and after the backward until W

  std::size_t parts() const { return f.size(); }
};

/// Times as whole numbers, of which the largest has ten digits: sums that are equal on paper are equal then too, so
/// that a search finds the same order whatever the unit of the times.
PartCosts in_ticks(PartCosts);

// How many micro-batches of a part are between two of its pieces, at most, by the order of its device.

struct Waiting {
  std::uint32_t in_flight =
      1;                      ///< whose forward has begun and whose backward has not ended, and that are on the device
  std::uint32_t weights = 0;  ///< whose backward has ended and whose weight gradients are not made
  friend auto operator<=>(const Waiting&, const Waiting&) = default;
};

/// By part.
std::vector<Waiting> waiting_in(const Partition&);

}  // namespace plimsoll
