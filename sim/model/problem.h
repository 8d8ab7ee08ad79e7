#pragma once
// What is planned for: one training iteration of a model on a platform.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/allocations.h"
#include "sim/core/decisions.h"
#include "sim/core/evaluation.h"
#include "sim/core/mesh.h"
#include "sim/core/optimizer.h"
#include "sim/core/platform.h"
#include "sim/core/scaling.h"
#include "sim/model/chain_graph.h"

namespace plimsoll {

struct Problem {
  Graph graph;                      ///< what is run: the trace's without views; for a chain trace, its graph
  std::optional<Chain> chain;       ///< for a chain trace: with a loss, and with the times it has on the devices
  std::optional<ChainGraph> index;  ///< for a chain trace: which op of `graph` is which stage's
  Platform platform;
  std::optional<Mesh> mesh = {};  ///< `graph` is one rank's: every device stands for the ranks of this mesh, which run
                                  ///< the same on their shares
  std::shared_ptr<const Graph> of_ops = {};  ///< where `graph` is that of a chain which was made of a graph: that graph
  std::shared_ptr<const ChainAllocations> allocations = {};  ///< of the chain that the trace has, where it has them
  std::uint32_t micro_batches = 1;
  Optimizer optimizer = Optimizer::none;
  std::vector<ParameterGroup> parameter_groups = {};    ///< which other optimizers update
  UpdateKernels update_kernels = UpdateKernels::fused;  ///< of updates that --optimizer made
  bool keeps_averages = false;                          ///< of trained parameters, which updates renew
  bool clips_gradients = false;                         ///< by the norm of all of them, which updates wait for
  std::optional<Evaluation> evaluation = {};            ///< between iterations
  std::optional<States> states;  ///< size of the states of updates that --optimizer made; by_dtype if parameters differ
  Gradients gradients = Gradients::fresh;
  Seconds view_time;                  ///< time that a graph trace gives for its views, which take none (core/views.h)
  bool times_rescaled = false;        ///< some durations are the roofline's, not the trace's
  bool first_updates_shared = false;  ///< Partition::each_updates_shared is not asked for
  bool transformed = false;           ///< the transforms of its pass pipeline have been applied
  std::vector<Decisions> decisions;   ///< from which it was built, by passes that decide
  std::shared_ptr<const Problem> uncut = {};  ///< where the next pass, too, may cut operators: as before those that did
  std::vector<std::string> notes;             ///< what transforms say about what an iteration does not show

  Optimizers optimizers() const { return {optimizer, parameter_groups}; }
};

struct ProblemOptions {
  std::uint32_t micro_batches = 1;
  Optimizer optimizer = Optimizer::none;
  std::vector<ParameterGroup> parameter_groups = {};
  States states = States::by_dtype;
  UpdateKernels update_kernels = UpdateKernels::fused;
  bool keeps_averages = false;
  bool clips_gradients = false;
  std::optional<Evaluation> evaluation = {};
  Gradients gradients = Gradients::fresh;
  Backward backward = Backward::whole;
  Inner inner = Inner::together;
};

/// The problem, or in one sentence why there is none: times cannot be re-scaled to the platform's device, the
/// optimizer does not know to which parameter a gradient belongs, or a group of parameters has none. A graph's own
/// updates stay.
std::variant<Problem, std::string> make_problem(std::variant<Chain, Graph>, Platform, const ProblemOptions&);

/// Whether a transform has given the chain's parameters states that the optimizer and averages do not make.
bool has_own_states(const Problem&);

/// Makes the graph of a problem whose chain has changed anew, with its updates, averages and clipping.
/// !has_own_states().
void remake_graph(Problem&, Backward, Inner);

/// How long the op takes on the device. Known for every op of a problem that make_problem has made.
Seconds duration_on(const Problem&, OpId, DeviceId, Saving, std::uint32_t implementation = 0);
/// The same where the network's inputs are there already, so that it loads none.
Seconds duration_again_on(const Problem&, OpId, DeviceId, Saving, std::uint32_t implementation = 0);

/// How long the op takes alone on the host's processor; unset if the platform does not state the rates it needs.
///  - An update takes the bytes that it moves / (7 * the memory's `adam` rate): Adam moves seven times the bytes of its
///    fp32 parameters. It takes no less than the memory needs to move them.
///  - Another op takes the roofline of the memory's peak and bandwidth.
std::optional<Seconds> seconds_on_host(const Problem&, OpId, MemoryId host);

}  // namespace plimsoll
