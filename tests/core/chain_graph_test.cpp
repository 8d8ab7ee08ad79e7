// A chain as a graph, its tape with drops, its times on other devices, its bounds.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/core/scaling.h"
#include "sim/core/tape.h"
#include "sim/measure/lower_bounds.h"
#include "sim/model/chain_graph.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

std::vector<std::string> names(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> list;
  list.reserve(tensors.size());
  for (const TensorId t : tensors) list.push_back(graph[t].name);
  return list;
}

using Names = std::vector<std::string>;

TEST_CASE("ops 0..n-1 of a chain's graph are its forwards, then come the backwards from the last stage",
          "[chain_graph]") {
  const ChainGraph made = chain_graph(worked_example(), Optimizer::none);
  REQUIRE(made.graph.ops.size() == 6);
  CHECK(made.forward == std::vector<OpId>{OpId{0}, OpId{1}, OpId{2}});
  CHECK(made.backward == std::vector<OpId>{OpId{5}, OpId{4}, OpId{3}});
  CHECK(names(made.graph, made.graph.ops[0].outputs) == Names{"x1", "saved by first"});
  CHECK(names(made.graph, made.graph.ops[4].inputs) == Names{"gradient of x2", "saved by second", "x1", "x2"});
  CHECK(names(made.graph, made.graph.ops[4].outputs) == Names{"gradient of x1"});
  CHECK(made.graph[made.graph.ops[0].saved.at(0)].bytes == Bytes{4});  // saved 7 less its output 3
}

TEST_CASE("a backward does not read the boundary tensors that its stage does not keep, but for the network's input",
          "[chain_graph]") {
  Chain chain = worked_example();
  for (Stage& stage : chain.stages) stage.keeps_input = stage.keeps_output = false;
  const ChainGraph made = chain_graph(chain, Optimizer::none);
  CHECK(names(made.graph, made.graph.ops[4].inputs) == Names{"gradient of x2", "saved by second"});
  CHECK(names(made.graph, made.graph.ops[5].inputs) == Names{"gradient of x1", "saved by first", "x0"});
}

TEST_CASE("shared parameters have one gradient, and adam two states and one update a gradient", "[chain_graph]") {
  Chain chain = worked_example();
  chain.parameters = {{"w", Bytes{5}}, {"v", Bytes{2}}};
  chain.stages[0].parameters = {0, 1};
  chain.stages[1].parameters = {0};
  const ChainGraph made = chain_graph(chain, Optimizer::adam);
  CHECK(bytes_of_kind(made.graph, TensorKind::parameter) == Bytes{7});
  CHECK(bytes_of_kind(made.graph, TensorKind::parameter_gradient) == Bytes{7});
  CHECK(bytes_of_kind(made.graph, TensorKind::optimizer_state) == Bytes{14});
  CHECK(made.updates.size() == 2);
  CHECK(made.graph[made.updates[0]].bytes_moved ==
        Bytes{35});  // 7 B five times: reads w, its gradient, 2 states; writes w, 2 states
}

TEST_CASE("a stated gradient of another size is a tensor of its own, one of 0 bytes means frozen", "[chain_graph]") {
  Chain chain = worked_example();
  chain.parameters = {{"w", Bytes{5}}};
  chain.stages[0].parameters = {0};
  chain.stages[0].parameter_gradient = Bytes{10};
  CHECK(bytes_of_kind(chain_graph(chain, Optimizer::none).graph, TensorKind::parameter_gradient) == Bytes{10});
  chain.stages[0].parameter_gradient = Bytes{0};
  const ChainGraph frozen = chain_graph(chain, Optimizer::adam);
  CHECK(bytes_of_kind(frozen.graph, TensorKind::parameter_gradient) == Bytes{0});
  CHECK(frozen.updates.empty());
}

TEST_CASE("of stages with gradients of their own that share a parameter one updates it", "[chain_graph]") {
  Chain chain = worked_example();
  chain.parameters = {{"w", Bytes{5}}, {"v", Bytes{2}}};
  chain.stages[0].parameters = {0};
  chain.stages[1].parameters = {1, 0};
  chain.stages[0].parameter_gradient = Bytes{3};
  const auto second = GENERATE(std::optional<Bytes>{}, std::optional(Bytes{4}));
  chain.stages[1].parameter_gradient = second;
  const ChainGraph made = chain_graph(chain, Optimizer::adam);
  CHECK(bytes_of_kind(made.graph, TensorKind::parameter_gradient) == Bytes{3} + second.value_or(Bytes{7}));
  CHECK(bytes_of_kind(made.graph, TensorKind::optimizer_state) == Bytes{14});
  REQUIRE(made.updates.size() == 2);
  std::size_t updates_of_w = 0;
  for (const OpId update : made.updates) {
    updates_of_w +=
        std::ranges::count_if(made.graph[update].mutates, [&](TensorId t) { return made.graph[t].name == "w"; });
  }
  CHECK(updates_of_w == 1);
}

TEST_CASE("a split backward gives the input gradient first, and keeps for the weights what they need",
          "[chain_graph]") {
  Chain chain = worked_example();
  for (Stage& stage : chain.stages) {
    stage.has_backward_weight = true;
    stage.backward_weight = Seconds{stage.backward.value / 4};
  }
  chain.stages[0].weight_saved = Bytes{1};
  chain.parameters = {{"w", Bytes{5}}};
  chain.stages[0].parameters = {0};
  const ChainGraph made = chain_graph(chain, Optimizer::none, Backward::split);
  REQUIRE(made.graph.ops.size() == 9);
  const Op& input = made.graph[made.backward[0]];
  const Op& weight = made.graph[made.weight[0]];
  CHECK(input.phase == Phase::backward_input);
  CHECK(input.duration == Seconds{1.5});
  CHECK(weight.duration == Seconds{0.5});
  CHECK(names(made.graph, input.outputs) == Names{"gradient of x0"});
  CHECK(names(made.graph, weight.outputs) == Names{"gradient of w"});
  CHECK(names(made.graph, weight.inputs) == Names{"gradient of x1", "saved by first", "x0"});
  CHECK(made.graph[made.graph[made.forward[0]].saved[0]].bytes == Bytes{1});
  CHECK(made.graph[made.graph[made.forward[0]].saved[1]].bytes == Bytes{3});
}

TEST_CASE("the parts of a split backward have workspaces of their own, and hand over what one makes for the other",
          "[chain_graph]") {
  Chain chain = worked_example();  // the first stage saves 7 bytes, 3 of them its output
  for (Stage& stage : chain.stages) stage.has_backward_weight = true;
  Stage& first = chain.stages[0];
  first.weight_saved = Bytes{9};
  first.weight_made = Bytes{6};
  first.weight_keeps_gradient = false;
  first.weight_keeps_output = true;
  first.backward_input_workspace = Bytes{11};
  first.backward_weight_workspace = Bytes{12};
  first.backward_weight_accumulate_workspace = Bytes{13};
  chain.stages[1].weight_keeps_input = false;
  chain.stages[1].backward_weight_workspace = Bytes{14};
  const ChainGraph split = chain_graph(chain, Optimizer::none, Backward::split);
  const Graph& graph = split.graph;
  const Op &input = graph[split.backward[0]], &weight = graph[split.weight[0]];
  CHECK(names(graph, input.outputs) == Names{"gradient of x0", "made by first for its weights"});
  CHECK(names(graph, weight.inputs) == Names{"saved by first", "made by first for its weights", "x0", "x1"});
  CHECK(graph[input.outputs[1]].bytes == Bytes{6});
  CHECK(graph[graph[split.forward[0]].saved[0]].bytes == Bytes{3});
  CHECK(graph[graph[split.forward[0]].saved[1]].bytes == Bytes{1});
  CHECK(input.workspace == Bytes{11});
  CHECK(weight.workspace == Bytes{12});
  CHECK(weight.accumulate_workspace == Bytes{13});
  CHECK(names(graph, graph[split.weight[1]].inputs) == Names{"gradient of x2", "saved by second"});
  CHECK(graph[split.weight[1]].accumulate_workspace == Bytes{14});
  CHECK(graph[split.backward[1]].workspace == chain.stages[1].backward_workspace);
  const ChainGraph whole = chain_graph(chain, Optimizer::none);
  CHECK(names(whole.graph, whole.graph[whole.forward[0]].saved) == Names{"saved by first"});
  CHECK(whole.graph[whole.graph[whole.forward[0]].saved[0]].bytes == Bytes{4});
}

TEST_CASE("what stages list of what they save is apart only where that is asked for", "[chain_graph]") {
  Chain chain = worked_example();
  Stage& stage = chain.stages[1];  // saves 3 bytes beside its output
  stage.inner = {
      {.name = "signs", .bytes = Bytes{1}, .shape = {1}, .dtype = "fp8", .uses = {*layer_use("relu.output")}},
      {.name = "x", .bytes = Bytes{1}, .uses = {*layer_use("linear.input"), *layer_use("bn.input")}}};
  CHECK(chain_graph(chain, Optimizer::none).graph == chain_graph(worked_example(), Optimizer::none).graph);
  const ChainGraph made = chain_graph(chain, Optimizer::none, Backward::whole, States::by_dtype, Inner::apart);
  const Op &forward = made.graph[made.forward[1]], &backward = made.graph[made.backward[1]];
  REQUIRE(forward.saved.size() == 3);
  CHECK(names(made.graph, forward.saved) == Names{"saved by second: signs", "saved by second: x", "saved by second"});
  CHECK(made.graph[forward.saved[0]].shape == std::vector<std::int64_t>{1});
  CHECK(made.graph[forward.saved[0]].dtype == "fp8");
  CHECK(made.graph[forward.saved[2]].bytes == Bytes{1});
  CHECK(backward.uses == std::vector<InputUse>{{forward.saved[0], *layer_use("relu.output")},
                                               {forward.saved[1], *layer_use("linear.input")},
                                               {forward.saved[1], *layer_use("bn.input")}});
  CHECK(made.graph[made.forward[0]].saved.size() == 1);
  CHECK(made.graph[made.backward[0]].uses.empty());
}

TEST_CASE("tensors that pass a stage by are made once and counted once", "[chain_graph]") {
  Chain chain = even_chain(2);
  chain.tensors = {{"in", Bytes{10}}, {"skip", Bytes{4}}, {"a", Bytes{6}}, {"b", Bytes{6}}};
  chain.boundaries = {{0}, {1, 2}, {1, 3}, {}};
  const ChainGraph made = chain_graph(chain, Optimizer::none);
  CHECK(names(made.graph, made.graph[made.forward[0]].outputs) == Names{"skip", "a", "saved by stage 0"});
  CHECK(names(made.graph, made.graph[made.forward[1]].outputs) == Names{"b", "saved by stage 1"});
  CHECK(names(made.graph, made.graph[made.forward[1]].inputs) == Names{"skip", "a"});
  // Of the 15 bytes saved 10 are the output, passed through or made.
  CHECK(made.graph[made.graph[made.forward[1]].saved.at(0)].bytes == Bytes{5});
}

/// in -> (skip, a) -> (skip, b) -> (c) -> loss; the second stage passes skip by, the third reads it.
Chain skip_chain() {
  Chain chain = even_chain(3);
  chain.tensors = {
      {"in", Bytes{10}}, {"skip", Bytes{4}}, {"a", Bytes{6}}, {"b", Bytes{6}}, {"c", Bytes{10}, {}, {}, Bytes{8}}};
  chain.boundaries = {{0}, {1, 2}, {1, 3}, {4}, {}};
  chain.stages[0].tensors = {{0, 1}, {}};
  chain.stages[1].tensors = {{}, {2}};
  chain.stages[2].tensors = {{3, 4}, {1, 3}};
  chain.stages[3].tensors = {{}, {4}};
  return chain;
}

TEST_CASE(
    "a backward reads the kept tensors only, and a gradient exists from its first maker to the tensor's own stage",
    "[chain_graph]") {
  const ChainGraph made = chain_graph(skip_chain(), Optimizer::none);
  const auto inputs = [&](std::size_t stage) { return names(made.graph, made.graph[made.backward[stage]].inputs); };
  const auto outputs = [&](std::size_t stage) { return names(made.graph, made.graph[made.backward[stage]].outputs); };
  CHECK(outputs(3) == Names{"gradient of c"});
  CHECK(made.graph[made.graph[made.backward[3]].outputs[0]].bytes == Bytes{8});
  CHECK(inputs(2) == Names{"gradient of c", "saved by stage 2", "b", "c"});
  CHECK(outputs(2) == Names{"gradient of skip", "gradient of b"});
  CHECK(inputs(1) == Names{"gradient of b", "saved by stage 1"});
  CHECK(outputs(1) == Names{"gradient of a"});
  CHECK(inputs(0) == Names{"gradient of skip", "gradient of a", "saved by stage 0", "in", "skip"});
  CHECK(outputs(0).empty());
}

TEST_CASE("a stage that reads a tensor that passes by adds to its gradient in place", "[chain_graph]") {
  Chain chain = skip_chain();
  chain.stages[1].tensors->gradients = {1, 2};
  const ChainGraph made = chain_graph(chain, Optimizer::none);
  const Op& adding = made.graph[made.backward[1]];
  CHECK(names(made.graph, adding.mutates) == Names{"gradient of skip"});
  CHECK(names(made.graph, adding.outputs) == Names{"gradient of skip and more", "gradient of a"});
  CHECK(made.graph[adding.outputs[0]].storage == made.graph[adding.mutates[0]].storage);
  CHECK(names(made.graph, made.graph[made.backward[0]].inputs).front() == "gradient of skip and more");
}

TEST_CASE("one call of autograd sums a shared parameter's gradient in a buffer of its own", "[chain_graph]") {
  Chain chain = even_chain(4);
  chain.parameters = {{"w", Bytes{100}}};
  for (const std::size_t i : {0U, 1U, 3U}) {
    chain.stages[i].parameters = {0};
    chain.stages[i].backward_accumulate_workspace = Bytes{100};  // the contribution
  }
  chain.stages[0].backward_workspace = chain.stages[1].backward_workspace = Bytes{100};
  const auto released = [&](std::size_t stage) {
    const ChainGraph made = chain_graph(chain, Optimizer::none);
    const Op& op = made.graph[made.backward[stage]];
    return std::pair(workspace(op, Saving::keep, false, 0, Backprop::in_one_call).count,
                     workspace(op, Saving::keep, true, 0, Backprop::in_one_call).count);
  };
  // Stage 3 makes the buffer. Stage 2 has it beside a gradient that exists. Stages 1 and 0 have the contribution and
  // the sum beside the buffer (which is the gradient where it is new).
  CHECK(released(3) == std::pair<std::int64_t, std::int64_t>{0, 100});
  CHECK(released(2) == std::pair<std::int64_t, std::int64_t>{0, 100});
  CHECK(released(1) == std::pair<std::int64_t, std::int64_t>{200, 300});
  CHECK(released(0) == std::pair<std::int64_t, std::int64_t>{200, 300});
  chain.shared = {{0, {3, 1, 0}, true}};
  CHECK(released(1) == std::pair<std::int64_t, std::int64_t>{100, 200});
  chain.stages[1].backward_released_workspace = Bytes{7};  // what is stated stands
  CHECK(released(1) == std::pair<std::int64_t, std::int64_t>{7, 200});
}

TEST_CASE("a chain without a loss gets one that hands its output gradient back", "[chain_graph]") {
  Chain chain = worked_example();
  chain.stages.pop_back();
  const Chain whole = with_loss(chain);
  REQUIRE(whole.stages.size() == 3);
  CHECK(whole.stages[2].output == Bytes{0});
  CHECK(whole.stages[2].input_gradient == Bytes{2});
  CHECK(whole.stages[2].backward == Seconds{0});
  CHECK(with_loss(whole).stages.size() == 3);
}

TEST_CASE("with_drops frees every value behind its last use before it is made again", "[tape]") {
  const ChainGraph made = chain_graph(worked_example(), Optimizer::none);
  Tape tape;
  tape.actions = {run(OpId{0}, Saving::nothing),
                  run(OpId{1}),
                  run(OpId{2}),
                  run(OpId{3}),
                  run(OpId{4}),
                  run(OpId{0}),
                  run(OpId{5})};
  tape = with_drops(made.graph, tape);
  std::string text;
  for (const Action& action : tape.actions) {
    if (action.kind == ActionKind::run) text += "[" + made.graph[action.op].name + "] ";
    if (action.kind == ActionKind::drop) text += "-" + made.graph[action.tensor].name + " ";
  }
  CHECK(text ==
        "[first] [second] [loss] [loss backward] -saved by loss -x3 "
        "[second backward] -gradient of x2 -saved by second -x1 -x2 "
        "[first] [first backward] -gradient of x0 -gradient of x1 -saved by first -x0 -x1 ");
}

Device device_with(std::optional<BytesPerSecond> bandwidth) {
  Device device;
  device.name = "gpu";
  device.model = "fast";
  device.peak = {{"fp32", FlopsPerSecond{100}}};
  device.memory_bandwidth = bandwidth;
  device.launch_overhead = Seconds{0.5};
  return device;
}

TEST_CASE("an alternative is re-scaled by its own work, without it as the op is", "[scaling]") {
  const Device fast = device_with(BytesPerSecond{20});
  Graph of;
  of.source = {.kind = Source::Kind::measured, .device = "another", .dtype = "fp32", .notes = {}};
  Op op{.name = "f", .duration = Seconds{2}, .flops = Flops{400}, .bytes_moved = Bytes{1}};
  op.workspace = Bytes{3};
  op.alternatives = {{.name = "own work", .duration = Seconds{9}, .flops = Flops{0}, .bytes_moved = Bytes{60}},
                     {.name = "measured only", .duration = Seconds{1}, .workspace = Bytes{5}}};
  CHECK(duration(of, op, fast, Saving::keep) == Seconds{4.5});      // 400 / 100 + 0.5
  CHECK(duration(of, op, fast, Saving::keep, 1) == Seconds{3.5});   // 60 / 20 + 0.5
  CHECK(duration(of, op, fast, Saving::keep, 2) == Seconds{2.25});  // half of 4.5, as 1 of 2 measured
  CHECK(workspace(op, Saving::nothing, true, 2) == Bytes{5});
  CHECK(workspace(op, Saving::nothing, true) == Bytes{3});

  Graph graph;
  graph.source = of.source;
  graph.ops = {op};
  CHECK(!no_times(graph, fast));
  graph.ops[0].duration.reset();
  CHECK(no_times(graph, fast) ==
        "times were measured on 'another' and cannot be re-scaled to 'fast': 'f, measured only' has no flops in the "
        "trace");
}

TEST_CASE("where the hardware is the trace's, what is missing for an op that was not measured is named", "[scaling]") {
  Device same = device_with(BytesPerSecond{20});
  same.name = "gpu";
  same.model = "H100";
  Graph graph;
  graph.source = {.kind = Source::Kind::measured, .device = "H100", .dtype = "fp32", .notes = {}};
  graph.ops = {{.name = "update of w", .flops = Flops{0}, .bytes_moved = Bytes{60}}};
  CHECK(!no_times(graph, same));
  same.memory_bandwidth.reset();
  const std::string begin = "'update of w' has no time in the trace (time_s), and it cannot be worked out for 'H100': ";
  CHECK(no_times(graph, same) == begin + "device 'gpu' of the platform has no memory_bandwidth");
  graph.ops[0].flops = Flops{5};
  same.memory_bandwidth = BytesPerSecond{20};
  same.peak.clear();
  CHECK(no_times(graph, same) == begin + "device 'gpu' of the platform has no peak of fp32, the trace's dtype");
  graph.ops[0].bytes_moved.reset();
  CHECK(no_times(graph, same) == begin + "the trace has no bytes moved for it");
}

TEST_CASE("elsewhere an op takes its roofline and a launch; where it was measured, its measured time", "[scaling]") {
  const Source source{.kind = Source::Kind::measured, .device = "slow"};
  const OpCost compute_bound{Seconds{9}, Flops{400}, Bytes{10}}, memory_bound{Seconds{9}, Flops{100}, Bytes{60}};
  const Device fast = device_with(BytesPerSecond{20});
  CHECK(duration(compute_bound, source, fast) == Seconds{4.5});  // 400 / 100 + 0.5
  CHECK(duration(memory_bound, source, fast) == Seconds{3.5});   // 60 / 20 + 0.5
  Device slow = fast;
  slow.model = "slow";
  CHECK(duration(compute_bound, source, slow) == Seconds{9});
  Device ideal;
  ideal.takes_trace_times = true;
  CHECK(duration(compute_bound, source, ideal) == Seconds{9});
  CHECK(!duration({Seconds{9}, std::nullopt, Bytes{1}}, source, fast));
  CHECK(!duration({Seconds{9}, Flops{1}, Bytes{1}}, source, device_with(std::nullopt)));
}

TEST_CASE("a forward that keeps nothing and the weight part of a backward keep their share when re-scaled",
          "[scaling]") {
  Chain chain = worked_example();
  chain.source.device = "slow";
  for (Stage& stage : chain.stages) {
    stage.forward_flops = Flops{350};
    stage.backward_flops = Flops{750};
    stage.forward_bytes_moved = stage.backward_bytes_moved = Bytes{1};
  }
  chain.stages[0].forward_nograd = Seconds{0.5};
  chain.stages[0].backward_weight = Seconds{0.5};
  const ScaledChain scaled = scaled_to(chain, device_with(BytesPerSecond{20}));
  CHECK(scaled.rescaled);
  CHECK(scaled.refused.empty());
  CHECK(scaled.chain.stages[0].forward == Seconds{4});         // 350 / 100 + 0.5
  CHECK(scaled.chain.stages[0].forward_nograd == Seconds{2});  // half of it, as measured
  CHECK(scaled.chain.stages[0].backward == Seconds{8});
  CHECK(scaled.chain.stages[0].backward_weight == Seconds{2});  // a quarter
}

TEST_CASE("the memory bound counts parameters, gradients that must exist by then, and the input", "[bounds]") {
  Chain chain = worked_example();
  chain.parameters = {{"w", Bytes{5}}, {"v", Bytes{2}}};
  chain.stages[0].parameters = {0};
  chain.stages[1].parameters = {1};
  // B of stage 1: 20 as without parameters, both parameters 7, both gradients 7.
  CHECK(lower_bounds(problem_of(chain, gpus({})), 1).memory == Bytes{34});
  // Adam's two states of each: 14 more.
  CHECK(lower_bounds(problem_of(chain, gpus({}), {.optimizer = Optimizer::adam}), 1).memory == Bytes{48});
}

TEST_CASE("on several devices the time bound is the critical path or the evenly shared work", "[bounds]") {
  const LowerBounds bounds = lower_bounds(problem_of(even_chain(4), gpus({.count = 4}), {.micro_batches = 8}), 4);
  CHECK(bounds.work == Seconds{8 * 12.0 / 4});
  CHECK(bounds.critical_path == Seconds{12});
  CHECK(bounds.time() == Seconds{24});
}

}  // namespace
}  // namespace plimsoll
