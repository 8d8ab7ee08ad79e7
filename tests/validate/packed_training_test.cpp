// Schedules with packed forms, replayed: exact ones train as plain training does, bit for bit; with lossy ones training
// is that of a plain loop which knows no schedule and gives the backward what the codec makes of the value.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <set>

#include "sim/core/check.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/cpu/codec_kernels.h"
#include "validate/gradient_error.h"
#include "validate/networks/initial_values.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

const std::string mlp_graph = "mlp:layers=4,width=24,batch=16,classes=4,view=graph",
                  resnet_graph = "resnet:blocks=2,channels=4,picture=16,batch=2,classes=5,view=graph",
                  gpt_graph = "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20,view=graph";

bool begins_with(const Op& op, const std::string& prefix) {
  return op.kind.starts_with(prefix);
}

/// One micro-batch after the other, every tensor with memory of its own. An op of the backward gets a forward's value
/// as `codec` says; nothing: as it is.
class PackedLoop {
 public:
  /// The reader, and whether a layer of its kind has made the value.
  using Rule = std::function<std::optional<Codec>(const Op& reader, bool is_result)>;

  PackedLoop(const std::string& reference, Rule rule)
      : made_(with_kernels(named_network(reference).network)), rule_(std::move(rule)) {
    for (const Tensor& tensor : graph().tensors) values_.push_back(initial_value(tensor));
  }

  void train(std::uint32_t micro_batches) {
    const std::vector<std::vector<std::byte>> inputs = input_values(made_.network, micro_batches);
    for (const std::vector<std::byte>& input : inputs) {
      for (std::size_t t = 0; t < values_.size(); ++t) {
        if (graph().tensors[t].kind == TensorKind::input) values_[t] = input;
      }
      for (const Op& op : graph().ops) {
        if (op.phase != Phase::update) run(op);
      }
    }
    for (const Op& op : graph().ops) {
      if (op.phase == Phase::update) run(op);
    }
  }

  void check_trained(const Replayed& run) const {
    std::size_t compared = 0;
    for (const auto& [name, value] : run.values) {
      const auto t = std::ranges::find(graph().tensors, name, &Tensor::name) - graph().tensors.begin();
      INFO(name);
      CHECK(value == values_[static_cast<std::size_t>(t)]);
      ++compared;
    }
    CHECK(compared > 4);
  }

  std::size_t replaced() const { return replaced_; }

 private:
  const Graph& graph() const { return made_.network.graph; }

  /// What a reader of the backward gets of a value that the forward made and kept for it.
  std::vector<std::byte> as_read(const Op& reader, TensorId t) {
    const std::vector<std::byte>& value = values_[t.index];
    const auto makes = [&](const Op& op) {
      return op.phase == Phase::forward && std::ranges::find(op.outputs, t) != op.outputs.end();
    };
    const auto maker = std::ranges::find_if(graph().ops, makes);
    if (reader.phase == Phase::forward || reader.phase == Phase::update || maker == graph().ops.end()) return value;
    const std::optional<Codec> codec = rule_(reader, begins_with(reader, maker->kind));
    const Tensor& tensor = graph()[t];
    if (!codec || cannot_pack(*codec, graph(), tensor) || packed_bytes(*codec, graph(), tensor) >= tensor.bytes) {
      return value;
    }
    std::vector<std::byte> packed(static_cast<std::size_t>(layout_bytes(*codec, tensor).count)), restored(value.size());
    std::vector<std::byte> workspace(static_cast<std::size_t>(pack_cost(*codec, graph(), tensor).workspace.count));
    pack(*codec, tensor, value.data(), packed.data(), workspace.data());
    unpack(*codec, tensor, packed.data(), restored.data());
    ++replaced_;
    return restored;
  }

  void run(const Op& op) {
    KernelArguments arguments;
    std::vector<std::vector<std::byte>> read;
    std::vector<std::vector<float>> parts;  // contributions to gradients, which are added
    for (const TensorId t : op.inputs) read.push_back(as_read(op, t));
    for (std::size_t i = 0; i < read.size(); ++i) {
      arguments.inputs.push_back(op.phase == Phase::update ? values_[op.inputs[i].index].data() : read[i].data());
    }
    for (const TensorId t : op.outputs) {
      const bool adds = graph()[t].kind == TensorKind::parameter_gradient;
      parts.emplace_back(adds ? values_[t.index].size() / sizeof(float) : 0);
      arguments.outputs.push_back(adds ? static_cast<void*>(parts.back().data()) : values_[t.index].data());
    }
    std::vector<std::byte> scratch(static_cast<std::size_t>(op.workspace.count) + 64);
    arguments.scratch = scratch.data();
    for (const auto& [name, value] : op.attributes) {
      if (name != statistics_attribute || op.phase != Phase::forward) continue;
      const auto moved = std::ranges::find(graph().tensors, value, &Tensor::name) - graph().tensors.begin();
      arguments.statistics = static_cast<float*>(static_cast<void*>(values_[static_cast<std::size_t>(moved)].data()));
    }
    made_.kernels[static_cast<std::size_t>(&op - graph().ops.data())].run(arguments);
    for (std::size_t o = 0; o < parts.size(); ++o) {
      if (parts[o].empty()) continue;
      const TensorId t = op.outputs[o];
      auto* sum = static_cast<float*>(static_cast<void*>(values_[t.index].data()));
      const bool is_first = summed_.insert(t).second;
      for (std::size_t j = 0; j < parts[o].size(); ++j) sum[j] = is_first ? parts[o][j] : sum[j] + parts[o][j];
    }
  }

  CpuNetwork made_;
  Rule rule_;
  std::vector<std::vector<std::byte>> values_;  // by tensor
  std::set<TensorId> summed_;                   // gradients with a contribution
  std::size_t replaced_ = 0;
};

Schedule planned_schedule(const Training& training, const std::string& spec, std::optional<Bytes> budget = {}) {
  const PlanOutcome outcome = planned(training.problem, spec, budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(outcome).schedule;
}

std::set<CodecKind> kinds_in(const Schedule& schedule) {
  std::set<CodecKind> kinds;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.is_packed()) kinds.insert(schedule.codecs[buffer.codec.index].kind);
  }
  return kinds;
}

/// Every gradient that the schedule does not call approximate is exact, and some of those it does are not.
void check_approximate(const Problem& problem, const Schedule& schedule, const GradientErrors& errors) {
  std::size_t wrong = 0;
  for (const auto& [name, error] : errors.of) {
    const auto t = std::ranges::find(problem.graph.tensors, name, &Tensor::name) - problem.graph.tensors.begin();
    const TensorId id = id_at<TensorId>(static_cast<std::size_t>(t));
    INFO(name);
    if (std::ranges::find(schedule.approximate, id) == schedule.approximate.end()) {
      CHECK(error.relative == 0);
    } else {
      wrong += error.relative > 0 ? 1 : 0;
    }
  }
  CHECK((wrong > 0) == !schedule.approximate.empty());
}

struct ExactCase {
  std::string network, spec;
};

TEST_CASE("packed forms that are exact train as plain training does, bit for bit", "[validate][packed]") {
  const auto [network, spec] =
      GENERATE(ExactCase{mlp_graph, "lossless(nonzero=0.9)"},
               ExactCase{mlp_graph, "lossless(nonzero=0.9,relu=byte,tensors=linear.input)"},
               ExactCase{mlp_graph, "lossless(nonzero=0.9,relu=keep)"},
               ExactCase{resnet_graph, "lossless(nonzero=0.9,tensors=pool.input)"},
               ExactCase{resnet_graph, "lossless(nonzero=0.9,tensors=pool.input,relu=byte)|offload_greedy"},
               ExactCase{resnet_graph, "greedy_recompute|lossless(nonzero=0.9,tensors=pool.input)"},
               ExactCase{resnet_graph, "lossless(nonzero=0.9,tensors=pool.input+relu,relu=keep)"},
               ExactCase{gpt_graph, "lossless(nonzero=0.9,tensors=softmax)"});
  INFO(network << ", " << spec);
  const Training training = training_of(network + ",updates=adam", one_gpu(), {.micro_batches = 2});
  const Schedule schedule = planned_schedule(training, spec), plain = planned_schedule(training, "store_all");
  CHECK(kinds_in(schedule).contains(CodecKind::zero_run));
  const bool has_mask = network != gpt_graph && spec.find("relu=keep") == std::string::npos;
  CHECK(kinds_in(schedule).contains(CodecKind::mask) == has_mask);
  const Replayed run = replayed(training, schedule), exact = replayed(training, plain);
  CHECK(differing(run, exact).empty());
  CHECK(differing(exact, run).empty());
  CHECK(run.values.size() > 4);
  CHECK(recount(schedule, run.timeline, training.problem.platform)[0] == run.timeline.peaks[0].bytes);
}

Codec quantized(std::uint32_t bits, std::uint32_t group) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = group, .group_bytes = 8};
}

Codec pooled(PoolType type, std::uint32_t window) {
  return {.kind = CodecKind::pool, .type = type, .window = window, .channels_last = true};
}

Codec pruned(std::uint32_t block, double keep) {
  return {.kind = CodecKind::block_sparse, .block = block, .keep = keep};
}

/// As `tensors=all`: all but what a ReLU made for its own gradient, which has its signs from a mask.
PackedLoop::Rule for_all(const Codec& codec) {
  return [=](const Op& reader, bool) { return begins_with(reader, "relu") ? std::nullopt : std::optional(codec); };
}

/// As `tensors=` with `.input`.
PackedLoop::Rule for_inputs(const Codec& codec, const std::vector<std::string>& layers) {
  return [=](const Op& reader, bool is_result) -> std::optional<Codec> {
    const auto names = [&](const std::string& layer) { return begins_with(reader, layer) && !is_result; };
    return std::ranges::any_of(layers, names) ? std::optional(codec) : std::nullopt;
  };
}

struct LossyCase {
  std::string network, spec;
  PackedLoop::Rule rule;
};

TEST_CASE(
    "what lossy packed forms train is what a plain loop gives that packs and unpacks the same values, bit for bit",
    "[validate][packed]") {
  const std::vector<std::string> products{"linear", "convolution"};
  const auto network = GENERATE(mlp_graph, resnet_graph, gpt_graph);
  std::vector<LossyCase> cases{{network, "quantize", for_all(quantized(4, 256))},
                               {network, "quantize(bits=8,group=64,relu=byte)", for_all(quantized(8, 64))},
                               {network, "quantize(bits=2,group=8,relu=keep)", for_all(quantized(2, 8))},
                               {network, "quantize(bits=1)|offload_greedy", for_all(quantized(1, 256))},
                               {network, "prune_bsr(tensors=all)", for_all(pruned(8, 0.25))},
                               {network, "prune_bsr", for_inputs(pruned(8, 0.25), products)},
                               {network, "prune_bsr(block=3,keep=0.4)", for_inputs(pruned(3, 0.4), products)}};
  if (network == resnet_graph) {
    cases.push_back({network, "pool", for_inputs(pooled(PoolType::average, 2), {"convolution"})});
    cases.push_back({network, "pool(tensors=all)", for_all(pooled(PoolType::average, 2))});
    cases.push_back({network, "pool(type=max,k=3)", for_inputs(pooled(PoolType::max, 3), {"convolution"})});
    cases.push_back({network, "pool(type=soft,tensors=conv.input+bn.input)",
                     for_inputs(pooled(PoolType::soft, 2), {"convolution", "batch_norm"})});
  }
  for (const auto& [reference, spec, rule] : cases) {
    INFO(reference << ", " << spec);
    const std::string updated = reference + ",updates=adam";
    const Training training = training_of(updated, one_gpu(), {.micro_batches = 2});
    const Schedule schedule = planned_schedule(training, spec);
    CHECK(!schedule.approximate.empty());
    const Replayed run = replayed(training, schedule);
    PackedLoop loop(updated, rule);
    loop.train(2);
    CHECK(loop.replaced() > 2);
    loop.check_trained(run);
    CHECK(recount(schedule, run.timeline, training.problem.platform)[0] == run.timeline.peaks[0].bytes);
    const Replayed exact = replayed(training, planned_schedule(training, "store_all"));
    check_approximate(training.problem, schedule, gradient_errors(training.problem.graph, run, exact));
  }
}

TEST_CASE("where more values are not zero than are reserved, the run ends and says so", "[validate][packed]") {
  const Training training = training_of(gpt_graph, one_gpu());
  const auto outcome = run_of(training, planned_schedule(training, "lossless"), {});
  REQUIRE(std::holds_alternative<ReplayFailure>(outcome));
  const std::string why = std::get<ReplayFailure>(outcome).what;
  INFO(why);
  CHECK(why.starts_with("step "));
  CHECK(why.ends_with("are not 0; zero_run(keep=0.5) reserves room for 128"));
}

Tensor picture(const std::vector<std::int64_t>& shape) {
  Tensor tensor;
  tensor.name = "x";
  tensor.shape = shape;
  tensor.bytes = Bytes{4};
  for (const std::int64_t d : shape) tensor.bytes = Bytes{tensor.bytes.count * d};
  return tensor;
}

TEST_CASE("packed forms without a kernel are refused by name before anything runs", "[validate][packed]") {
  const Training training = training_of(mlp_graph, one_gpu());
  Graph graph;
  graph.source.dtype = "fp32";
  const Tensor tensor = picture({2, 6, 6, 3});
  CHECK(lacks_codec(quantized(4, 256), graph, tensor) == std::nullopt);
  CHECK(lacks_codec({.kind = CodecKind::quantize, .bits = 8}, graph, tensor) == "rounds to a fixed range");
  Codec other = quantized(3, 8);
  CHECK(lacks_codec(other, graph, tensor) == "has numbers of 3 bits, of which no whole number fills a byte");
  other = quantized(4, 256);
  other.averaged = 2;
  CHECK(lacks_codec(other, graph, tensor) == "averages 2 values in a row");
  other = quantized(4, 256);
  other.padding = Padding::sample;
  CHECK(lacks_codec(other, graph, tensor) == "fills its groups up");
  other = quantized(4, 256);
  other.group_bytes = 4;
  CHECK(lacks_codec(other, graph, tensor) == "gives 4 B to a group; it takes a scale and a minimum in fp32, 8 B");
  other = pooled(PoolType::average, 2);
  other.channels_last = false;
  CHECK(lacks_codec(other, graph, tensor) == "takes channels to come before the height, and here they are last");
  CHECK(lacks_codec({.kind = CodecKind::cast, .bits = 16}, graph, tensor) ==
        "does not say how its bits are split into exponent and fraction");

  Schedule schedule = planned_schedule(training, "quantize");
  auto plan = std::get<ReplayPlan>(replay_plan(training.problem, schedule, training.network.network));
  const auto converts = [](const PlannedStep& step) { return step.conversion.has_value(); };
  const auto first = std::ranges::find_if(plan.steps, converts);
  REQUIRE(first != plan.steps.end());
  first->conversion->codec.averaged = 2;
  BlockPool pool;
  const auto run = replay_on_cpu(training.problem, schedule, plan, training.network, pool, {});
  REQUIRE(std::holds_alternative<ReplayFailure>(run));
  const std::string why = std::get<ReplayFailure>(run).what;
  INFO(why);
  CHECK(why.find("the CPU backend has no kernel for '") != std::string::npos);
}

TEST_CASE("the layout of a packed form takes what the codec says, to the byte", "[validate][packed]") {
  Graph graph;
  graph.source.dtype = "fp32";
  const std::vector<std::vector<std::int64_t>> shapes{{1, 5, 5, 1}, {2, 7, 9, 3}, {3, 16, 8, 5}, {1, 31, 33, 7}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const Tensor tensor = picture(shape);
    std::vector<Codec> codecs{{.kind = CodecKind::mask, .bits = 1}, {.kind = CodecKind::mask, .bits = 8}};
    for (const std::uint32_t n : {1U, 2U, 3U, 5U}) {
      codecs.push_back(pooled(PoolType::average, n));
      codecs.push_back(pruned(n, 0.3));
      codecs.push_back({.kind = CodecKind::zero_run, .keep = 0.17 * n});
      for (const std::uint32_t bits : {1U, 2U, 4U, 8U}) codecs.push_back(quantized(bits, 8 * n));
    }
    for (const Codec& codec : codecs) {
      INFO(text_of(codec));
      REQUIRE(lacks_codec(codec, graph, tensor) == std::nullopt);
      CHECK(layout_bytes(codec, tensor) == packed_bytes(codec, graph, tensor));
    }
  }
}

}  // namespace
}  // namespace plimsoll
