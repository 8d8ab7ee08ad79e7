#pragma once
// A problem's graph and devices as planners of placements see them.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/model/device_classes.h"
#include "sim/model/problem.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// The ops of a micro-batch: no updates, no views.
struct GraphDag {
  OpDag dag;
  std::vector<OpId> op;          ///< by node
  std::vector<TensorId> tensor;  ///< by value: what is sent, the last of its storage's tensors
  DeviceClasses classes;         ///< of the devices; the host, if there is one, is of a class behind them
  bool has_host = false;         ///< ops are pinned to it
};

/// Whether ops that use one parameter (read it, or make its gradient) share a device.
enum class ParameterHomes : std::uint8_t {
  together,  ///< they do: nothing of it is ever sent
  copies,  ///< they need not: each device has a copy, gradients are sent and summed behind the last micro-batch, which
           ///< planners do not see
};

/// Times in nanoseconds, a class for all devices of the same rates. Ops share a processor
///  - that the trace lists together (`colocate`);
///  - that read or overwrite one storage in place before its last overwriting;
///  - that use one parameter, if its home is one.
/// Ops that the trace pins to the host (core/op_attribute.h) run there only. Optimizer states are where the gradient of
/// their parameter is made first. Throws InputError where a pinned op uses a parameter or must be where another op is.
GraphDag graph_dag(const Problem&, std::uint32_t devices, ParameterHomes = ParameterHomes::together);

/// The graph's devices, and the first one's host if ops are pinned to it, with the routes between their memories. Each
/// device may fill `usable` of its memory, or of the budget if that is less, but for parameters that nobody reads.
/// Throws InputError where there is no host or no route between two of them.
Machine machine_of(const Problem&, const GraphDag&, std::optional<Bytes> budget, double usable);

/// The least budget of which a device of such a machine may fill so much.
Bytes budget_that_leaves(const Problem&, Bytes filled, double usable);

}  // namespace plimsoll
