#include "validate/same_network.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/core/slices.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/step_program.h"

namespace plimsoll {
namespace {

std::string says(const std::string& what, Bytes theirs, Bytes ours) {
  return what + " has " + std::to_string(theirs.count) + " B in the trace and " + std::to_string(ours.count) +
         " B here";
}

/// What of a transformed graph is not in the network as it is here, or nothing. Its ops' workspaces are looked at step
/// by step.
std::string stranger(const Graph& changed, const Graph& here) {
  const bool is_sliced = sequence_slices(changed) > 1;  // then the rooms of a micro-batch's values are looked at, too

  std::map<std::string, Bytes> tensors;
  for (const Tensor& tensor : here.tensors) {
    if (!tensors.emplace(tensor.name, tensor.bytes).second) return "two tensors are called '" + tensor.name + "'";
  }
  for (const Tensor& tensor : changed.tensors) {
    if (is_sliced && per_micro_batch(tensor.kind)) continue;
    const auto found = tensors.find(tensor.name);
    if (found == tensors.end()) return "there is no '" + tensor.name + "' here";
    if (found->second != tensor.bytes) return says("'" + tensor.name + "'", tensor.bytes, found->second);
  }
  std::set<std::string> ops;
  for (const Op& op : here.ops) {
    if (!ops.insert(op.name).second) return "two ops are called '" + op.name + "'";
  }
  for (const Op& op : changed.ops) {
    if (!ops.contains(op.name)) return "there is no op '" + op.name + "' here";
  }
  return "";
}

/// What differs between the trace and the network as it is here, or nothing.
std::string difference(const Graph& trace, const Graph& here) {
  if (trace.tensors.size() != here.tensors.size() || trace.ops.size() != here.ops.size()) {
    return "the trace has other tensors and ops";
  }
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor &theirs = trace.tensors[t], &ours = here.tensors[t];
    if (theirs.name != ours.name) return "'" + ours.name + "' is called '" + theirs.name + "' in the trace";
    if (theirs.bytes != ours.bytes) return says("'" + theirs.name + "'", theirs.bytes, ours.bytes);
  }
  for (std::size_t o = 0; o < trace.ops.size(); ++o) {
    const Op &theirs = trace.ops[o], &ours = here.ops[o];
    if (theirs.name != ours.name) return "op '" + ours.name + "' is called '" + theirs.name + "' in the trace";
    for (const Saving saving : {Saving::keep, Saving::nothing}) {
      const Bytes a = workspace(theirs, saving, false), b = workspace(ours, saving, false);
      if (a != b) return says("the workspace of '" + theirs.name + "'", a, b);
    }
    const Bytes a = workspace(theirs, Saving::keep, true), b = workspace(ours, Saving::keep, true);
    if (a != b) return says("the workspace of '" + theirs.name + "' that accumulates", a, b);
  }
  return "";
}

}  // namespace

Backward backward_of(const ChainGraph& index) {
  return index.weight.empty() ? Backward::whole : Backward::split;
}

std::string difference_of(const Problem& problem, const Schedule& schedule, const Network& network) {
  const std::uint32_t slices = sequence_slices(problem.graph);
  if (slices > 1 && network.slices.size() != slices) return "runs whole sequences, and the schedule slices of them";
  const bool says_uses = std::ranges::any_of(problem.graph.ops, [](const Op& op) { return !op.uses.empty(); });
  Graph here = problem.index
                   ? chain_graph(with_loss(chain_of(network)), schedule.optimizer, backward_of(*problem.index),
                                 schedule.states, says_uses ? Inner::apart : Inner::together)
                         .graph
                   : network.graph;
  take_updates(here, network.graph);
  return problem.transformed ? stranger(problem.graph, here) : difference(problem.graph, here);
}

}  // namespace plimsoll
