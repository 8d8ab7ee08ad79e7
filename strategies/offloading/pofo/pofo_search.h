#pragma once
// POFO: which stages a chain's forward saves, which blocks it runs through and recomputes later, and which of the
// values in between leave for the host, found over labels of what they hold. Notation of the source; bytes:
//   A = kept on the device, dF = waiting to leave when stage i's forward starts, dB = to be back when its backward
//   ends, in = stage i's input: x_i, or all that stage i - 1 has saved; M = memory; b = bandwidth of a direction.
// x_i and the rest of `in`, the inner tensors, stay or leave; inner tensors that leave join dF and dB, for only stage
// i - 1 reads them; fixed = x_i and inner tensors that stay.
//   save(i):   wait_f = max(0, A + dF + fixed + need_f - M) <= dF, wait_b likewise with dB; idle = wait_f/b + wait_b/b;
//              meanwhile the link moves off = b uf_i + wait_f, pre = b ub_i + wait_b
//   block i..j: forwards that keep x_i only, later T(i, j, M - A - fixed, dB) (pofo_blocks.h); pre = b T;
//              wait_f = max(0, max_k(need_k - b (uf_i + .. + uf_{k-1})) + A + dF + fixed - M)
//   then what stays joins A; dF - off, dB - pre, and x_i joins them if it leaves. The loss saves; then what must still
//   leave and return idles.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021, where `in` stays or leaves, and is fixed,
// whole. Bytes of labels are exact here, and a label falls away where another one has no more of each.
// Labels that agree in whole slots are one: the fastest (up), or with the least of each (down: a lower bound of the
// class, in which transfers are fluid, leave only in the forward sweep and come back only in the backwards).

#include <cstddef>
#include <optional>
#include <vector>

#include "strategies/offloading/pofo/pofo_blocks.h"

namespace plimsoll {

struct PofoPlan {
  ChainSequence sequence;
  std::vector<bool> output_leaves, inner_leaves;  ///< by stage: what its first forward makes goes to the host
  Seconds makespan;                               ///< of the model
};

struct PofoLinks {
  double out = 0, in = 0;  ///< bytes/s
};

/// The fastest plans of the model, best first, of those that take no more than `limit`; none where nothing fits.
/// Bytes of `budget` include what is resident.
std::vector<PofoPlan> pofo_plans(const PofoBlocks&, const PofoLinks&, Bytes budget, Seconds limit, std::size_t most);

/// With blocks rounded down: no schedule of the class takes less, if any takes less than `limit`.
Seconds pofo_bound(const PofoBlocks&, const PofoLinks&, Bytes budget, Seconds limit);

}  // namespace plimsoll
