// Kernels of bf16 values on made-up streams and libraries, held against the CPU's.

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/placed_values.h"
#include "validate/cpu/cpu_network.h"
#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/cuda_machine.h"
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

TEST_CASE("every kind of op in bf16 does what the CPU's kernel does, within its scratch", "[fake_cuda]") {
  constexpr double neighbours = 0x1p-7, sums = 2e-5;  // of bf16 two are so far apart; of fp32 in another order
  fake::begin({});
  std::set<std::string> kinds;
  for (const std::string network :
       {"mlp:layers=4,width=24,batch=6,classes=5", "gpt:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=20",
        "gpt:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=20,attention=fused",
        "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5", "lstm:steps=2,width=8,batch=4,classes=3"}) {
    const CpuNetwork cpu = with_kernels(named_network(network + ",values=bf16,view=graph").network);
    const Graph& graph = cpu.network.graph;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      if (!kinds.insert(op.kind).second) continue;
      INFO(network << ", " << op.name << ", " << op.kind);
      const std::optional<CudaKernel> kernel = make_cuda_kernel(graph, op, {});
      REQUIRE(kernel);
      const NarrowValues here(graph, op, o + 1), there(graph, op, o + 1);
      const ScratchPiece own(cpu.kernels[o].scratch, 1), scratch(kernel->scratch, 1 + o % 4);
      cpu.kernels[o].run(here.arguments(own));
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
  }
  CHECK(kinds.size() > 35);
}

}  // namespace
}  // namespace plimsoll
