#pragma once
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

#include <cstdint>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {

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

}  // namespace plimsoll
