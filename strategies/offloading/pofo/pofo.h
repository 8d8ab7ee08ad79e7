#pragma once
// POFO: which stages a chain's forward saves, which blocks it runs through and recomputes later, and which of the
// values in between leave for the host, found over labels of what they hold. Notation of the source; bytes:
//   A = kept on the device, dF = waiting to leave when stage i's forward starts, dB = to be back when its backward
//   ends, in = stage i's input: x_i, or all that stage i - 1 has saved; M = memory; b = bandwidth of a direction.
// x_i and the rest of `in`, the inner tensors, stay or leave; inner tensors that leave join dF and dB, for only stage
// i - 1 reads them; fixed = x_i and inner tensors that stay.
//   save(i):   wait_f = max(0, A + dF + fixed + need_f - M) <= dF, wait_b likewise with dB; idle = wait_f/b + wait_b/b;
//              meanwhile the link moves off = b uf_i + wait_f, pre = b ub_i + wait_b
//   block i..j: forwards that keep x_i only, later T(i, j, M - A - fixed, dB); pre = b T;
//              wait_f = max(0, max_k(need_k - b (uf_i + .. + uf_{k-1})) + A + dF + fixed - M)
//   then what stays joins A; dF - off, dB - pre, and x_i joins them if it leaves. The loss saves; then what must still
//   leave and return idles.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021, where `in` stays or leaves, and is fixed,
// whole. Bytes of labels are exact here, and a label falls away where another one has no more of each.
// Labels that agree in whole slots are one: the fastest (up), or with the least of each (down: a lower bound of the
// class, in which transfers are fluid, leave only in the forward sweep and come back only in the backwards).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {

// How long a block of stages needs for its backward while values of earlier stages come back from the host.
//
//   T(i, l, m, d) = least time for the backwards of stages i..l, and the forwards that they need, once x_i and the
//   gradient of x_{l+1} are there; m bytes for everything but x_i; d bytes must have come back when backward i ends.
// They come at the link's bandwidth b, as late as they can: with t seconds left to the end, max(0, d - b t) of them are
// there and take memory. What does not fit idles until the link has taken it out of the way (in reverse):
//   T(i, i) and save: B_i idles wait_b / b behind it,  wait_b = max(0, backward_i + d - m),  d1 = d - b (B_i + idle);
//                     then T(i+1, l, m - kept_i, d1), d2 = d1 - b T; then F_i, idling for held_l + forward_i + d2 - m
//   split j:          T(i, j-1, m, d), d1 = d - b T; T(j, l, m - x_j, d1), d2 = d1 - b T; then the forwards
//                     i..j-1, idling for null(i, j, l) + d2 - m
// With d = 0 this is rotor's recursion (rotor_conditions.h). Source of the problem: Beaumont, Eyraud-Dubois, Shilova,
// "Efficient combination of rematerialization and offloading", NeurIPS 2021; this recursion is own.

/// Which way bytes are rounded to whole slots.
enum class SlotRounding : std::uint8_t {
  up,    ///< every plan keeps its budget
  down,  ///< times are lower bounds, plans may exceed the budget
};

/// Memory and bytes to come are counted in slots. Rounded up, every time is reached; rounded down, none is undercut.
class PofoBlocks {
 public:
  /// The bandwidth is finite.
  PofoBlocks(ChainModel, double bytes_per_second, Bytes slot, std::int32_t slots, SlotRounding);

  /// Seconds; infinite where nothing fits. Any number of bytes.
  double time(std::size_t i, std::size_t l, double memory, double returning) const;

  /// Appends the forwards and backwards of that time.
  void append(ChainSequence&, std::size_t i, std::size_t l, double memory, double returning) const;

  const ChainModel& model() const { return model_; }
  const RotorConditions& conditions() const { return conditions_; }
  double bandwidth() const { return bandwidth_; }
  double slot() const { return slot_; }
  std::int32_t slots() const { return slots_; }
  SlotRounding rounding() const { return rounding_; }

 private:
  struct Cell {
    std::int32_t memory, returning;  // slots
  };
  // Split i stands for saving at i.
  struct Choice {
    double seconds;
    std::size_t split;
  };

  Cell cell(double memory, double returning) const;
  std::int32_t returning_before(double bytes, double seconds) const;
  double idle(double bytes) const;
  double bytes(std::int32_t slots) const { return slot_ * slots; }
  Choice best(std::size_t i, std::size_t l, Cell) const;
  double save(std::size_t i, std::size_t l, Cell) const;
  double split(std::size_t i, std::size_t j, std::size_t l, Cell) const;
  void append(ChainSequence&, std::size_t i, std::size_t l, Cell) const;
  Cell inside_save(std::size_t i, Cell) const;
  Cell late_part(std::size_t i, std::size_t j, Cell) const;

  double at(std::size_t i, std::size_t l, Cell) const;

  ChainModel model_;
  RotorConditions conditions_;
  double bandwidth_, slot_;
  std::int32_t slots_;
  SlotRounding rounding_;
  std::vector<std::int32_t> x_, kept_;     // slots
  std::vector<double> work_before_;        // seconds of saving forwards and backwards of earlier stages
  std::vector<double> nograd_before_;      // seconds of the forwards that keep nothing of earlier stages
  std::vector<std::vector<double>> run_;   // by i, then j - i: bytes that forwards i..j-1 need; infinite: not twice
  std::vector<std::vector<float>> times_;  // by l (l + 1) / 2 + i, then m (m + 1) / 2 + d
};

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
