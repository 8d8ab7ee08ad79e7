#include "sim/model/op_times.h"

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

constexpr DeviceId first{0};

/// Others take the time that they have, on links and hosts.
bool is_of_device(const Op& op) {
  return !is_pinned_to_host(op) && !collective_of(op);
}

void retime(const Problem& problem, OpId id, const OpTime& time, Op& op) {
  const Op& was = problem.graph[id];
  const Seconds issue = issue_on(problem, id, first);
  const auto known = [&](Seconds device) { return time(device, issue); };
  const Seconds device = duration_on(problem, id, first, Saving::keep);
  op.duration = known(device);
  if (was.nograd_duration) op.nograd_duration = known(duration_on(problem, id, first, Saving::nothing));
  op.load = *op.duration - known(duration_again_on(problem, id, first, Saving::keep));
  for (std::uint32_t k = 0; k < op.alternatives.size(); ++k) {
    op.alternatives[k].duration = known(duration_on(problem, id, first, Saving::keep, k + 1));
  }
  const Seconds in_one_call = within(Backprop::in_one_call, was, problem.graph.source, problem.platform[first], device);
  op.released_share = *op.duration > Seconds{0} ? known(in_one_call) / *op.duration : 1;
}

/// As the ops of the problem have them.
void retime_stages(Problem& problem) {
  const ChainGraph& index = *problem.index;
  const auto of = [&](OpId op, Saving saving) {
    return op == no_op ? Seconds{0} : duration_on(problem, op, first, saving);
  };
  for (std::size_t i = 0; i < problem.chain->stages.size(); ++i) {
    Stage& stage = problem.chain->stages[i];
    stage.forward = of(index.forward[i], Saving::keep);
    stage.forward_nograd = of(index.forward[i], Saving::nothing);
    stage.load = problem.graph[index.forward[i]].load;
    const Seconds weight = index.weight.empty() ? Seconds{0} : of(index.weight[i], Saving::keep);
    stage.backward = of(index.backward[i], Saving::keep) + weight;
    if (!index.weight.empty()) stage.backward_weight = weight;
  }
}

}  // namespace

Seconds issue_on(const Problem& problem, OpId id, DeviceId device) {
  return issued_kernels(problem.graph[id]) * problem.platform[device].host_launch;
}

Problem with_op_times(Problem problem, const OpTime& time) {
  std::vector<Op> ops = problem.graph.ops;
  for (std::size_t o = 0; o < ops.size(); ++o) {
    if (is_of_device(ops[o])) retime(problem, id_at<OpId>(o), time, ops[o]);
  }
  problem.graph.ops = std::move(ops);
  for (Device& device : problem.platform.devices) device.takes_trace_times = true;
  if (problem.chain) retime_stages(problem);
  return problem;
}

}  // namespace plimsoll
