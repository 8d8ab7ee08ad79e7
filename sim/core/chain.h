#pragma once
// The coarse view of a model: stages 1..L in a row, the last one the loss. Field by field in traces/chain.md.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/kernels/gpu_kernel.h"
#include "sim/core/layer_use.h"
#include "sim/core/source.h"
#include "sim/core/units.h"

namespace plimsoll {

/// What a stage's backward does with tensors of its boundaries, as indices into Chain::tensors.
struct StageTensors {
  std::vector<std::uint32_t> kept;       ///< those that it reads
  std::vector<std::uint32_t> gradients;  ///< those of its input whose gradient it makes or adds to

  friend bool operator==(const StageTensors&, const StageTensors&) = default;
};

/// One of the tensors that a stage's forward leaves for its backward beside the output.
struct InnerTensor {
  std::string name;
  Bytes bytes;  ///< of its storage
  std::vector<std::int64_t> shape = {};
  std::string dtype = {};           ///< empty: the source's
  std::vector<LayerUse> uses = {};  ///< in the backward

  friend bool operator==(const InnerTensor&, const InnerTensor&) = default;
};

/// How a stage's backward uses a tensor of its boundaries.
struct BoundaryUse {
  std::uint32_t tensor = 0;  ///< index into Chain::tensors
  std::vector<LayerUse> uses;

  friend bool operator==(const BoundaryUse&, const BoundaryUse&) = default;
};

struct Stage {
  std::string name;
  Seconds forward, backward;
  Seconds forward_nograd;            ///< a forward that keeps nothing for its backward
  Seconds backward_weight;           ///< the part of `backward` that is the weight gradient
  bool has_backward_weight = false;  ///< whether `backward_weight` is known, so that backward can be split
  Bytes output;                      ///< x_{i+1}; 0 for a loss stage
  Bytes saved;              ///< output (with what passes through) and inner tensors that forward leaves for backward
  Bytes input_gradient;     ///< gradient that the backward hands to the previous stage
  Bytes forward_workspace;  ///< forward peak = live at start + saved - passed through + this
  Bytes forward_nograd_workspace;  ///< forward peak, nothing kept = live at start + output - passed through + this
  /// Backward peak = live at start + new gradients of boundaries and parameters + this; below 0 where inner tensors die
  /// before gradients appear, at least -(saved - output).
  Bytes backward_workspace;
  Bytes backward_accumulate_workspace;               ///< the same if no parameter gradient is new
  std::optional<Bytes> backward_released_workspace;  ///< the two within one call of autograd for the whole backward
  std::optional<Bytes> backward_accumulate_released_workspace;
  std::vector<std::uint32_t> parameters;    ///< indices into Chain::parameters
  std::optional<Bytes> parameter_gradient;  ///< where it differs from the bytes of its parameters
  std::optional<Bytes> weight_saved;        ///< what must stay until the weight gradient; all that is saved, if unset
  Bytes weight_made;                        ///< of it, what the input gradient's part makes; the forward saves the rest
  bool weight_keeps_gradient = true;        ///< whether the weight gradient reads the gradient of the stage's output
  bool weight_keeps_input = true, weight_keeps_output = false;  ///< whether it reads what of these the backward keeps
  /// Of the two parts of a split backward; those of the whole one, if unset.
  std::optional<Bytes> backward_input_workspace, backward_weight_workspace, backward_weight_accumulate_workspace;
  std::optional<Flops> forward_flops, backward_flops;
  std::optional<Bytes> forward_bytes_moved, backward_bytes_moved;
  std::optional<double> forward_kernels, backward_kernels;  ///< that a host issues; unset: not known
  StageKernels forward_made_of, backward_made_of;           ///< by which efficiencies time it; empty: not known
  bool keeps_input = true, keeps_output = true;  ///< whether backward reads the boundary tensors (any of them)
  std::vector<InnerTensor> inner;                ///< of `saved` beside the output, as far as it is listed; else nothing
  std::vector<BoundaryUse> boundary_uses;        ///< likewise
  std::optional<StageTensors> tensors;           ///< which tensors of the boundaries the backward reads; unset: unknown
  bool recomputable = true;
  Seconds load = {};         ///< of both forwards, what it takes for the network's input to appear: in the first run
  bool has_backward = true;  ///< false only for stages before the first one that is trained (sparse_update)

  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Parameter {
  std::string name;
  Bytes bytes;
  std::string dtype = {};            ///< empty: the source's
  bool trained = true;               ///< has a gradient and optimizer states; false: frozen (sparse_update)
  std::optional<Bytes> states = {};  ///< of the optimizer; unset: what it keeps for such a parameter

  friend bool operator==(const Parameter&, const Parameter&) = default;
};

/// A tensor on a boundary between stages, for boundaries that are tuples or share storages.
struct BoundaryTensor {
  std::string name;
  Bytes bytes;  ///< of its storage
  std::vector<std::int64_t> shape = {};
  std::string dtype = {};
  std::optional<Bytes> gradient = {};  ///< bytes of its gradient, where it differs from `bytes`

  friend bool operator==(const BoundaryTensor&, const BoundaryTensor&) = default;
};

/// A parameter of several stages, and how autograd sums the contributions to its gradient within one backward.
struct SharedParameter {
  std::uint32_t parameter = 0;        ///< index into Chain::parameters
  std::vector<std::uint32_t> stages;  ///< in the order in which they contribute
  bool in_place = false;              ///< false: a contribution, the sum so far and the new sum exist at the same time

  friend bool operator==(const SharedParameter&, const SharedParameter&) = default;
};

/// An iteration in one call of autograd for the whole backward, and all its stages, each run alone.
struct PlainTraining {
  Seconds iteration, stages;

  double share() const { return iteration / stages; }

  friend bool operator==(const PlainTraining&, const PlainTraining&) = default;
};

struct Chain {
  std::string name;
  Source source;
  Bytes input;  ///< x_0, the network's input
  std::vector<Stage> stages;
  std::vector<Parameter> parameters;
  std::vector<BoundaryTensor> tensors;                 ///< empty unless boundaries are given
  std::vector<std::vector<std::uint32_t>> boundaries;  ///< empty, or stages + 1 lists of indices into `tensors`
  std::vector<SharedParameter> shared;      ///< where known; else from the last stage to the first, out of place
  std::optional<PlainTraining> plain = {};  ///< unset: not measured

  friend bool operator==(const Chain&, const Chain&) = default;
};

/// What the part of the backward that makes gradients of parameters is made of, or the other part: a share of each
/// kernel, where the list does not say which make such gradients.
StageKernels part_of_backward(const Stage&, bool of_weight);

/// Bytes of x_i for i = 0 (the network's input) to L (0 when the last stage is a loss).
Bytes boundary_bytes(const Chain&, std::size_t i);

/// Whether every stage says what it does with each tensor of its boundaries.
bool knows_tensors(const Chain&);

/// Whether stages list the tensors that they save.
bool lists_saved(const Chain&);

/// The dtype of a parameter, else of the whole trace.
const std::string& dtype_of(const Chain&, const Parameter&);

/// Time of the forwards and backwards of all stages, each run alone.
Seconds all_alone(const Chain&);

/// All parameters, each counted once however many stages use it.
Bytes parameter_bytes(const Chain&);

}  // namespace plimsoll
