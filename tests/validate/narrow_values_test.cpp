// Networks whose values are bf16: which tensors are, what kernels make of them, and that plans train as plain training
// does, within the rounding of what fp32 makes.

#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "tests/training/training.h"
#include "validate/cpu/kernels/kernel.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/networks/bf16.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/narrow_values.h"
#include "validate/networks/networks.h"
#include "validate/networks/probe_ops.h"
#include "validate/reference/few_bits.h"

namespace plimsoll {
namespace {

using Catch::Contains;

const std::vector<std::string> narrow_networks{
    "mlp:layers=4,width=24,batch=6,classes=5",
    "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20",
    "gpt:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=20,attention=fused",
    "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
    "lstm:steps=4,width=8,batch=4,classes=3",
    "decoder:layers=1,width=16,heads=4,kv_heads=2,inner=24,sequence=8,batch=2,vocabulary=20,tied=yes",
    "decoder:layers=2,width=16,heads=2,kv_heads=1,inner=24,sequence=8,batch=2,vocabulary=20,experts=4,top_k=2"};

/// Half the distance of neighbours between 1 and 2, and room for a sum whose summands are rounded once more.
constexpr double one_rounding = 0x1p-8;

TEST_CASE("bf16 rounds to the nearest and to the even of two, as the packed form of its format does", "[networks]") {
  std::mt19937 random(7);
  std::vector<std::uint32_t> bits{0, 0x80000000U, 0x3F808000U, 0x3F818000U, 0x3F808001U, 0x7F7FFFFFU, 0xFF7FFFFFU};
  while (bits.size() < 20000) bits.push_back(static_cast<std::uint32_t>(random()));
  for (const std::uint32_t of : bits) {
    const auto x = std::bit_cast<float>(of);
    const Bf16 made = as_bf16(x);
    if (std::isnan(x)) {
      CHECK(std::isnan(as_float(made)));
      continue;
    }
    INFO(x);
    CHECK(made.bits == plain::narrowed(x, FloatFormat{16, 8}));
    if (std::isfinite(as_float(made))) CHECK(as_bf16(as_float(made)).bits == made.bits);
  }
  CHECK(as_bf16(1.00390625F).bits == 0x3F80);  // between 1 and its neighbour: the even one
  CHECK(as_bf16(1.01171875F).bits == 0x3F82);
}

TEST_CASE("values and their gradients take half the bytes, parameters, sums and probabilities all", "[networks]") {
  for (const std::string& network : narrow_networks) {
    INFO(network);
    const Graph wide = named_network(network + ",view=graph,updates=adam").network.graph;
    const Graph narrow = named_network(network + ",view=graph,updates=adam,values=bf16").network.graph;
    REQUIRE(wide.tensors.size() == narrow.tensors.size());
    std::size_t halved = 0, whole = 0;
    for (std::size_t t = 0; t < wide.tensors.size(); ++t) {
      const Tensor &a = wide.tensors[t], &b = narrow.tensors[t];
      INFO(a.name);
      const bool is_kept = a.kind == TensorKind::parameter || a.kind == TensorKind::parameter_gradient ||
                           a.kind == TensorKind::optimizer_state || a.name == "probabilities" ||
                           a.name.ends_with(".sums") || a.name.ends_with(".chances") || a.dtype == "int32";
      CHECK(b.dtype == (is_kept ? a.dtype : "bf16"));
      CHECK(b.bytes.count * (is_kept ? 1 : 2) == a.bytes.count);
      CHECK(a.shape == b.shape);
      (is_kept ? whole : halved) += 1;
    }
    CHECK(halved > 5);
    CHECK(whole > 5);
    for (std::size_t o = 0; o < wide.ops.size(); ++o) {
      CHECK(wide.ops[o].flops == narrow.ops[o].flops);
      if (wide.ops[o].phase != Phase::update) CHECK(*narrow.ops[o].bytes_moved < *wide.ops[o].bytes_moved);
    }
  }
}

/// One op of a network, with numbers that bf16 has.
struct OneOp {
  const Graph& graph;
  const Op& op;
  const Kernel& kernel;

  std::vector<std::vector<float>> run(const std::vector<std::vector<float>>& numbers) const {
    std::vector<std::vector<std::byte>> inputs, outputs;
    KernelArguments arguments;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) inputs.push_back(stored(graph[op.inputs[i]], numbers[i]));
    for (const TensorId t : op.outputs) {
      outputs.emplace_back(static_cast<std::size_t>(graph[t].bytes.count), std::byte{0xFF});
    }
    for (std::vector<std::byte>& bytes : inputs) arguments.inputs.push_back(bytes.data());
    for (std::vector<std::byte>& bytes : outputs) arguments.outputs.push_back(bytes.data());
    std::vector<std::byte> scratch(static_cast<std::size_t>(kernel.scratch.count) + 64, std::byte{0xFF});
    arguments.scratch = scratch.data();
    kernel.run(arguments);
    std::vector<std::vector<float>> made;
    for (std::size_t i = 0; i < outputs.size(); ++i) made.push_back(loaded(graph[op.outputs[i]], outputs[i]));
    CHECK(std::all_of(scratch.end() - 64, scratch.end(), [](std::byte b) { return b == std::byte{0xFF}; }));
    return made;
  }

  static std::vector<std::byte> stored(const Tensor& tensor, const std::vector<float>& numbers) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes.count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(numbers[i]);
      const auto upper = static_cast<std::uint16_t>(bits >> 16U);
      if (tensor.dtype == "bf16") {
        std::memcpy(&bytes[2 * i], &upper, 2);
      } else {
        std::memcpy(&bytes[4 * i], &bits, 4);
      }
    }
    return bytes;
  }

  static std::vector<float> loaded(const Tensor& tensor, const std::vector<std::byte>& bytes) {
    std::vector<float> numbers;
    const std::size_t each = tensor.dtype == "bf16" ? 2 : 4;
    for (std::size_t at = 0; at < bytes.size(); at += each) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &bytes[at], each);
      numbers.push_back(std::bit_cast<float>(each == 2 ? bits << 16U : bits));
    }
    return numbers;
  }
};

/// Of an op's inputs: tokens, else numbers whose lower halves are 0.
std::vector<std::vector<float>> numbers_for(const Graph& graph, const Op& op, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-1.0F, 1.0F);
  std::vector<std::vector<float>> inputs;
  for (const TensorId t : op.inputs) {
    std::vector<float>& own = inputs.emplace_back(static_cast<std::size_t>(number_count(graph[t])));
    for (float& each : own) {
      each = std::bit_cast<float>(std::bit_cast<std::uint32_t>(number(random)) & 0xFFFF0000U);
      if (graph[t].dtype == "int32") each = std::bit_cast<float>(static_cast<std::int32_t>(random() % 20));
    }
  }
  return inputs;
}

double largest_of(const std::vector<float>& numbers) {
  double largest = 0;
  for (const float n : numbers) {
    if (std::isfinite(n)) largest = std::max(largest, std::abs(double{n}));
  }
  return largest;
}

TEST_CASE("a product's probe in bf16 has the dtypes of a network's product", "[networks]") {
  const Graph network = named_network(narrow_networks[0] + ",view=graph,values=bf16").network.graph;
  const auto dtypes = [](const Graph& graph, const Op& op) {
    std::vector<std::string> made;
    for (const TensorId t : op.inputs) made.push_back(graph[t].dtype);
    for (const TensorId t : op.outputs) made.push_back(graph[t].dtype);
    return made;
  };
  const auto product = std::ranges::find(network.ops, "linear", &Op::kind);
  REQUIRE(product != network.ops.end());
  const ProbeOp probe = narrow_product_probe(16);
  CHECK(dtypes(probe.graph, probe.op) == dtypes(network, *product));
  CHECK(make_kernel(probe.graph, probe.op).has_value());
  CHECK(probe.graph[probe.op.outputs[0]].bytes == Bytes{2 * 16 * 16});
  const ProbeOp in_fp8 = fp8_product_probe(16);
  CHECK(multiplies_8_bits(in_fp8.op));
  CHECK(dtypes(in_fp8.graph, in_fp8.op) == dtypes(network, *product));
  CHECK(make_kernel(in_fp8.graph, in_fp8.op).has_value());
}

TEST_CASE("every kind of op in bf16 makes what fp32 makes of the same numbers, rounded once", "[networks]") {
  std::mt19937 random(11);
  std::set<std::string> kinds;
  for (const std::string& network : narrow_networks) {
    const CpuNetwork wide = with_kernels(named_network(network + ",view=graph,updates=sgd").network);
    const CpuNetwork narrow = with_kernels(named_network(network + ",view=graph,updates=sgd,values=bf16").network);
    for (std::size_t o = 0; o < wide.kernels.size(); ++o) {
      const Graph &in_wide = wide.network.graph, &in_narrow = narrow.network.graph;
      const Op& op = in_wide.ops[o];
      if (op.phase == Phase::update || !kinds.insert(op.kind + network.substr(0, 3)).second) continue;
      INFO(network << ", " << op.name << ", " << op.kind);
      const std::vector<std::vector<float>> numbers = numbers_for(in_wide, op, random);
      const auto expected = OneOp{in_wide, op, wide.kernels[o]}.run(numbers);
      const auto made = OneOp{in_narrow, in_narrow.ops[o], narrow.kernels[o]}.run(numbers);
      REQUIRE(made.size() == expected.size());
      for (std::size_t i = 0; i < made.size(); ++i) {
        const bool is_narrow = in_narrow[in_narrow.ops[o].outputs[i]].dtype == "bf16";
        const double room = is_narrow ? one_rounding : 2e-5;  // fp32 sums in another order
        const double largest = largest_of(expected[i]);
        double worst = 0;
        for (std::size_t j = 0; j < made[i].size(); ++j) {
          if (made[i][j] == expected[i][j]) continue;  // minus infinity too
          worst = std::max(worst, std::abs(double{made[i][j]} - double{expected[i][j]}));
          if (std::isnan(made[i][j])) worst = INFINITY;
        }
        CHECK(worst <= room * largest);
      }
    }
  }
  CHECK(kinds.size() > 40);
}

Replayed plain_run(const Training& training) {
  const PlanOutcome outcome = planned(training.problem, "store_all");
  return replayed(training, std::get<Plan>(outcome).schedule);
}

TEST_CASE("plans of networks in bf16 train as plain training in bf16 does, and take what they promise", "[validate]") {
  for (std::size_t n = 0; n < narrow_networks.size(); ++n) {
    const std::string network = narrow_networks[n] + ",values=bf16";
    const Training chain = training_of(network, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::adam});
    const Training graph = training_of(network + ",view=graph,updates=adam", one_gpu(), {.micro_batches = 2});
    const Replayed plain = plain_run(chain);
    CHECK(differing(plain, plain_run(graph)).empty());
    const auto prove = [&](const Training& training, const std::string& spec) {
      const PlanOutcome nothing = planned(training.problem, spec, Bytes{0});
      const Bytes least = std::get<Infeasible>(nothing).smallest.value();
      for (const std::optional<Bytes> budget : {std::optional(least), std::optional<Bytes>()}) {
        INFO(network << ", " << spec << (budget ? ", least" : ", all"));
        const Plan made = std::get<Plan>(planned(training.problem, spec, budget));
        const Replayed run = replayed(training, made.schedule);
        CHECK(run.timeline.peaks[0].bytes == made.peak);
        const bool is_shared = narrow_networks[n].starts_with("lstm") && &training == &graph;  // sums in another order
        if (!is_shared) CHECK(differing(run, plain).empty());
      }
    };
    for (const char* spec : {"rotor", "full_recompute", "offload_greedy"}) prove(chain, spec);
    for (const char* spec : {"greedy_recompute", "offload_greedy"}) prove(graph, spec);
  }
}

TEST_CASE("two devices train in bf16 as one does", "[validate]") {
  const std::string network = narrow_networks[1] + ",values=bf16";
  const ProblemOptions options{.micro_batches = 3, .optimizer = Optimizer::adam};
  const Replayed plain = plain_run(training_of(network, one_gpu(), options));
  constexpr BytesPerSecond fast{20e9};
  const Training two = training_of(network, gpus({.count = 2, .to_host = fast, .to_peers = fast}), options);
  const PlanOutcome outcome = planned(two.problem, "1f1b");
  CHECK(differing(replayed(two, std::get<Plan>(outcome).schedule), plain).empty());
}

TEST_CASE("gradients in bf16 are those of fp32 within the rounding of values", "[validate]") {
  for (const std::string& network : narrow_networks) {
    const auto gradients = [&](const char* values) {
      return plain_run(training_of(network + values, one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::sgd}));
    };
    const Replayed exact = gradients(""), made = gradients(",values=bf16");
    std::size_t compared = 0;
    double squares = 0, errors = 0;
    for (const auto& [name, value] : exact.values) {
      if (!name.starts_with("gradient of ")) continue;
      REQUIRE(made.values.at(name).size() == value.size());
      for (std::size_t at = 0; at < value.size(); at += sizeof(float)) {
        float a = 0, b = 0;
        std::memcpy(&a, &value[at], sizeof a);
        std::memcpy(&b, &made.values.at(name)[at], sizeof b);
        squares += double{a} * double{a};
        errors += (double{a} - double{b}) * (double{a} - double{b});
      }
      ++compared;
    }
    INFO(network << ": " << std::sqrt(errors / squares));
    CHECK(compared > 2);
    // Some ten values one after the other, each rounded by 2^-9 at most. Signs and maxima of two pictures turn over:
    // PyTorch with a residual network's values rounded so is 4 to 30 % off, by its first parameters.
    CHECK(std::sqrt(errors / squares) < (network.starts_with("resnet") ? 0.5 : 0.06));
    CHECK(std::sqrt(errors / squares) > 1e-4);  // and they are rounded
  }
}

TEST_CASE("what has no kernels in bf16 is refused by name", "[networks]") {
  CHECK_THROWS_WITH(named_network("gpt:values=fp9"), Contains("values: expected fp32, bf16 or fp8"));
  CHECK_THROWS_WITH(network_in_slices("gpt:values=bf16", {}, 2), Contains("values: slices of a sequence"));
  Graph graph;
  graph.tensors.push_back(
      {.name = "x", .kind = TensorKind::activation, .bytes = Bytes{8}, .storage = {}, .shape = {4}, .dtype = "bf16"});
  Op op;
  op.kind = "mm";
  op.inputs = op.outputs = {id_at<TensorId>(0)};
  CHECK_FALSE(bfloat_use(op));
  CHECK_FALSE(make_kernel(graph, op));
}

TEST_CASE("ranks are refused in bf16", "[validate]") {
  BlockPool pool;
  const Training training = training_of("mlp:values=bf16,view=graph,updates=sgd", one_gpu());
  const auto made = network_on_ranks(training.network.network, training.problem, pool);
  CHECK(std::get<ReplayFailure>(made).what == "'input' is bf16: ranks exchange and sum fp32 only");
}

}  // namespace
}  // namespace plimsoll
