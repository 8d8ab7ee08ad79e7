#pragma once
// What an op computes as one loop nest over named dimensions. Whatever cuts a dimension among ranks follows from it:
// which tensors are cut and along which of their dimensions, which results are partial sums, and the work of a rank.
//
// An op states its loop by the attribute `loop`:
//
//   loop = "batch sequence width, width column -> batch sequence column"
//
// Operands are in the order of the op's inputs, then its outputs; a name for every dimension of the operand's shape.
//   name!   the op needs all of the dimension (a softmax along it): it cannot be cut
//   name~   later ones of the dimension have more work (queries under a causal mask): shares in a row are not equal,
//   but
//           those of two pieces are, one from either end; only who deals them out so cuts it
//   name*   of each of `name` several numbers in a row, as many as the shape says: heads side by side; or name*4: four
//   -       a dimension that no other operand shares and that cannot be cut
//   =name   (of an output, no dimension of its own) whole where `name` is cut: every rank makes all of it
// An output without a cut dimension of the loop is else a partial sum over the ranks of that axis. A second attribute
// names what an op exchanges on top where a dimension is cut (the maximum and the sum of a softmax along it):
//
//   loop_reduces = "vocabulary 2"      that many all-reduces, each of the bytes of the op's first output
//   loop_reduces = "batch 2 4"         of its operand 4: inputs count from 0, then outputs
//
// Where the trace states no loop, it follows from kind, shapes and attributes by the rule of split_rules.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

struct LoopDim {
  std::string name;
  std::int64_t size = 1;
  bool cuttable = true;
  bool by_halves = false;  ///< not cuttable in a row, but in shares of two pieces, one from either end

  friend bool operator==(const LoopDim&, const LoopDim&) = default;
};

struct LoopReduction {
  std::uint8_t dim = 0;
  std::uint32_t count = 0;                    ///< all-reduces, where the dimension is cut,
  std::optional<std::uint32_t> operand = {};  ///< of the bytes of this operand, inputs first; unset: first output

  friend bool operator==(const LoopReduction&, const LoopReduction&) = default;
};

struct OpLoop {
  std::vector<LoopDim> dims;                       ///< in the order in which the operands name them
  std::vector<std::vector<std::uint8_t>> inputs;   ///< by input and dimension of its shape: index in dims
  std::vector<std::vector<std::uint8_t>> outputs;  ///< likewise
  std::vector<std::vector<std::uint8_t>> whole;    ///< by output: dims whose cut leaves it whole
  std::vector<LoopReduction> reductions;

  /// Index in dims.
  std::optional<std::uint8_t> dim(std::string_view name) const;
};

/// Whose bytes an op exchanges.
TensorId reduced_tensor(const Op&, const LoopReduction&);

/// Or in one sentence why there is none: no loop and no rule, or a loop that does not fit the shapes.
std::variant<OpLoop, std::string> loop_of(const Graph&, OpId);

}  // namespace plimsoll
