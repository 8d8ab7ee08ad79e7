// What CUDA and its libraries demand and do not say: alignment, workspaces, memory that is still in use.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <ctime>
#include <random>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/placed_values.h"
#include "tests/random_case.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/launch.h"
#include "validate/reference/layers.h"

namespace plimsoll {
namespace {

Tensor fp32(const std::vector<std::int64_t>& shape, TensorKind kind) {
  std::int64_t bytes = 4;
  for (const std::int64_t n : shape) bytes *= n;
  return {.name = "t", .kind = kind, .bytes = Bytes{bytes}, .shape = shape, .dtype = "fp32"};
}

TEST_CASE("a head of ten classes adds to its gradients with the library's workspace at a multiple of 256 bytes",
          "[fake_cuda]") {
  fake::begin({});
  constexpr std::int64_t rows = 6, width = 12, classes = 10;
  OpCase c;
  c.graph.tensors = {fp32({rows, width}, TensorKind::activation), fp32({rows, classes}, TensorKind::gradient),
                     fp32({width, classes}, TensorKind::parameter_gradient),
                     fp32({classes}, TensorKind::parameter_gradient)};
  c.op.kind = "linear_weight_gradient";
  c.op.inputs = {TensorId{0}, TensorId{1}};
  c.op.outputs = {TensorId{2}, TensorId{3}};
  const std::optional<CudaKernel> kernel = make_cuda_kernel(c.graph, c.op, {});
  REQUIRE(kernel);
  state_workspace(c.graph, c.op, kernel->scratch);
  const Bytes workspace = c.op.accumulate_workspace.value();
  CHECK(workspace - kernel->scratch == Bytes{480 + 32 + 64});  // of the weights, to a multiple of 64, and of the bias
  for (const std::size_t lines : {0U, 1U, 2U, 3U}) {
    INFO(lines);
    OpValues values = random_values(c, 7);
    const OpValues expected = on_cpu(c, values);
    const PlacedValues placed(values);
    const ScratchPiece scratch(workspace, lines);
    KernelArguments arguments = placed.arguments();
    arguments.scratch = scratch.address();
    const KernelArguments parts = contribution_arguments(c.graph, c.op, arguments);
    {
      const OwnedStream stream = new_stream();
      kernel->run(parts, {*stream, nullptr, nullptr});
    }
    CHECK(scratch.is_untouched_behind());
    for (std::size_t o = 0; o < 2; ++o) {
      std::memcpy(values.outputs[o].data(), parts.outputs[o], 4 * values.outputs[o].size());
      CHECK(difference(values.outputs[o], expected.outputs[o]) <= 1e-5);
    }
  }
}

TEST_CASE("where no algorithm of cuDNN keeps to the limit, the one with the smallest workspace is taken",
          "[fake_cuda]") {
  fake::begin({});
  for (const char* kind : {"convolution", "convolution_input_gradient", "convolution_weight_gradient"}) {
    const OpCase c = op_case(kind);
    const std::size_t usual = fake::machine().convolution_workspace;
    const auto small = make_cuda_kernel(c.graph, c.op, {});
    fake::begin({.convolution_workspace = std::size_t{50} << 20U});
    const auto large = make_cuda_kernel(c.graph, c.op, {});
    REQUIRE(small);
    REQUIRE(large);
    CHECK(large->scratch - small->scratch == Bytes{(50 << 20) - static_cast<std::int64_t>(usual)});
    fake::begin({});
  }
}

TEST_CASE("a convolution runs in the maths for which its algorithm was offered, and rounds only where it may",
          "[fake_cuda]") {
  const bool tf32 = GENERATE(false, true);
  for (const char* kind : {"convolution", "convolution_input_gradient", "convolution_weight_gradient"}) {
    INFO(kind << ", TF32 " << tf32);
    fake::begin({});
    const OpCase c = op_case(kind);
    Libraries libraries{};
    libraries.tf32 = tf32;
    const auto kernel = make_cuda_kernel(c.graph, c.op, libraries);
    REQUIRE(kernel);
    const PlacedValues placed(random_values(c, 3));
    const ScratchPiece scratch(kernel->scratch, 1);
    KernelArguments arguments = placed.arguments();
    arguments.scratch = scratch.address();
    {
      const OwnedStream stream = new_stream();
      kernel->run(arguments, {*stream, nullptr, nullptr});
    }
    CHECK(fake::maths() == (tf32 ? "T" : "F"));
  }
}

TEST_CASE("cuDNN convolves pictures in bf16, and makes gradients of weights from fp32 copies", "[fake_cuda]") {
  for (const char* kind : {"convolution", "convolution_input_gradient", "convolution_weight_gradient"}) {
    INFO(kind);
    fake::begin({});
    OpCase c = op_case(kind);
    const OpValues values = random_values(c, 3);  // more than enough bytes
    for (Tensor& tensor : c.graph.tensors) {
      if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient) continue;
      tensor.dtype = "bf16";
      tensor.bytes = Bytes{tensor.bytes.count / 2};
    }
    const auto kernel = make_cuda_kernel(c.graph, c.op, {});
    REQUIRE(kernel);
    const PlacedValues placed(values);
    const ScratchPiece scratch(kernel->scratch, 1);
    KernelArguments arguments = placed.arguments();
    arguments.scratch = scratch.address();
    {
      const OwnedStream stream = new_stream();
      kernel->run(arguments, {*stream, nullptr, nullptr});
    }
    CHECK(fake::maths() == (std::string_view(kind) == "convolution_weight_gradient" ? "F" : "T"));
  }
}

TEST_CASE("pinned memory is freed when no stream uses it any more", "[fake_cuda]") {
  for (const RandomCase seed : random_cases(1, 4)) {
    fake::begin({.seed = seed});
    CudaMachine machine;
    machine.gpu(0);
    const OwnedStream stream = new_stream();
    std::byte* block = machine.pinned().take(Bytes{64});
    std::vector<std::byte> there(64);
    for (int copy = 0; copy < 20; ++copy) {
      CUDA_CHECK(cudaMemcpyAsync(there.data(), block, 64, cudaMemcpyDefault, *stream));
    }
    machine.pinned().give_back(block, Bytes{64});
    CHECK(fake::early_frees() == 0);
  }
}

TEST_CASE("a GPU without memory pools is opened all the same", "[fake_cuda]") {
  fake::begin({.has_pools = false});
  CudaMachine machine;
  CHECK_NOTHROW(machine.gpu(0));
  CHECK_NOTHROW(machine.release());
  CHECK_THROWS_WITH(machine.gpu(0).pool(), Catch::Matchers::StartsWith("cudaMemPoolCreate failed: "));
}

/// Gradients of an embedding by our kernel, held against the plain loop to the bit.
void compare_embedding_gradient(const plain::EmbeddingSizes& s, std::uint32_t seed, std::int32_t words) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(s.tokens));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(words));
  std::vector<float> dy(static_cast<std::size_t>(s.tokens * s.width));
  for (float& each : dy) each = static_cast<float>(random() % 1000) / 999 - 0.5F;
  std::vector<float> table(static_cast<std::size_t>(s.vocabulary * s.width), 7),
      places(static_cast<std::size_t>(s.sequence * s.width), 7);
  std::vector<float> plain_table = table, plain_places = places;
  const ScratchPiece scratch(Bytes{launch::embedding_gradient_scratch(s)}, 1);
  {
    const OwnedStream stream = new_stream();
    launch::embedding_weight_gradient(tokens.data(), dy.data(), s, scratch.address(), table.data(), places.data(),
                                      *stream);
  }
  plain::embedding_weight_gradient(tokens.data(), dy.data(), s, plain_table.data(), plain_places.data());
  CHECK(table == plain_table);
  CHECK(places == plain_places);
  CHECK(scratch.is_untouched_behind());
}

TEST_CASE("an embedding's gradient sums the rows of each word in their order", "[fake_cuda]") {
  fake::begin({});
  for (const std::int64_t vocabulary : {1, 2, 16, 17, 256, 257, 5000}) {
    for (const std::int64_t tokens : {1, 5, 256, 1031}) {
      INFO(vocabulary << " words, " << tokens << " tokens");
      const plain::EmbeddingSizes s{tokens, tokens, 3, vocabulary};
      compare_embedding_gradient(s, 11, static_cast<std::int32_t>(vocabulary));
      compare_embedding_gradient(s, 12, static_cast<std::int32_t>(std::min<std::int64_t>(3, vocabulary)));
    }
  }
}

TEST_CASE("many rows are sorted by many blocks, none of which has more than a few rows a thread", "[fake_cuda]") {
  fake::begin({});
  fake::launched_blocks().clear();
  constexpr std::int64_t tokens = 9000;
  compare_embedding_gradient({tokens, tokens, 1, 300}, 14, 300);
  const std::vector<unsigned> a_pass{5, 1, 5};  // 2,048 rows a block; one adds up 80 counts
  std::vector<unsigned> expected;
  for (int pass = 0; pass < 3; ++pass) expected.insert(expected.end(), a_pass.begin(), a_pass.end());
  CHECK(fake::launched_blocks() == expected);
}

TEST_CASE("an embedding's gradient costs its table and its tokens, not their product", "[fake_cuda]") {
  fake::begin({});
  const std::clock_t began = std::clock();
  // 50,000 x 64 x 4,096 = 13 billion additions would take ten times the limit.
  compare_embedding_gradient({4096, 512, 64, 50'000}, 13, 50'000);
  CHECK(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC < 1.5);
}

}  // namespace
}  // namespace plimsoll
