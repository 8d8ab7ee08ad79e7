#pragma once
// The dynamic program of `offload_dp`: stage by stage inwards, its forward and its backward together,
//   I(i, O, f, b) = least idle time of stages i.. if O bytes have been chosen to leave, of which f wait to leave when
//   forward i starts, and b must still come back, in reverse, when backward i ends.
// Stage i idles for the bytes that must move for its two memory needs,
//   f' = f - wait_f - time(F_i) * bandwidth out,  wait_f = max(0, memory(F_i) - O + f - budget) <= f,
// b' likewise with the way back; then its own value joins O, f' and b', or stays.

#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// One stage: its forward and backward positions, and its values that may leave, as gaps.
struct OffloadStage {
  std::uint32_t forward = 0, backward = 0;
  std::vector<std::uint32_t> gaps;
  Bytes bytes;
};

/// By stage whether its value leaves; nothing where that is never enough. Sizes are rounded up to a slot where they
/// wait, down where they have left.
std::optional<std::vector<bool>> choose_stages(const OffloadModel&, const std::vector<OffloadStage>&, Bytes budget,
                                               std::uint32_t slots);

}  // namespace plimsoll
