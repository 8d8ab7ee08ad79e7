#pragma once
// One training iteration of one micro-batch as a graph of operators on tensors, plus the update of the parameters.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/kernels/gpu_kernel.h"
#include "sim/core/layer_use.h"
#include "sim/core/source.h"
#include "sim/core/units.h"

namespace plimsoll {

enum class TensorKind : std::uint8_t { input, parameter, activation, gradient, parameter_gradient, optimizer_state };

/// What happens once per micro-batch (forward, backward) and once per iteration (update). A backward may be whole,
/// or split into its input-gradient part (B) and its weight-gradient part (W).
enum class Phase : std::uint8_t { forward, backward, backward_input, backward_weight, update };

constexpr bool is_backward(Phase p) {
  return p == Phase::backward || p == Phase::backward_input || p == Phase::backward_weight;
}

struct Tensor {
  std::string name;
  TensorKind kind = TensorKind::activation;
  Bytes bytes;        ///< of its storage
  StorageId storage;  ///< tensors that share one storage (views, in-place results) say so
  std::vector<std::int64_t> shape;
  std::string dtype;
  std::optional<TensorId> gradient_of = {};  ///< of a parameter gradient: the parameter, where the trace says

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// Parameters and optimizer states are one value for the whole iteration; everything else belongs to a micro-batch.
constexpr bool per_micro_batch(TensorKind k) {
  return k == TensorKind::input || k == TensorKind::activation || k == TensorKind::gradient;
}

/// There before the iteration starts.
constexpr bool is_given(TensorKind k) {
  return k == TensorKind::input || k == TensorKind::parameter || k == TensorKind::optimizer_state;
}

/// Another implementation of an op: same inputs and outputs, other time and workspace, the same whatever it saves.
struct Alternative {
  std::string name;
  std::optional<Seconds> duration;  ///< as Op's
  std::optional<Flops> flops;
  std::optional<Bytes> bytes_moved;
  Bytes workspace;

  friend bool operator==(const Alternative&, const Alternative&) = default;
};

/// By which layer within the op, and as what, a value is used.
struct InputUse {
  TensorId tensor;
  LayerUse use;

  friend bool operator==(const InputUse&, const InputUse&) = default;
};

struct Op {
  std::string name, kind;
  Phase phase = Phase::forward;
  std::uint32_t stage = 0;
  std::optional<Seconds> duration;         ///< on the device of Graph::source; unset: only flops and bytes are known
  std::optional<Seconds> nograd_duration;  ///< when outputs that are only saved are not made; `duration` if unset
  std::optional<Flops> flops;
  std::optional<Bytes> bytes_moved;
  Bytes workspace;                            ///< live while the op runs, beside its inputs and outputs
  std::optional<Bytes> nograd_workspace;      ///< when outputs that are only saved are not made; `workspace` if unset
  std::optional<Bytes> accumulate_workspace;  ///< when every parameter gradient it makes exists; `workspace` if unset
  std::optional<Bytes> released_workspace;    ///< the two within one call of autograd for the whole backward
  std::optional<Bytes> released_accumulate_workspace;
  double released_share = 1;  ///< times its durations, where plain training is measured: within that call
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;  ///< new values; a parameter gradient adds to what exists
  std::vector<TensorId> saved;    ///< outputs made only for the backward: a forward that keeps nothing omits them
  std::vector<TensorId> mutates;  ///< inputs overwritten in place; the new value is an output with the same storage
  bool recomputable = true;
  std::vector<Alternative> alternatives;  ///< implementation k + 1 of the op; 0 is what the fields above say
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<InputUse> uses =
      {};             ///< of a stage's backward: how its layers use what the forward has left, where known
  Seconds load = {};  ///< of its durations, what it takes for an input of the network to appear: in its first run
  // Of updates that devices make together (sim/model/update_launches.h). Hosts make each by itself.
  double launches = 1;                 ///< kernels, a share of those for several ops
  std::optional<double> kernels = {};  ///< that a host issues for it; `launches` if unset
  double traffic = 1;                  ///< times `bytes_moved`, where each kernel does only a part
  StageKernels made_of = {};           ///< of a stage of a chain: where known
  bool is_view = false;                ///< makes only views (core/views.h): never run, takes no time and no memory

  friend bool operator==(const Op&, const Op&) = default;
};

struct Graph {
  std::string name;
  Source source;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  ///< in a valid order: no tensor is read before it is produced
  std::vector<std::vector<OpId>> colocate;
  std::uint32_t storages = 0;  ///< number of distinct storages; storage ids are below it

  const Tensor& operator[](TensorId id) const { return tensors[id.index]; }
  const Op& operator[](OpId id) const { return ops[id.index]; }

  friend bool operator==(const Graph&, const Graph&) = default;
};

/// Kernels that a host issues for the op; none for a view.
double issued_kernels(const Op&);

/// Sum of the bytes of all tensors of one kind, each storage once.
Bytes bytes_of_kind(const Graph&, TensorKind);

/// Parameters that no op reads; they are resident with the first part all the same.
std::vector<TensorId> unread_parameters(const Graph&);

}  // namespace plimsoll
