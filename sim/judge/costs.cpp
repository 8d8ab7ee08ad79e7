// The judge of costs: durations, workspaces, bytes moved and kinds of streams that the file states, against those of
// the trace on the platform, worked out here a second time. Steps that declare `measured` may state other times and
// workspaces. Rules: wrong_cost, and wrong_place for a step on a stream of another kind.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "sim/core/collective_op.h"
#include "sim/core/scaling.h"
#include "sim/core/tolerance.h"
#include "sim/judge/judges.h"
#include "sim/judge/packed_forms.h"
#include "sim/judge/packed_use.h"

namespace plimsoll {
namespace {

bool same(Seconds stated, std::optional<double> seconds) {
  return seconds && agree(stated.value, *seconds);
}

/// An op, or another implementation of it, without what it is called.
struct Cost {
  std::optional<Seconds> seconds;
  std::optional<Flops> flops;
  std::optional<Bytes> moved;
  double launches = 1, traffic = 1;
  bool in_8_bits = false;  ///< what it computes in
};

/// Products read their operands first, or say in what they compute.
bool reads_8_bits(const Graph& graph, const Op& op) {
  for (const auto& [name, value] : op.attributes) {
    if (name == "products" && value == "fp8") return true;
  }
  const std::string dtype = op.inputs.empty() ? std::string() : graph[op.inputs.front()].dtype;
  return dtype.find("fp8") == 0 || dtype.find("float8") == 0;
}

/// What the trace says where it was measured; elsewhere the longer of computing and moving, and a launch.
bool as_measured(const Source& source, const Device& device) {
  return device.takes_trace_times || (!source.device.empty() && source.device == device.model);
}

std::optional<double> seconds_of(const Cost& cost, const Source& source, const Device& device, bool is_update = false) {
  if (as_measured(source, device) && cost.seconds) return cost.seconds->value;
  if (device.takes_trace_times || !cost.flops || !cost.moved) return std::nullopt;
  if (cost.flops->count == 0 && cost.moved->count == 0)
    return device.memory_bandwidth ? std::optional(0.0) : std::nullopt;
  const bool by_adam = is_update && device.adam;
  if (!by_adam && !device.memory_bandwidth) return std::nullopt;
  double longest = cost.traffic * static_cast<double>(cost.moved->count) /
                   (by_adam ? 7 * device.adam->value : device.memory_bandwidth->value);
  if (cost.flops->count > 0) {
    const auto peak = device.peak.find(cost.in_8_bits ? "fp8" : source.dtype);
    if (peak == device.peak.end()) return std::nullopt;
    longest = std::max(longest, cost.flops->count / peak->second.value);
  }
  return longest + cost.launches * device.launch_overhead.value;
}

/// The whole's seconds, in the proportion in which the trace has the part's to the whole's.
std::optional<double> in_proportion(std::optional<double> whole, const std::optional<Seconds>& part,
                                    const std::optional<Seconds>& of) {
  if (!whole || !part || !of || of->value == 0) return whole;
  return *whole * (part->value / of->value);
}

/// By measured efficiencies, of an op that was not measured on the device; an update only where no rate of Adam is.
std::optional<double> seconds_by_efficiency(const Graph& graph, const Op& op, const Device& device) {
  const bool is_measured = as_measured(graph.source, device) && op.duration;
  const bool by_adam = op.phase == Phase::update && device.adam;
  if (!device.efficiency || is_measured || by_adam) return std::nullopt;
  const std::optional<KernelTime> found = device.efficiency->time(graph, op, device);
  return found ? std::optional(found->time.value) : std::nullopt;
}

/// A stage that is known to have kernels in 8 bits and in the trace's type: those of its list in turn.
std::optional<double> seconds_of_op_as_scaled(const Graph& graph, const Op& op, const Device& device) {
  const Source& source = graph.source;
  double sum = 0;
  bool is_mixed = false;
  for (const StageKernel& kernel : op.made_of) is_mixed |= kernel.kernel.dtype == "fp8";
  if (!is_mixed || (as_measured(source, device) && op.duration)) {
    return seconds_of({op.duration, op.flops, op.bytes_moved, op.launches, op.traffic, reads_8_bits(graph, op)}, source,
                      device, op.phase == Phase::update);
  }
  for (const StageKernel& kernel : op.made_of) {
    const std::optional<double> own =
        seconds_of({std::nullopt, kernel.work.flops, kernel.work.bytes, kernel.work.launches, kernel.work.traffic,
                    kernel.kernel.dtype == "fp8"},
                   source, device);
    if (!own) return std::nullopt;
    sum += kernel.count * *own;
  }
  return sum;
}

std::optional<double> seconds_of_first_run(const Graph& graph, const Op& op, const Device& device, bool keeps,
                                           std::uint32_t implementation) {
  if (collective_of(op)) return op.duration ? std::optional(op.duration->value) : std::nullopt;
  const Source& source = graph.source;
  const bool is_update = op.phase == Phase::update;
  const std::optional<double> by_efficiency = seconds_by_efficiency(graph, op, device);
  const std::optional<double> plain = by_efficiency ? by_efficiency : seconds_of_op_as_scaled(graph, op, device);
  if (implementation > 0) {
    const Alternative& way = op.alternatives[implementation - 1];
    const std::optional<double> own = seconds_of({way.duration, way.flops, way.bytes_moved}, source, device);
    return own || !way.duration || !op.duration ? own : in_proportion(plain, way.duration, op.duration);
  }
  if (is_update && !op.duration && device.takes_trace_times) return 0;
  return keeps || !op.nograd_duration ? plain : in_proportion(plain, op.nograd_duration, op.duration);
}

/// An op that runs again, with the network's inputs there, loads none.
std::optional<double> seconds_of_op(const Graph& graph, const Op& op, const Device& device, bool keeps, bool loads,
                                    std::uint32_t implementation) {
  const std::optional<double> first = seconds_of_first_run(graph, op, device, keeps, implementation);
  const bool has_load = op.load.value > 0 && implementation == 0 && as_measured(graph.source, device);
  return first && has_load && !loads ? *first - std::min(*first, op.load.value) : first;
}

/// Of one of so many micro-batches, with measured efficiencies: a kernel reads each gradient that the op makes and its
/// sum, and writes that, for all but the first micro-batch, each with its part. Products make sums of more bytes than
/// the parameter's themselves.
double seconds_of_adding(const Graph& graph, const Op& op, const Device& device, const Schedule& schedule) {
  if (!device.efficiency || !is_backward(op.phase) || as_measured(graph.source, device)) return 0;
  std::int64_t bytes = 0;
  for (const TensorId t : op.outputs) {
    const Tensor& sum = graph[t];
    if (sum.kind != TensorKind::parameter_gradient) continue;
    if (!sum.gradient_of || graph[*sum.gradient_of].bytes >= sum.bytes) bytes += 3 * sum.bytes.count;
  }
  const double all = device.efficiency->moving(static_cast<double>(bytes), device).value;
  return schedule.gradients == Gradients::existing ? all : all - all / schedule.micro_batches;
}

/// An update: what it moves, by the op or else all that it reads and writes, at the rate at which Adam moves seven
/// times its fp32 parameters, and no faster than the host's memory. Other ops: the longer of computing and moving.
std::optional<double> seconds_by_host(const Graph& graph, const Op& op, const Memory& host) {
  for (const auto& [name, value] : op.attributes) {  // pinned: its time is the host's
    if (name == "device" && value == "host") return op.duration ? std::optional(op.duration->value) : std::nullopt;
  }
  if (op.phase != Phase::update) {
    Device processor;
    processor.peak = host.peak;
    processor.memory_bandwidth = host.bandwidth;
    return seconds_of({{}, op.flops, op.bytes_moved}, graph.source, processor);
  }
  if (!host.adam) return std::nullopt;
  std::int64_t moved = 0;
  for (const TensorId t : op.inputs) moved += graph[t].bytes.count;
  for (const TensorId t : op.mutates) moved += graph[t].bytes.count;
  const auto bytes = static_cast<double>(op.bytes_moved ? op.bytes_moved->count : moved);
  const double computing = bytes / (7 * host.adam->value);
  return host.bandwidth ? std::max(computing, bytes / host.bandwidth->value) : computing;
}

/// Whether a kernel waits for its device's memory rather than for its processor: sums of gradients and packing do.
bool waits_for_memory(const Graph& graph, OpId id, const Device& device) {
  if (id == no_op) return true;
  const Op& op = graph[id];
  if (!op.bytes_moved || !device.memory_bandwidth) return false;
  const double moving = op.traffic * static_cast<double>(op.bytes_moved->count) / device.memory_bandwidth->value;
  const double flops = op.flops ? op.flops->count : 0;
  if (flops == 0) return true;
  const auto peak = device.peak.find(reads_8_bits(graph, op) ? "fp8" : graph.source.dtype);
  return peak != device.peak.end() && moving >= flops / peak->second.value;
}

/// Storages of the forward that depend on the network's inputs, whose bytes are in proportion to samples.
std::set<StorageId> of_samples(const Graph& graph) {
  std::set<StorageId> found;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || op.is_view) continue;
    bool is_reached = false;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::input) found.insert(graph[t].storage);
      is_reached |= found.contains(graph[t].storage);
    }
    for (const TensorId t : op.outputs) {
      if (is_reached) found.insert(graph[t].storage);
    }
  }
  return found;
}

bool reads_one_of(const Graph& graph, const Op& op, const std::set<StorageId>& storages) {
  return std::ranges::any_of(op.inputs, [&](TensorId t) { return storages.contains(graph[t].storage); });
}

/// The most that is there at one time of a forward without gradients: the batch from first to last, what an op makes
/// for other ops of the forward from there to the last that reads it, and workspaces.
Bytes bytes_of_evaluation(const Graph& graph, double size) {
  struct Lives {
    std::size_t first = 0, last = 0;
    std::int64_t bytes = 0;
    bool is_there = false;  ///< some forward reads it, or it is made for others than backwards
  };
  const std::set<StorageId> growing = of_samples(graph);
  const auto scaled = [size](Bytes bytes, bool grows) {
    return static_cast<std::int64_t>(std::ceil((grows ? size : 1) * static_cast<double>(bytes.count)));
  };
  std::map<StorageId, Lives> lives;
  const auto life_of = [&](TensorId t, std::size_t o) -> Lives& {
    const StorageId storage = graph[t].storage;
    return lives.try_emplace(storage, Lives{o, o, scaled(graph[t].bytes, growing.contains(storage))}).first->second;
  };
  std::vector<std::int64_t> change(graph.ops.size() + 1, 0);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::forward || op.is_view) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter || graph[t].kind == TensorKind::optimizer_state) continue;
      Lives& storage = life_of(t, o);
      storage.last = o;
      storage.is_there = true;
      if (graph[t].kind == TensorKind::input) storage = {0, graph.ops.size() - 1, storage.bytes, true};
    }
    for (const TensorId t : op.outputs) {
      if (is_given(graph[t].kind)) continue;
      Lives& storage = life_of(t, o);
      storage.last = std::max(storage.last, o);
      storage.is_there |= std::ranges::find(op.saved, t) == op.saved.end();
    }
  }
  for (const auto& [id, storage] : lives) {
    if (!storage.is_there) continue;
    change[storage.first] += storage.bytes;
    change[storage.last + 1] -= storage.bytes;
  }
  std::int64_t now = 0, most = 0;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    now += change[o];
    const Op& op = graph.ops[o];
    if (op.phase != Phase::forward || op.is_view) continue;
    const Bytes workspace = op.nograd_workspace.value_or(op.workspace);
    most = std::max(most, now + std::max(std::int64_t{0}, scaled(workspace, reads_one_of(graph, op, growing))));
  }
  return Bytes{most};
}

std::string written_seconds(std::optional<double> seconds) {
  return seconds ? std::to_string(*seconds) + " s" : "not known on its device";
}

/// Who may have run a device's backward, by the workspaces of its steps so far: a caller stage by stage, or autograd
/// in one call, which repeats nothing.
struct Callers {
  bool by_stage = true, in_one_call = true;
  std::optional<std::uint32_t> first_micro_batch = {};  ///< whose backward comes first
};

class CostJudge final : public Judge {
 public:
  explicit CostJudge(Walk& walk) : Judge(walk), callers_(walk.platform.devices.size()), timed_(walk.graph.ops.size()) {}
  void states(StepId s) override;

 private:
  void judge_cost_of_op(StepId s);
  void judge_cost_on_host(StepId s);
  void judge_cost_of_sum(StepId s);
  void judge_clipping(StepId s);
  void judge_cost_of_evaluation(StepId s);
  void judge_bound(StepId s);
  Bytes workspace_of(const Step& step, bool keeps, bool in_one_call) const;
  std::optional<double> time_of(const Step& step, bool keeps, bool loads);
  void judge_cost_of_copy(StepId s);
  void judge_stream_of_copy(StepId s, BufferId from, BufferId to);

  struct Timed {
    DeviceId device;
    std::uint32_t implementation = 0;
    bool is_known = false;
    std::optional<double> seconds;
  };

  std::vector<Callers> callers_;             ///< by device
  std::vector<std::array<Timed, 4>> timed_;  ///< by op, where it ran last: of runs that keep, and load, what there is
};

void CostJudge::states(StepId s) {
  const Step& step = schedule_[s];
  const bool moves = step.work.is_transfer();
  if (!moves && step.work.bytes != Bytes{0}) report(Rule::malformed, s, text(s) + " moves bytes without a route");
  if (step.measured && step.workspace < Bytes{0}) {
    return report(Rule::wrong_cost, s, text(s) + " declares as measured a workspace below 0, which only a model has");
  }
  judge_bound(s);
  if (step.op != no_op) return judge_cost_of_op(s);
  if (walk_.evaluates(step)) return judge_cost_of_evaluation(s);
  if (moves && step.collective == no_collective) return judge_cost_of_copy(s);
  const bool converts = !moves && step.reads.count + step.writes.count + step.allocates.count > 0;
  if (converts && !walk_.adds_gradients(step) && Walk::is_pair(step)) {
    const auto [from, to] = walk_.pair_of(step);
    return judge_cost_of_packing(walk_, s, from, to);
  }
  if (step.measured) return;
  if (step.workspace != Bytes{0}) report(Rule::wrong_cost, s, text(s) + " has a workspace, which only ops have");
  if (moves) return;  // a collective's flow
  if (walk_.clips(step)) return judge_clipping(s);
  if (converts) return judge_cost_of_sum(s);
  if (step.work.seconds != Seconds{0}) report(Rule::wrong_cost, s, text(s) + " only frees, but takes time");
}

/// Where copies slow kernels that wait for the memory down otherwise, these say so, and no other step does.
void CostJudge::judge_bound(StepId s) {
  const Step& step = schedule_[s];
  const Stream& stream = schedule_[step.stream];
  const Device& device = platform_[stream.device];
  const bool computes = step.op != no_op || step.reads.count + step.writes.count + step.allocates.count > 0;
  const bool is_kernel = computes && stream.way == way::compute && !step.work.is_transfer();
  const bool is_bound =
      is_kernel && !device.memory_overlap_slowdown.empty() && waits_for_memory(graph_, step.op, device);
  if (step.memory_bound == is_bound) return;
  report(Rule::wrong_cost, s,
         text(s) + (is_bound ? " is a kernel that the memory bounds, and does not say so"
                             : " says that the memory bounds it, which does not"));
}

/// A sum of gradients reads both and writes one.
void CostJudge::judge_cost_of_sum(StepId s) {
  const Step& step = schedule_[s];
  const Stream& stream = schedule_[step.stream];
  if (!walk_.adds_gradients(step)) return;  // reported as no conversion
  if (stream.way != way::compute)
    return report(Rule::wrong_place, s,
                  text(s) + " adds gradients on another stream than one on which its device computes");
  const Bytes bytes = schedule_[schedule_.buffers_in(step.writes)[0]].bytes;
  const auto seconds = seconds_of({{}, Flops{0}, 3 * bytes}, graph_.source, platform_[stream.device]).value_or(0);
  if (same(step.work.seconds, seconds)) return;
  report(Rule::wrong_cost, s,
         text(s) + " adds gradients in " + written_seconds(step.work.seconds.value) + "; the model has " +
             written_seconds(seconds));
}

/// What clipping takes is its updates'. It happens where its stream computes, which may be a host.
void CostJudge::judge_clipping(StepId s) {
  const Step& step = schedule_[s];
  const std::optional<MemoryId> at = walk_.ends_of(step).from;
  const Way& way = schedule_[step.stream].way;
  if (!way.computes() || !at || (way != way::compute && platform_[*at].device)) {
    report(Rule::wrong_place, s, text(s) + " clips gradients on a stream that computes on no device or host");
  }
  if (step.work.seconds == Seconds{0}) return;
  report(Rule::wrong_cost, s, text(s) + " clips gradients, but takes time of its own");
}

/// Each op of the forward once, without what only backwards read, on a batch of so many micro-batches.
void CostJudge::judge_cost_of_evaluation(StepId s) {
  const Step& step = schedule_[s];
  if (step.measured) return;
  const Evaluation& evaluation = *schedule_.evaluation;
  const Device& device = platform_[schedule_[step.stream].device];
  const std::set<StorageId> growing = of_samples(graph_);
  double computing = 0, beside = 0;
  std::optional<double> forward = 0;
  for (const Op& op : graph_.ops) {
    if (op.phase != Phase::forward || op.is_view || !forward) continue;
    const std::optional<double> seconds = seconds_of_op(graph_, op, device, false, true, 0);
    const bool is_kernel = !collective_of(op) && !as_measured(graph_.source, device);
    const double launches = is_kernel ? op.launches * device.launch_overhead.value : 0;
    const double growth = reads_one_of(graph_, op, growing) ? evaluation.size - 1 : 0;
    const double grown = seconds ? *seconds + growth * std::max(0.0, *seconds - launches) : 0;
    const double issue = op.kernels.value_or(op.launches) * device.host_launch.value;
    (runs_beside(op) ? beside : computing) += std::max(grown, issue);
    forward = seconds ? std::optional(std::max(computing, beside)) : std::nullopt;
  }
  if (forward) *forward *= static_cast<double>(evaluation.batches) / evaluation.every;
  const Bytes bytes = bytes_of_evaluation(graph_, evaluation.size);
  if (same(step.work.seconds, forward) && step.workspace == bytes) return;
  report(Rule::wrong_cost, s,
         text(s) + " evaluates in " + written_seconds(step.work.seconds.value) + " and " +
             std::to_string(step.workspace.count) + " B; the model has " + written_seconds(forward) + " and " +
             std::to_string(bytes.count) + " B");
}

void CostJudge::judge_cost_on_host(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  const std::optional<MemoryId> host = walk_.ends_of(step).from;
  if (!host || platform_[*host].device) {
    return report(Rule::wrong_place, s,
                  text(s) + " computes in a place that is neither its device nor that device's host");
  }
  if (step.measured) return;
  const std::optional<double> seconds = seconds_by_host(graph_, op, platform_[*host]);
  if (!same(step.work.seconds, seconds)) {
    report(Rule::wrong_cost, s,
           text(s) + " states " + written_seconds(step.work.seconds.value) + ", but its time on the host is " +
               written_seconds(seconds));
  }
  const bool is_update = op.phase == Phase::update;
  const auto is_its = [&](bool keeps) { return step.workspace == workspace_of(step, keeps, false); };
  if (is_update ? step.workspace != Bytes{0} : !is_its(true) && !is_its(false)) {
    report(Rule::wrong_cost, s, text(s) + " has another workspace than its op on a host");
  }
}

/// What the op needs beside inputs and outputs: of its implementation; in a backward by whether its gradients are there
/// (in one call of autograd's: were there before it), in a forward by whether it keeps what is only saved.
Bytes CostJudge::workspace_of(const Step& step, bool keeps, bool in_one_call) const {
  const Op& op = graph_[step.op];
  if (step.implementation > 0) return op.alternatives[step.implementation - 1].workspace;
  bool makes_gradient = false,
       is_there = !in_one_call || schedule_.gradients == Gradients::existing ||
                  step.micro_batch != callers_[schedule_[step.stream].device.index].first_micro_batch;
  for (const TensorId t : op.outputs) {
    if (graph_[t].kind != TensorKind::parameter_gradient) continue;
    makes_gradient = true;
    if (!in_one_call) is_there &= !walk_.fills(step.allocates, t);
  }
  const bool accumulates = makes_gradient && is_there;
  if (in_one_call) {
    const std::optional<Bytes>& own = accumulates ? op.released_accumulate_workspace : op.released_workspace;
    if (own) return *own;
  }
  if (accumulates) return op.accumulate_workspace.value_or(op.workspace);
  return keeps ? op.workspace : op.nograd_workspace.value_or(op.workspace);
}

/// On its device, where a run of another micro-batch takes as long.
std::optional<double> CostJudge::time_of(const Step& step, bool keeps, bool loads) {
  const DeviceId on = schedule_[step.stream].device;
  Timed& timed = timed_[step.op.index][(keeps ? 2U : 0U) + (loads ? 1U : 0U)];
  if (timed.is_known && timed.device == on && timed.implementation == step.implementation) return timed.seconds;
  const Op& op = graph_[step.op];
  timed = {on, step.implementation, true, seconds_of_op(graph_, op, platform_[on], keeps, loads, step.implementation)};
  if (timed.seconds) *timed.seconds += seconds_of_adding(graph_, op, platform_[on], schedule_);
  return timed.seconds;
}

/// Which of an op's costs are the step's: one that keeps what is only saved makes it, one that keeps nothing does not.
/// Where that does not tell, because it is there already or is nothing, either may be stated, but time and workspace
/// of the same. A forward that keeps nothing may have followed gradients all the same, as a checkpoint without
/// reentrance does, and then takes the time of one that keeps.
void CostJudge::judge_cost_of_op(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  const Stream& stream = schedule_[step.stream];
  if (!stream.way.computes()) return report(Rule::wrong_place, s, text(s) + " computes on a stream of copies");
  if (stream.way == way::network && !runs_beside(op)) {
    return report(Rule::wrong_place, s, text(s) + " is not a collective that overlaps with its device's computation");
  }
  if (stream.way != way::compute && stream.way != way::network) return judge_cost_on_host(s);
  if (step.measured) return;
  bool may_keep = true, may_drop = true;
  for (const TensorId t : op.saved) {
    const bool is_new = walk_.fills(step.allocates, t);
    may_keep &= is_new || walk_.fills(step.writes, t) || walk_.is_live(t, step);
    may_drop &= !is_new;
  }
  if (!may_keep && !may_drop) return report(Rule::wrong_output, s, text(s) + " makes only a part of what it saves");
  Callers& callers = callers_[stream.device.index];
  if (walk_.runs_of(step) > 0 || !schedule_.updates.are_synchronous()) callers.in_one_call = false;
  if (is_backward(op.phase) && !callers.first_micro_batch) callers.first_micro_batch = step.micro_batch;
  const bool loads = std::ranges::any_of(schedule_.buffers_in(step.allocates), [&](BufferId b) {
    return graph_[schedule_[b].tensor].kind == TensorKind::input;
  });
  const std::optional<ProductCost> product = product_on_packed(walk_, step);
  const Bytes gathered{product ? product->workspace : 0};
  Callers match{false, false};
  for (const bool keeps : {true, false}) {
    if ((match.by_stage || !callers.by_stage) && (match.in_one_call || !callers.in_one_call)) break;
    const bool follows_only = keeps && !may_keep && op.phase == Phase::forward;
    if (!(keeps ? may_keep || follows_only : may_drop)) continue;
    const std::optional<double> seconds = product ? product->seconds : time_of(step, keeps, loads);
    const bool is_share = as_measured(graph_.source, platform_[stream.device]) && seconds.has_value();
    const auto released = is_share ? std::optional(op.released_share * *seconds) : seconds;
    match.by_stage |= callers.by_stage && same(step.work.seconds, seconds) &&
                      step.workspace == workspace_of(step, keeps && may_keep, false) + gathered;
    match.in_one_call |= callers.in_one_call && same(step.work.seconds, released) &&
                         step.workspace == workspace_of(step, keeps && may_keep, true) + gathered;
  }
  const Callers before = callers;
  callers.by_stage = before.by_stage && match.by_stage;
  callers.in_one_call = before.in_one_call && match.in_one_call;
  if (callers.by_stage || callers.in_one_call) return;
  callers = before;
  const bool keeps = !may_drop;
  const std::optional<double> seconds = product ? product->seconds : time_of(step, keeps, loads);
  report(Rule::wrong_cost, s,
         text(s) + " states " + written_seconds(step.work.seconds.value) + " and a workspace of " +
             std::to_string(step.workspace.count) + " B; the model has " + written_seconds(seconds) + " and " +
             std::to_string((workspace_of(step, keeps, !before.by_stage) + gathered).count) + " B");
}

void CostJudge::judge_cost_of_copy(StepId s) {
  const Step& step = schedule_[s];
  const std::size_t filled = step.writes.count + step.allocates.count;
  if (step.reads.count != 1 || filled != 1) return;  // reported as no copy
  const BufferId from = schedule_.buffers_in(step.reads)[0];
  const BufferId to = schedule_.buffers_in(step.allocates.count == 1 ? step.allocates : step.writes)[0];
  judge_stream_of_copy(s, from, to);
  const Bytes bytes = schedule_[to].bytes;
  if (step.work.bytes < bytes) report(Rule::wrong_value, s, to, "moves fewer bytes than are in");
  if (step.measured) return;
  if (step.work.bytes > bytes) report(Rule::wrong_cost, s, to, "moves more bytes than are in");
  if (step.work.seconds != Seconds{0}) {
    report(Rule::wrong_cost, s, text(s) + " takes time in addition to its route's latency and its bytes");
  }
  if (step.workspace != Bytes{0}) report(Rule::wrong_cost, s, text(s) + " has a workspace, which only ops have");
}

/// A copy runs on a stream of its way, which begins or ends at its device or at the device's host. What moves towards
/// the device is called a prefetch, what moves away an offload; between devices it may be sent, too.
void CostJudge::judge_stream_of_copy(StepId s, BufferId from, BufferId to) {
  const Step& step = schedule_[s];
  const std::optional<MemoryId> begin = walk_.ends_of(step).from, end = walk_.ends_of(step).to,
                                host = walk_.ends_of(step).host;
  const MemoryId own = platform_[schedule_[step.stream].device].memory;
  const auto is_at_an_end = [&](std::optional<MemoryId> m) { return m && (begin == m || end == m); };
  const bool fits = begin && end && begin != end && schedule_[from].memory == begin && schedule_[to].memory == end &&
                    (is_at_an_end(own) || is_at_an_end(host));
  if (!fits)
    report(Rule::wrong_place, s,
           text(s) + " copies between other memories than its stream does, or than its device's and its host's");
  const bool is_inward = end == own || (end == host && begin != own);
  const bool is_named = step.kind == (is_inward ? StepKind::prefetch : StepKind::offload) ||
                        (step.kind == StepKind::send && walk_.is_between_devices(step));
  if (fits && !is_named)
    report(
        Rule::malformed, s,
        text(s) + " must be of kind 'prefetch' towards its device, 'offload' away from it, or 'send' between devices");
  if (!walk_.route(step.work.route)) report(Rule::wrong_place, s, text(s) + " copies over a route that does not exist");
}

}  // namespace

std::unique_ptr<Judge> cost_judge(Walk& walk) {
  return std::make_unique<CostJudge>(walk);
}

}  // namespace plimsoll
