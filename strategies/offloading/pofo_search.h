#pragma once
// POFO: which stages a chain's forward saves, which blocks it runs through and recomputes later, and which of the
// values in between leave for the host, found over labels of what they hold. Notation of the source; bytes:
//   A = kept on the device, dF = waiting to leave when stage i's forward starts, dB = to be back when its backward
//   ends, in = stage i's input: x_i, or all that stage i - 1 has saved; M = memory; b = bandwidth of a direction.
//   save(i):   idle = wait_f / b + wait_b / b,  wait_f = max(0, A + dF + in + need_f - M), wait_b likewise with dB;
//              then the link has moved off = b uf_i + wait_f of dF and pre = b ub_i + wait_b of dB
//   block i..j: forwards that keep x_i only, later T(i, j, M - A - in, dB) (pofo_blocks.h);
//              wait_f = max(0, max_k(need_k - b (uf_i + .. + uf_{k-1})) + A + dF + in - M); pre = b T
//   `in` stays (A + in) or leaves (dF + in - off, dB - pre + in). The loss saves; then what waits to leave and to be
//   back idles.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021. Bytes of labels are exact here, and a label falls away where another one has no more of each.
// Labels that agree in whole slots are one: the fastest (up), or with the least of each (down: a lower bound of the
// class, in which transfers are fluid, leave only in the forward sweep and come back only in the backwards).

#include <cstddef>
#include <optional>
#include <vector>

#include "strategies/offloading/pofo_blocks.h"

namespace plimsoll {

struct PofoPlan {
  ChainSequence sequence;
  std::vector<bool> leaves;  ///< by stage: what its first forward leaves behind goes to the host
  Seconds makespan;          ///< of the model
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
