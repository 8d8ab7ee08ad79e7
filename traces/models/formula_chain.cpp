#include "traces/models/formula_chain.h"

#include <string>
#include <utility>
#include <variant>

#include "sim/core/platform.h"
#include "sim/io/input_error.h"
#include "sim/model/problem.h"
#include "sim/model/stage_chain.h"
#include "sim/model/stage_kernels.h"

namespace plimsoll {
namespace {

/// One device that takes the times of the graph.
Platform any_platform() {
  Platform platform;
  platform.name = "any";
  platform.memories.push_back({.name = "memory", .capacity = std::nullopt});
  Device device;
  device.name = "device";
  device.takes_trace_times = true;
  platform.devices.push_back(std::move(device));
  return platform;
}

template <class Value>
Value value_of(std::variant<Value, std::string> made, std::string_view model) {
  if (const std::string* why = std::get_if<std::string>(&made))
    throw InputError(std::string(model) + ": view: no chain: " + *why);
  return std::get<Value>(std::move(made));
}

}  // namespace

Chain formula_chain(const Graph& graph, std::string_view model) {
  Problem planned =
      value_of(as_chain(value_of(make_problem(graph, any_platform(), {}), model), Backward::whole), model);
  Chain chain = *std::move(planned.chain);
  chain.source = graph.source;
  for (Stage& stage : chain.stages) {
    stage.forward_flops = stage.backward_flops = Flops{0};
    stage.forward_bytes_moved = stage.backward_bytes_moved = Bytes{0};
  }
  for (const Op& op : graph.ops) {
    Stage& stage = chain.stages.at(op.stage);
    const bool is_forward = op.phase == Phase::forward;
    Flops& flops = is_forward ? *stage.forward_flops : *stage.backward_flops;
    flops = Flops{flops.count + op.flops.value_or(Flops{0}).count};
    (is_forward ? *stage.forward_bytes_moved : *stage.backward_bytes_moved) += op.bytes_moved.value_or(Bytes{0});
  }
  add_kernels(chain, graph, [](std::uint32_t stage) { return stage; });
  return chain;
}

}  // namespace plimsoll
