// Kernels of bf16 values on made-up streams and libraries, held against the CPU's.

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

#include "sim/core/op_attribute.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/placed_values.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/cpu/cpu_network.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_network.h"
#include "validate/cuda/cuda_replay.h"
#include "validate/cuda/launch.h"
#include "validate/network_model.h"
#include "validate/networks/bf16.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

/// An op's tensors, placed in memory of their own.
struct NarrowValues {
  std::vector<ScratchPiece> inputs, outputs;

  NarrowValues(const Graph& graph, const Op& op, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> number(-1.0F, 1.0F);
    inputs.reserve(op.inputs.size());
    outputs.reserve(op.outputs.size());
    for (const TensorId t : op.inputs) {
      std::byte* to = inputs.emplace_back(graph[t].bytes, 1).address();
      for (std::int64_t i = 0; i < number_count(graph[t]); ++i) {
        const float x = number(random);
        const Bf16 narrow = as_bf16(x);
        const auto token = static_cast<std::int32_t>(random() % 20);
        if (is_bf16(graph[t])) std::memcpy(to + 2 * i, &narrow, 2);
        if (graph[t].dtype == "fp32") std::memcpy(to + 4 * i, &x, 4);
        if (graph[t].dtype == "int32") std::memcpy(to + 4 * i, &token, 4);
      }
    }
    for (const TensorId t : op.outputs) outputs.emplace_back(graph[t].bytes, 1);
  }

  KernelArguments arguments(const ScratchPiece& scratch) const {
    KernelArguments made;
    for (const ScratchPiece& piece : inputs) made.inputs.push_back(piece.address());
    for (const ScratchPiece& piece : outputs) made.outputs.push_back(piece.address());
    made.scratch = scratch.address();
    return made;
  }

  float number(const Graph& graph, const Op& op, std::size_t output, std::int64_t i) const {
    const std::byte* from = outputs[output].address();
    Bf16 narrow{};
    float wide = 0;
    if (!is_bf16(graph[op.outputs[output]])) {
      std::memcpy(&wide, from + 4 * i, 4);
      return wide;
    }
    std::memcpy(&narrow, from + 2 * i, 2);
    return as_float(narrow);
  }
};

/// The kernel of a GPU makes what the CPU's makes.
void hold_to_cpu(const Graph& graph, const Op& op, const Kernel& of_cpu, std::uint64_t seed) {
  constexpr double neighbours = 0x1p-7, sums = 2e-5;  // of bf16 two are so far apart; of fp32 in another order
  const std::optional<CudaKernel> kernel = make_cuda_kernel(graph, op, {});
  REQUIRE(kernel);
  const NarrowValues here(graph, op, seed), there(graph, op, seed);
  const ScratchPiece own(of_cpu.scratch, 1), scratch(kernel->scratch, 1 + seed % 4);
  of_cpu.run(here.arguments(own));
  {
    const OwnedStream stream = new_stream();
    kernel->run(there.arguments(scratch), {*stream, nullptr, nullptr});
  }  // is drained
  CHECK(scratch.is_untouched_behind());
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    CHECK(there.outputs[i].is_untouched_behind());
    double largest = 0, worst = 0;
    for (std::int64_t k = 0; k < number_count(graph[op.outputs[i]]); ++k) {
      const double a = here.number(graph, op, i, k), b = there.number(graph, op, i, k);
      if (a == b) continue;  // minus infinity too
      worst = std::isfinite(b) ? std::max(worst, std::abs(a - b)) : INFINITY;
      largest = std::max(largest, std::abs(a));
    }
    CHECK(worst <= (is_bf16(graph[op.outputs[i]]) ? neighbours : sums) * largest);
  }
}

TEST_CASE("every kind of op in bf16 does what the CPU's kernel does, within its scratch", "[fake_cuda]") {
  fake::begin({});
  std::set<std::string> kinds;
  for (const std::string network :
       {"mlp:layers=4,width=24,batch=6,classes=5", "gpt:layers=1,width=16,heads=2,sequence=4,batch=1,vocabulary=20",
        "gpt:layers=1,width=16,heads=2,sequence=4,batch=2,vocabulary=20,attention=fused",
        "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5", "lstm:steps=2,width=8,batch=4,classes=3",
        "decoder:layers=1,width=16,heads=4,kv_heads=2,inner=8,sequence=4,batch=1,vocabulary=20,experts=4,tied=yes"}) {
    const CpuNetwork cpu = with_kernels(named_network(network + ",values=bf16,view=graph").network);
    const Graph& graph = cpu.network.graph;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      if (!kinds.insert(op.kind + network.substr(0, 2)).second) continue;
      INFO(network << ", " << op.name << ", " << op.kind);
      hold_to_cpu(graph, op, cpu.kernels[o], o + 1);
    }
  }
  CHECK(kinds.size() > 60);
}

TEST_CASE("products in fp8 do what the CPU's do, within their scratch", "[fake_cuda]") {
  fake::begin({});
  std::size_t checked = 0;
  const CpuNetwork cpu = with_kernels(
      named_network("gpt:layers=1,width=16,heads=2,sequence=32,batch=2,vocabulary=20,values=fp8,view=graph").network);
  const Graph& graph = cpu.network.graph;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (!multiplies_8_bits(op)) continue;
    INFO(op.name);
    hold_to_cpu(graph, op, cpu.kernels[o], o + 1);
    ++checked;
  }
  CHECK(checked == 12);
}

TEST_CASE("a tensor's scale is that of all its numbers, also of many blocks", "[fake_cuda]") {
  fake::begin({});
  for (const RowSizes s : {RowSizes{16, 16}, RowSizes{16, 1024}}) {
    std::vector<Bf16> x(static_cast<std::size_t>(s.rows * s.columns));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = as_bf16(std::sin(static_cast<float>(i)));
    x.back() = as_bf16(-7.0F);
    x[0] = as_bf16(NAN);  // counts for nothing
    const ScratchPiece scaling(Bytes{launch::scaling_scratch()}, 1);
    auto* scales = static_cast<float*>(static_cast<void*>(scaling.address()));
    std::vector<E4m3> plain(x.size()), turned(x.size());
    {
      const OwnedStream stream = new_stream();
      launch::scale_to_8_bits(x.data(), s, false, scales, plain.data(), *stream);
      launch::scale_to_8_bits(x.data(), s, true, scales, turned.data(), *stream);
    }  // is drained
    CHECK(scaling.is_untouched_behind());
    CHECK(*scales == 7.0F / 448.0F);
    CHECK(as_float(plain.back()) == -448.0F);
    std::size_t wrong = 0;
    for (std::int64_t i = 1; i < s.rows * s.columns; ++i) {
      const std::int64_t there = i % s.columns * s.rows + i / s.columns;
      const std::uint8_t code = in_8_bits<E4m3>(as_float(x[static_cast<std::size_t>(i)]) * 64.0F);
      wrong += plain[static_cast<std::size_t>(i)].bits == code ? 0 : 1;
      wrong += turned[static_cast<std::size_t>(there)].bits == code ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(std::isnan(as_float(plain[0])));
  }
}

/// A network with kernels of CUDA, on made-up libraries.
struct NarrowTraining {
  CudaNetwork network;
  Problem problem;

  explicit NarrowTraining(const std::string& reference)
      : network(with_cuda_kernels(named_network(reference, Optimizer::sgd).network, {})),
        problem(problem_of(model_of(with_cuda_kernels(named_network(reference).network, {}).network, View::chain),
                           one_gpu(), {.micro_batches = 2, .optimizer = Optimizer::sgd})) {}

  Replayed run(const Plan& made, std::uint64_t seed) {
    fake::begin({.seed = seed});
    CudaMachine machine;
    const auto plan = replay_plan(problem, made.schedule, network.network, {});
    REQUIRE(std::holds_alternative<ReplayPlan>(plan));
    auto outcome = replay_on_cuda(problem, made.schedule, std::get<ReplayPlan>(plan), network, machine,
                                  Allocation::caching, {.poisons = true, .keeps_values = true});
    if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
    CHECK(fake::early_uses() == 0);
    Replayed run = std::move(std::get<Replayed>(outcome));
    if (made.schedule.streams.size() == 1) CHECK(run.timeline.peaks[0].bytes == made.peak);  // else as streams come
    return run;
  }
};

TEST_CASE("plans of networks in bf16 train with CUDA's kernels as plain training does", "[fake_cuda][eleventh-6]") {
  for (const std::string reference :
       {"mlp:values=bf16,layers=3,width=8,batch=4,classes=5",
        "gpt:values=bf16,layers=1,width=8,heads=1,sequence=2,batch=1,vocabulary=6",
        "resnet:values=bf16,blocks=1,channels=2,picture=8,batch=2,classes=3",
        "lstm:values=bf16,steps=2,width=4,batch=2,classes=3",
        "decoder:values=bf16,layers=1,width=8,heads=2,kv_heads=1,inner=4,sequence=2,batch=1,vocabulary=6,experts=3"}) {
    fake::begin({});
    NarrowTraining training(reference);
    const auto planned_for = [&](const char* spec) { return std::get<Plan>(planned(training.problem, spec)); };
    const Replayed plain = training.run(planned_for("store_all"), 1);
    CHECK(plain.values.size() > 2);
    CHECK(planned_for("full_recompute").schedule.streams.size() == 1);
    for (const char* spec : {"full_recompute", "save_on_cpu"}) {
      INFO(reference << ", " << spec);
      CHECK(differing(training.run(planned_for(spec), 2), plain).empty());
    }
  }
}

TEST_CASE("a plan of a network in fp8 trains with CUDA's kernels as plain training does", "[fake_cuda][eleventh-7]") {
  fake::begin({});
  NarrowTraining training("mlp:values=fp8,layers=2,width=16,batch=16,classes=5");
  const auto planned_for = [&](const char* spec) { return std::get<Plan>(planned(training.problem, spec)); };
  const Replayed plain = training.run(planned_for("store_all"), 1);
  CHECK(plain.values.size() > 2);
  CHECK(differing(training.run(planned_for("full_recompute"), 2), plain).empty());
}

}  // namespace
}  // namespace plimsoll
