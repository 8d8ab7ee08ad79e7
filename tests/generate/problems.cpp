#include "tests/generate/problems.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

Bytes bytes(Random& random, std::uint32_t least, std::uint32_t most) {
  return Bytes{random.between(least, most)};
}

/// Workspaces of its backward below 0, down to what the stage saves beside its output; no backward has a peak below its
/// start.
void let_inner_die_early(const Chain& chain, Stage& stage, Random& random) {
  const Bytes inner = stage.saved - stage.output;
  const auto at_most = [&](Bytes made) {
    return Bytes{} - bytes(random, 0, static_cast<std::uint32_t>(std::min(inner, made).count));
  };
  Bytes parameters;
  for (const std::uint32_t p : stage.parameters) parameters += chain.parameters[p].bytes;
  stage.backward_workspace = at_most(stage.input_gradient + parameters);
  stage.backward_accumulate_workspace = at_most(stage.input_gradient);
}

}  // namespace

Platform gpus(const Gpus& options) {
  Platform platform;
  platform.name = "test";
  platform.source = "made for a test";
  for (std::uint32_t d = 0; d < options.count; ++d) {
    Device device;
    device.name = "gpu" + std::to_string(d);
    device.memory = MemoryId{d};
    device.takes_trace_times = true;
    platform.devices.push_back(device);
    platform.memories.push_back({.name = device.name,
                                 .capacity = options.memory,
                                 .device = DeviceId{d},
                                 .node = 0,
                                 .bandwidth = {},
                                 .adam = {}});
  }
  const std::uint32_t host = options.count;
  platform.memories.push_back(
      {.name = "host", .capacity = {}, .device = {}, .node = 0, .bandwidth = {}, .adam = options.adam});
  if (options.to_disk) {
    platform.memories.push_back({.name = "disk", .capacity = {}, .device = {}, .node = 0, .bandwidth = {}, .adam = {}});
  }
  const auto peers = static_cast<std::uint32_t>(platform.memories.size()), bus = peers + 1;
  for (std::uint32_t m = 0; m < peers; ++m) platform.vertices.push_back({MemoryId{m}, platform.memories[m].name});
  platform.vertices.push_back({std::nullopt, "peers"});
  platform.vertices.push_back({std::nullopt, "bus"});
  const auto link = [&](std::string name, std::uint32_t from, std::uint32_t to, BytesPerSecond bandwidth,
                        Seconds latency) {
    platform.links.push_back({std::move(name), from, to, bandwidth, latency, true});
  };
  for (std::uint32_t d = 0; d < options.count; ++d) {
    link("pcie" + std::to_string(d), d, options.uplink ? bus : host, options.to_host, {});
    link("peer" + std::to_string(d), d, peers, options.to_peers, 0.5 * options.peer_latency);
  }
  if (options.uplink) link("uplink", bus, host, *options.uplink, {});
  if (options.to_disk) link("m2", host, host + 1, *options.to_disk, {});
  return platform;
}

Graph row_of_ops(std::size_t count) {
  Graph graph;
  graph.name = "row";
  const auto tensor = [&](const std::string& name, TensorKind kind) {
    graph.tensors.push_back({.name = name,
                             .kind = kind,
                             .bytes = Bytes{4},
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  TensorId last = tensor("t0", TensorKind::input);
  for (std::size_t o = 0; o < count; ++o) {
    Op op;
    op.name = "o" + std::to_string(o);
    op.duration = Seconds{1};
    op.inputs = {last};
    last = tensor("t" + std::to_string(o + 1), TensorKind::activation);
    op.outputs = {last};
    graph.ops.push_back(op);
  }
  return graph;
}

Chain worked_example() {
  Chain chain;
  chain.name = "worked example";
  chain.input = Bytes{4};
  Stage first, second, loss;
  first.name = "first";
  first.forward = first.forward_nograd = Seconds{1};
  first.backward = Seconds{2};
  first.output = Bytes{3};
  first.saved = Bytes{7};
  first.input_gradient = Bytes{4};
  first.forward_workspace = first.forward_nograd_workspace = Bytes{1};
  first.backward_workspace = first.backward_accumulate_workspace = Bytes{2};
  second = first;
  second.name = "second";
  second.output = Bytes{2};
  second.saved = Bytes{5};
  second.input_gradient = Bytes{3};
  second.forward_workspace = second.forward_nograd_workspace = Bytes{2};
  second.backward_workspace = second.backward_accumulate_workspace = Bytes{1};
  loss.name = "loss";
  loss.backward = Seconds{1};
  loss.input_gradient = Bytes{2};
  loss.backward_workspace = loss.backward_accumulate_workspace = Bytes{3};
  chain.stages = {first, second, loss};
  return chain;
}

Chain even_chain(std::size_t stages) {
  Chain chain;
  chain.name = "even";
  chain.input = Bytes{10};
  for (std::size_t i = 0; i < stages; ++i) {
    Stage& stage = chain.stages.emplace_back();
    stage.name = "stage " + std::to_string(i);
    stage.forward = stage.forward_nograd = Seconds{1};
    stage.backward = Seconds{2};
    stage.output = stage.input_gradient = Bytes{10};
    stage.saved = Bytes{15};
  }
  Stage& loss = chain.stages.emplace_back();
  loss.name = "loss";
  loss.input_gradient = Bytes{10};
  return chain;
}

Chain random_small_chain(std::uint64_t seed, std::size_t stages, bool dies_early) {
  Random random(seed), early(seed + 1'000'003);
  Chain chain;
  chain.name = "random " + std::to_string(seed);
  chain.input = bytes(random, 0, 9);
  const std::uint32_t parameters = random.between(0, static_cast<std::uint32_t>(stages));
  for (std::uint32_t p = 0; p < parameters; ++p)
    chain.parameters.push_back({"w" + std::to_string(p), bytes(random, 0, 6)});
  for (std::size_t i = 0; i <= stages; ++i) {
    Stage& stage = chain.stages.emplace_back();
    const bool loss = i == stages;
    stage.name = loss ? "loss" : "stage " + std::to_string(i);
    stage.forward = Seconds{static_cast<double>(random.between(loss ? 0 : 1, 9))};
    stage.forward_nograd = random.chance(0.7) ? stage.forward : Seconds{std::max(0.0, stage.forward.value - 1)};
    stage.backward = Seconds{static_cast<double>(random.between(loss ? 0 : 1, 12))};
    stage.output = loss ? Bytes{0} : bytes(random, 0, 9);
    stage.saved = stage.output + bytes(random, 0, 9);
    stage.input_gradient = random.chance(0.7) ? boundary_bytes(chain, i) : bytes(random, 0, 9);
    stage.forward_workspace = bytes(random, 0, 5);
    stage.forward_nograd_workspace = random.chance(0.7) ? stage.forward_workspace : bytes(random, 0, 5);
    stage.backward_workspace = bytes(random, 0, 5);
    stage.backward_accumulate_workspace = random.chance(0.7) ? stage.backward_workspace : bytes(random, 0, 5);
    if (parameters > 0 && random.chance(0.6)) stage.parameters.push_back(random.below(parameters));
    if (random.chance(0.15)) stage.keeps_input = false;
    if (random.chance(0.15)) stage.keeps_output = false;
    if (dies_early && early.chance(0.2)) let_inner_die_early(chain, stage, early);
  }
  return chain;
}

Chain with_saved_tensors(Chain chain, std::uint64_t seed) {
  Random random(seed);
  constexpr std::int64_t more = 4 * 2 * 6 * 5;
  const auto scale = [](std::initializer_list<Bytes*> all) {
    for (Bytes* bytes : all) *bytes = more * *bytes;
  };
  const auto picture = [](Bytes bytes) { return std::vector<std::int64_t>{bytes.count / more, 2, 6, 5}; };
  const auto some_uses = [&random](std::vector<const char*> among) {
    std::vector<LayerUse> uses;
    const std::uint32_t count = random.between(1, 2);
    for (std::uint32_t u = 0; u < count; ++u) {
      const LayerUse use = *layer_use(among[random.below(static_cast<std::uint32_t>(among.size()))]);
      if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
    }
    return uses;
  };
  const std::vector<const char*> of_inputs{"conv3x3.input", "linear.input", "bn.input", "pool.shape", "gelu.input"},
      of_outputs{"relu.output", "relu.output", "softmax.output"},
      of_inner{"conv1x1.input", "linear.input", "relu.output", "relu.output",
               "bn.input",      "matmul.input", "pool.input",  "pool.shape"};
  chain.source.dtype = "fp32";
  scale({&chain.input});
  for (Parameter& parameter : chain.parameters) scale({&parameter.bytes});
  for (Stage& stage : chain.stages) {
    scale({&stage.output, &stage.saved, &stage.input_gradient, &stage.forward_workspace,
           &stage.forward_nograd_workspace, &stage.backward_workspace, &stage.backward_accumulate_workspace});
    if (stage.parameter_gradient) scale({&*stage.parameter_gradient});
  }
  chain.tensors.clear();
  chain.boundaries.clear();
  for (std::size_t j = 0; j <= chain.stages.size(); ++j) {
    chain.boundaries.emplace_back();
    if (j == chain.stages.size()) break;  // behind the loss
    const Bytes bytes = boundary_bytes(chain, j);
    chain.tensors.push_back(
        {.name = "x" + std::to_string(j), .bytes = bytes, .shape = picture(bytes), .dtype = "fp32"});
    chain.boundaries[j] = {static_cast<std::uint32_t>(j)};
  }
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    Stage& stage = chain.stages[i];
    const auto own = static_cast<std::uint32_t>(i);
    if (stage.keeps_input) stage.boundary_uses.push_back({own, some_uses(of_inputs)});
    if (stage.keeps_output && i + 1 < chain.stages.size()) {
      stage.boundary_uses.push_back({own + 1, some_uses(of_outputs)});
    }
    Bytes left = stage.saved - stage.output;
    while (left > Bytes{0} && random.chance(0.8)) {
      const Bytes bytes{more * random.between(1, static_cast<std::uint32_t>(left.count / more))};
      InnerTensor inner{.name = "t" + std::to_string(stage.inner.size()), .bytes = bytes};
      const bool are_places = random.chance(0.15);
      inner.shape = are_places ? std::vector<std::int64_t>{bytes.count / 240, 30} : picture(bytes);
      inner.dtype = are_places ? "int64" : "fp32";
      inner.uses = are_places ? std::vector{*layer_use("pool.output")} : some_uses(of_inner);
      stage.inner.push_back(std::move(inner));
      left -= bytes;
    }
  }
  return chain;
}

Chain without_saved_tensors(Chain chain) {
  for (Stage& stage : chain.stages) {
    stage.inner.clear();
    stage.boundary_uses.clear();
  }
  return chain;
}

Chain with_weight_times(Chain chain) {
  for (Stage& stage : chain.stages) {
    stage.has_backward_weight = true;
    stage.backward_weight = Seconds{std::floor(stage.backward.value / 2)};
    stage.weight_made = Bytes{stage.output.count / 2};
    stage.weight_saved = Bytes{(stage.saved - stage.output).count / 2} + stage.weight_made;
    stage.weight_keeps_gradient = stage.weight_made == Bytes{0} || stage.saved.count % 2 == 0;
    stage.weight_keeps_input = stage.output.count % 3 != 0;
    const Bytes whole = std::max(Bytes{}, stage.backward_workspace);
    stage.backward_input_workspace = Bytes{whole.count / 2};
    stage.backward_weight_workspace = Bytes{whole.count / 3};
    stage.backward_weight_accumulate_workspace = whole;
  }
  return chain;
}

Graph random_graph(std::uint64_t seed, std::size_t forward_ops) {
  EXPECTS(forward_ops > 0);
  Random random(seed);
  Graph graph;
  graph.name = "random graph " + std::to_string(seed);
  const auto tensor = [&](std::string name, TensorKind kind, Bytes size) {
    graph.tensors.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = size,
                             .storage = id_at<StorageId>(graph.storages++),
                             .shape = {},
                             .dtype = {}});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  struct Forward {
    std::vector<TensorId> inputs;
    std::optional<TensorId> parameter;
    TensorId output;
  };
  std::vector<TensorId> values{tensor("input", TensorKind::input, bytes(random, 1, 9))};
  std::vector<Forward> forwards;
  for (std::size_t o = 0; o < forward_ops; ++o) {
    Forward forward;
    // The last op takes what nobody has read yet, so that there is one loss.
    std::vector<bool> read(values.size(), false);
    for (const Forward& earlier : forwards) {
      for (const TensorId t : earlier.inputs)
        read[static_cast<std::size_t>(std::ranges::find(values, t) - values.begin())] = true;
    }
    for (std::size_t v = 0; v < values.size(); ++v) {
      const bool newest = v + 1 == values.size();
      if (newest || (o + 1 == forward_ops && !read[v]) || random.chance(0.2)) forward.inputs.push_back(values[v]);
    }
    if (random.chance(0.5))
      forward.parameter = tensor("w" + std::to_string(o), TensorKind::parameter, bytes(random, 1, 6));
    forward.output = tensor("x" + std::to_string(o + 1), TensorKind::activation, bytes(random, 1, 9));
    values.push_back(forward.output);
    forwards.push_back(forward);
    Op op;
    op.name = "f" + std::to_string(o);
    op.kind = "random";
    op.stage = static_cast<std::uint32_t>(o);
    op.duration = Seconds{static_cast<double>(random.between(1, 9))};
    op.workspace = bytes(random, 0, 5);
    op.inputs = forward.inputs;
    if (forward.parameter) op.inputs.push_back(*forward.parameter);
    op.outputs = {forward.output};
    graph.ops.push_back(std::move(op));
  }
  // The gradient of a value is the sum over its readers; each backward op hands out one share a value.
  std::vector<std::vector<TensorId>> shares(values.size());
  for (std::size_t o = forward_ops; o-- > 0;) {
    const Forward& forward = forwards[o];
    Op op;
    op.name = "b" + std::to_string(o);
    op.kind = "random";
    op.phase = Phase::backward;
    op.stage = static_cast<std::uint32_t>(o);
    op.duration = Seconds{static_cast<double>(random.between(1, 12))};
    op.workspace = bytes(random, 0, 5);
    op.inputs = shares[o + 1];
    op.inputs.insert(op.inputs.end(), forward.inputs.begin(), forward.inputs.end());
    if (random.chance(0.5)) op.inputs.push_back(forward.output);
    if (forward.parameter) {
      op.inputs.push_back(*forward.parameter);
      op.outputs.push_back(
          tensor("gradient of w" + std::to_string(o), TensorKind::parameter_gradient, graph[*forward.parameter].bytes));
    }
    for (const TensorId t : forward.inputs) {
      const auto v = static_cast<std::size_t>(std::ranges::find(values, t) - values.begin());
      if (v == 0) continue;
      shares[v].push_back(
          tensor("gradient of " + graph[t].name + " by f" + std::to_string(o), TensorKind::gradient, graph[t].bytes));
      op.outputs.push_back(shares[v].back());
    }
    graph.ops.push_back(std::move(op));
  }
  return graph;
}

Graph as_pictures(Graph graph, std::uint64_t seed) {
  Random random(seed);
  for (Tensor& tensor : graph.tensors) {
    tensor.dtype = "float32";
    if (!per_micro_batch(tensor.kind)) continue;
    tensor.shape = {tensor.bytes.count, 2, 6, 5};
    tensor.bytes = 4 * 2 * 6 * 5 * tensor.bytes;
  }
  constexpr std::array<std::pair<const char*, const char*>, 4> kinds{
      {{"convolution", "convolution_backward"},
       {"native_batch_norm", "native_batch_norm_backward"},
       {"relu_", "threshold_backward"},
       {"gelu", "gelu_backward"}}};
  const std::size_t forwards = graph.ops.size() / 2;
  for (std::size_t o = 0; o < forwards; ++o) {
    Op &forward = graph.ops[o], &backward = graph.ops[graph.ops.size() - 1 - o];
    EXPECTS(forward.phase == Phase::forward && is_backward(backward.phase) && forward.stage == backward.stage);
    std::vector<TensorId>& reads = backward.inputs;
    const bool reads_result = std::ranges::find(reads, forward.outputs[0]) != reads.end();
    const bool is_relu = reads_result && random.chance(0.5);
    const auto& [kind, gradient] =
        kinds[is_relu ? 2
                      : static_cast<std::size_t>(std::array{0, 1, 3}[static_cast<std::size_t>(random.between(0, 2))])];
    forward.kind = kind;
    backward.kind = gradient;
    if (is_relu) {
      std::erase_if(reads, [&](TensorId t) {
        return t != forward.outputs[0] && std::ranges::find(forward.inputs, t) != forward.inputs.end();
      });
    }
  }
  return graph;
}

Graph with_alternatives(Graph graph, std::uint64_t seed) {
  Random random(seed);
  for (Op& op : graph.ops) {
    op.duration = Seconds{static_cast<double>(random.between(1, 9))};
    op.workspace = bytes(random, 0, 7);
    const auto count = random.between(0, 2);
    for (std::int64_t k = 1; k <= count; ++k) {
      op.alternatives.push_back({.name = "way " + std::to_string(k),
                                 .duration = Seconds{static_cast<double>(random.between(1, 9))},
                                 .flops = {},
                                 .bytes_moved = {},
                                 .workspace = bytes(random, 0, 7)});
    }
  }
  return graph;
}

Problem problem_of(std::variant<Chain, Graph> model, Platform platform, ProblemOptions options) {
  std::variant<Problem, std::string> made = make_problem(std::move(model), std::move(platform), options);
  EXPECTS(std::holds_alternative<Problem>(made));
  return std::move(std::get<Problem>(made));
}

Partition one_forward_one_backward(const Problem& problem, const std::vector<std::size_t>& cuts) {
  EXPECTS(problem.chain && !cuts.empty() && cuts[0] == 0);
  const auto parts = static_cast<std::uint32_t>(cuts.size());
  const std::size_t stages = problem.chain->stages.size();
  Partition partition;
  partition.order.resize(problem.platform.devices.size());
  for (std::uint32_t p = 0; p < parts; ++p) {
    const std::size_t first = cuts[p], last = p + 1 < parts ? cuts[p + 1] : stages;
    Part& part = partition.parts.emplace_back();
    part.device = DeviceId{p};
    for (std::size_t i = first; i < last; ++i) part.ops.push_back(problem.index->forward[i]);
    for (std::size_t i = last; i-- > first;) part.ops.push_back(problem.index->backward[i]);

    const std::uint32_t last_piece = p + 1 < parts ? 1 : 0;  // the last part does not await
    const std::uint32_t m = problem.micro_batches;
    std::vector<Turn>& order = partition.order[p];
    if (last_piece == 0) {
      for (std::uint32_t b = 0; b < m; ++b) order.push_back({PartId{p}, b, 0});
      continue;
    }
    const std::uint32_t warm_up = std::min(m, parts - 1 - p);
    for (std::uint32_t f = 0; f < warm_up; ++f) order.push_back({PartId{p}, f, 0});
    for (std::uint32_t b = 0; b < m; ++b) {
      if (warm_up + b < m) order.push_back({PartId{p}, warm_up + b, 0});
      order.push_back({PartId{p}, b, 1});
    }
  }
  return partition;
}

}  // namespace plimsoll
