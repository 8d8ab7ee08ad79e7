#pragma once
// A part of the graph as graph planners see it: ops that read and make values, one value a tensor of the micro-batch,
// with what is resident anyway and what the parameter gradients add.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// Running an op with what it saves for the backward, or without.
struct OpWay {
  Saving saving = Saving::keep;
  Seconds time;
  Bytes workspace;
  std::vector<std::uint32_t> makes;   ///< values that are there afterwards
  std::vector<std::uint32_t> clears;  ///< values of the same storages that are not there any more
};

/// Running an op, with what it saves for the backward, in another way.
struct OpAlternative {
  std::uint32_t implementation = 0;
  Seconds time;
  Bytes workspace;
};

struct ModelOp {
  OpId id;
  std::vector<std::uint32_t> reads;         ///< values
  std::vector<OpWay> ways;                  ///< keep; then nothing, where the op has outputs that are only saved
  std::vector<OpAlternative> alternatives;  ///< empty unless with_alternatives() has added them
  std::vector<std::uint32_t> gradients;     ///< parameter gradients that are not there from the start
  Bytes accumulate_workspace;               ///< when none of its parameter gradients is new
  bool makes_gradient = false;              ///< a parameter gradient, there already or not
  bool once = false;                        ///< must run exactly once
  bool forward = true;
  bool sink = false;  ///< nobody reads what it makes
};

struct ModelValue {
  TensorId tensor;
  std::uint32_t storage = 0;           ///< numbered from 0 among the storages of values
  std::optional<std::uint32_t> maker;  ///< op; unset: the network's input, which its first reader loads
  std::vector<std::uint32_t> readers;  ///< ops, ascending
};

struct OpModel {
  std::vector<ModelOp> ops;  ///< in a valid order
  std::vector<ModelValue> values;
  std::vector<Bytes> storages;                         ///< bytes
  std::vector<std::vector<std::uint32_t>> in_storage;  ///< values by storage
  std::vector<Bytes> gradients;                        ///< bytes of the parameter gradients that are not there yet
  std::vector<std::vector<std::uint32_t>> makers_of;   ///< of a parameter gradient: ops
  Bytes resident;                                      ///< what is there from the start and stays
  Bytes all_gradients;                                 ///< sum of `gradients`
  bool repeats = false;                                ///< more than one micro-batch
};

/// The part must be the only one.
OpModel op_model(const PartTask&);

/// The model with the implementations among which a planner may choose.
OpModel with_alternatives(OpModel, const PartTask&);

/// Which parameter gradients of an op are new, where others exist.
struct GradientBytes {
  Bytes existing, fresh;
  bool any_fresh = false;
};

/// What parameter gradients and the workspace come to while the op runs, on top of values and `resident`: the larger of
/// the first micro-batch and of a later one, where all gradients exist.
Bytes beside_values(const OpModel&, const ModelOp&, const OpWay&, const GradientBytes&);
Bytes beside_values(const OpModel&, const ModelOp&, const OpAlternative&, const GradientBytes&);

}  // namespace plimsoll
