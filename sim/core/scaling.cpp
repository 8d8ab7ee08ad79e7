#include "sim/core/scaling.h"

#include <algorithm>

#include "sim/core/collective_op.h"
#include "sim/core/device_name.h"
#include "sim/core/op_attribute.h"

namespace plimsoll {
namespace {

std::string_view computing_dtype(const Source& source, const OpCost& cost) {
  return cost.dtype.empty() ? std::string_view(source.dtype) : cost.dtype;
}

/// What else the device could compute in.
std::string other_dtypes(const Device& device) {
  if (device.peak.empty()) return "";
  std::string known;
  for (const auto& [dtype, rate] : device.peak) known += (known.empty() ? "" : ", ") + dtype;
  return ", only for " + known + ": give the trace one of these (source.dtype; transformer:...,dtype=)";
}

constexpr std::string_view float8_dtype = "fp8";  // as platforms write it

/// On the hardware that the trace was measured on, of an op that was not measured: an optimizer's update, say.
std::string missing_time(const Source& source, const Device& device, const std::string& op, const OpCost& cost) {
  const std::string why =
      "'" + op + "' has no time in the trace (time_s), and it cannot be worked out for '" + device.model + "': ";
  if (!cost.flops || !cost.bytes_moved) {
    return why + "the trace has no " + (cost.flops ? "bytes moved" : "flops") + " for it";
  }
  if (!device.memory_bandwidth) return why + "device '" + device.name + "' of the platform has no memory_bandwidth";
  const std::string whose = cost.dtype.empty() ? ", the trace's dtype" : ", in which it computes";
  return why + "device '" + device.name + "' of the platform has no peak of " +
         std::string(computing_dtype(source, cost)) + whose;
}

std::string refusal(const Source& source, const Device& device, const std::string& op, const OpCost& cost) {
  const std::string called = device.model.empty() ? device.name : device.model;
  if (times_hold(source, device)) return missing_time(source, device, op, cost);
  const std::string from =
      source.device.empty() ? "times are of no device" : "times were measured on '" + source.device + "'";
  const bool seems_same = seems_same_device(source.device, device.model);
  std::string why = from + " and cannot be re-scaled to '" + called + "'" +
                    (seems_same ? " (which seems to be that hardware under another name)" : "") + ": ";
  if (!cost.flops || !cost.bytes_moved) {
    return why + "'" + op + "' has no " + (cost.flops ? "bytes moved" : "flops") + " in the trace";
  }
  if (!peak_of(device, computing_dtype(source, cost))) {
    const std::string known = cost.dtype.empty() ? other_dtypes(device) : ", in which '" + op + "' computes";
    return why + "the platform gives no peak for " + std::string(computing_dtype(source, cost)) + known;
  }
  return why + "the platform gives no memory bandwidth";
}

OpCost forward_cost(const Stage& s) {
  return {s.forward, s.forward_flops, s.forward_bytes_moved};
}
OpCost backward_cost(const Stage& s) {
  return {s.backward, s.backward_flops, s.backward_bytes_moved};
}

OpCost cost_of(const Graph& graph, const Op& op) {
  return {op.duration, op.flops, op.bytes_moved, op.launches, op.traffic, computed_in(graph, op)};
}

std::optional<Seconds> duration_of_alternative(const Op& op, const Source& source, const Device& device,
                                               const Alternative& way) {
  const std::optional<Seconds> own = duration({way.duration, way.flops, way.bytes_moved}, source, device);
  if (own || !way.duration || !op.duration) return own;
  const std::optional<Seconds> whole = duration({op.duration, op.flops, op.bytes_moved}, source, device);
  if (!whole || op.duration->value == 0) return whole;
  return (*way.duration / *op.duration) * *whole;
}

}  // namespace

Bytes workspace(const Op& op, Saving saving, bool accumulates, std::uint32_t implementation, Backprop backprop) {
  if (implementation > 0) return op.alternatives[implementation - 1].workspace;
  if (backprop == Backprop::in_one_call) {
    const std::optional<Bytes>& released = accumulates ? op.released_accumulate_workspace : op.released_workspace;
    if (released) return *released;
  }
  if (accumulates) return op.accumulate_workspace.value_or(op.workspace);
  return saving == Saving::nothing ? op.nograd_workspace.value_or(op.workspace) : op.workspace;
}

std::string_view computed_in(const Graph& graph, const Op& op) {
  if (op.inputs.empty()) return {};
  if (multiplies_8_bits(op)) return float8_dtype;
  const std::string& dtype = graph[op.inputs.front()].dtype;
  return dtype.starts_with(float8_dtype) || dtype.starts_with("float8") ? float8_dtype : std::string_view{};
}

bool times_hold(const Source& source, const Device& device) {
  return device.takes_trace_times || (!source.device.empty() && source.device == device.model);
}

Seconds within(Backprop backprop, const Op& op, const Source& source, const Device& device, Seconds by_stage) {
  const bool is_share = backprop == Backprop::in_one_call && times_hold(source, device);
  return is_share ? op.released_share * by_stage : by_stage;
}

namespace {

/// With another rate than that of its memory.
std::optional<Seconds> duration_at(const std::optional<BytesPerSecond>& moves, const OpCost& cost, const Source& source,
                                   const Device& device) {
  if (cost.measured && times_hold(source, device)) return cost.measured;
  if (device.takes_trace_times) return std::nullopt;
  if (!cost.flops || !cost.bytes_moved) return std::nullopt;
  const bool computes = cost.flops->count > 0;
  const std::optional<FlopsPerSecond> peak = computes ? peak_of(device, computing_dtype(source, cost)) : std::nullopt;
  if ((computes && !peak) || !moves) return std::nullopt;
  const Seconds computing = computes ? *cost.flops / *peak : Seconds{0};
  const Seconds moving = cost.traffic * (*cost.bytes_moved / *moves);
  if (cost.flops->count == 0 && *cost.bytes_moved == Bytes{0}) return Seconds{0};  // nothing is launched
  return std::max(computing, moving) + cost.launches * device.launch_overhead;
}

}  // namespace

std::optional<Seconds> duration(const OpCost& cost, const Source& source, const Device& device) {
  return duration_at(device.memory_bandwidth, cost, source, device);
}

Seconds load_on(const Graph& graph, const Op& op, const Device& device, Saving saving) {
  if (op.load == Seconds{0} || !times_hold(graph.source, device)) return Seconds{0};
  const std::optional<Seconds> whole = duration(graph, op, device, saving);
  return whole ? std::min(op.load, *whole) : Seconds{0};
}

namespace {

/// Whether some kernels compute in 8 bits, and others in the source's type.
bool has_8_bits(const StageKernels& kernels) {
  return std::ranges::any_of(kernels, [](const StageKernel& each) { return each.kernel.dtype == float8_dtype; });
}

/// Of kernels that compute in several types, one after the other.
std::optional<Seconds> duration_of_each(const StageKernels& kernels, const Source& source, const Device& device) {
  Seconds sum;
  for (const StageKernel& each : kernels) {
    const KernelWork& work = each.work;
    const std::string_view dtype = each.kernel.dtype == float8_dtype ? float8_dtype : std::string_view{};
    const auto own = duration({{}, work.flops, work.bytes, work.launches, work.traffic, dtype}, source, device);
    if (!own) return std::nullopt;
    sum += each.count * *own;
  }
  return sum;
}

/// By the device's efficiencies; nothing where it has none for the op, or the trace's time holds.
std::optional<KernelTime> time_by_efficiency(const Graph& graph, const Op& op, const Device& device) {
  if (!device.efficiency || (op.duration && times_hold(graph.source, device))) return std::nullopt;
  if (op.phase == Phase::update && device.adam) return std::nullopt;
  return device.efficiency->time(graph, op, device);
}

}  // namespace

std::optional<TimedBy> timed_by(const Graph& graph, const Op& op, const Device& device) {
  if (is_pinned_to_host(op) || collective_of(op) || times_hold(graph.source, device)) return std::nullopt;
  const std::optional<KernelTime> found = time_by_efficiency(graph, op, device);
  return found ? found->by : TimedBy::roofline;
}

bool is_memory_bound(const Graph& graph, const Op& op, const Device& device) {
  if (device.memory_overlap_slowdown.empty() || !op.bytes_moved || !device.memory_bandwidth) return false;
  const std::optional<FlopsPerSecond> peak = peak_of(device, computing_dtype(graph.source, cost_of(graph, op)));
  const Flops flops = op.flops.value_or(Flops{0});
  if (flops.count == 0) return true;
  return peak && op.traffic * (*op.bytes_moved / *device.memory_bandwidth) >= flops / *peak;
}

std::optional<Seconds> duration(const Graph& graph, const Op& op, const Device& device, Saving saving,
                                std::uint32_t implementation) {
  const Source& source = graph.source;
  if (is_pinned_to_host(op) || collective_of(op)) return op.duration;
  if (implementation > 0) return duration_of_alternative(op, source, device, op.alternatives[implementation - 1]);
  if (op.duration && times_hold(source, device)) {
    return saving == Saving::nothing && op.nograd_duration ? op.nograd_duration : op.duration;
  }
  if (op.phase == Phase::update && device.takes_trace_times) return Seconds{0};
  const std::optional<BytesPerSecond> moves =
      op.phase == Phase::update ? update_traffic(device) : device.memory_bandwidth;
  const std::optional<KernelTime> measured = time_by_efficiency(graph, op, device);
  const std::optional<Seconds> whole = measured ? measured->time
                                       : has_8_bits(op.made_of)
                                           ? duration_of_each(op.made_of, source, device)
                                           : duration_at(moves, cost_of(graph, op), source, device);
  if (!whole || saving == Saving::keep || !op.nograd_duration || !op.duration) return whole;
  return op.duration->value > 0 ? (*op.nograd_duration / *op.duration) * *whole : *whole;
}

std::optional<KernelTime> KernelTimes::time(const StageKernels& kernels, const Source& source,
                                            const Device& device) const {
  if (kernels.empty()) return std::nullopt;
  KernelTime sum{};
  Seconds longest{-1};
  for (const StageKernel& each : kernels) {
    const std::optional<KernelTime> found = time(each, source, device);
    if (!found) return std::nullopt;
    sum.time += found->time;
    if (found->time > longest) sum.by = found->by;
    longest = std::max(longest, found->time);
  }
  return sum;
}

namespace {

/// Of a stage's forward or backward.
std::optional<Seconds> duration(const OpCost& cost, const StageKernels& kernels, const Source& source,
                                const Device& device) {
  const std::optional<KernelTime> found =
      device.efficiency ? device.efficiency->time(kernels, source, device) : std::nullopt;
  if (found) return found->time;
  return has_8_bits(kernels) ? duration_of_each(kernels, source, device) : duration(cost, source, device);
}

/// As it is refused: by the type that the device lacks.
OpCost lacking(OpCost cost, const StageKernels& kernels, const Device& device) {
  if (has_8_bits(kernels) && !peak_of(device, float8_dtype)) cost.dtype = float8_dtype;
  return cost;
}

/// Which part of the backward makes gradients of parameters: as its kernels say, else as the trace has it.
double weight_share(const Stage& stage, const Source& source, const Device& device) {
  if (device.efficiency || has_8_bits(stage.backward_made_of)) {
    const auto time_of = [&](const StageKernels& kernels) { return duration({}, kernels, source, device); };
    const auto part = time_of(part_of_backward(stage, true)), whole = time_of(stage.backward_made_of);
    if (part && whole && *whole > Seconds{0}) return *part / *whole;
  }
  return stage.backward.value > 0 ? stage.backward_weight / stage.backward : 0.0;
}

}  // namespace

ScaledChain scaled_to(Chain chain, const Device& device) {
  ScaledChain scaled{std::move(chain), false, {}};
  const Source& source = scaled.chain.source;
  if (times_hold(source, device)) return scaled;
  scaled.rescaled = true;
  for (Stage& stage : scaled.chain.stages) {
    stage.load = Seconds{0};
    const auto forward = duration(forward_cost(stage), stage.forward_made_of, source, device);
    const auto backward = duration(backward_cost(stage), stage.backward_made_of, source, device);
    if (!forward || !backward) {
      const OpCost cost = forward ? lacking(backward_cost(stage), stage.backward_made_of, device)
                                  : lacking(forward_cost(stage), stage.forward_made_of, device);
      scaled.refused = refusal(source, device, stage.name, cost);
      return scaled;
    }
    const double nograd_share = stage.forward.value > 0 ? stage.forward_nograd / stage.forward : 1.0;
    const double weight = weight_share(stage, source, device);
    stage.forward = *forward;
    stage.backward = *backward;
    stage.forward_nograd = nograd_share * *forward;
    stage.backward_weight = weight * *backward;
  }
  return scaled;
}

std::optional<std::string> no_times(const Graph& graph, const Device& device) {
  for (const Op& op : graph.ops) {
    if (is_pinned_to_host(op)) {
      if (!op.duration) return "'" + op.name + "' is pinned to the host and has no time in the trace";
      continue;
    }
    for (std::uint32_t k = 1; k <= op.alternatives.size(); ++k) {
      const Alternative& way = op.alternatives[k - 1];
      if (duration(graph, op, device, Saving::keep, k)) continue;
      const std::string name = op.name + ", " + way.name;
      if (device.takes_trace_times)
        return "'" + name + "' has no time in the trace, and '" + device.name + "' has no rates";
      return refusal(graph.source, device, name, {way.duration, way.flops, way.bytes_moved});
    }
    if (duration(graph, op, device, Saving::keep)) continue;
    if (device.takes_trace_times)
      return "'" + op.name + "' has no time in the trace, and '" + device.name + "' has no rates";
    return refusal(graph.source, device, op.name, cost_of(graph, op));
  }
  return std::nullopt;
}

}  // namespace plimsoll
