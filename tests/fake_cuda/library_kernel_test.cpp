// The kernels that are a library's: what cuBLASLt and cuDNN are told of, held against the CPU's kernels.

#include <catch2/catch.hpp>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/validate/op_cases.h"
#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/cuda_machine.h"

namespace plimsoll {
namespace {

TEST_CASE("products and convolutions tell their libraries of the right matrices and pictures", "[fake_cuda]") {
  fake::begin({});
  std::uint64_t seed = 1;
  std::size_t tested = 0;
  for (const OpCase& c : op_cases()) {
    std::optional<CudaKernel> kernel = cuda_product_kernel(c.graph, c.op, {});
    if (!kernel) kernel = cuda_convolution_kernel(c.graph, c.op, {});
    if (!kernel) continue;
    ++tested;
    OpValues values = random_values(c, seed++);
    const OpValues expected = on_cpu(c, values);
    const auto scratch_bytes = static_cast<std::size_t>(kernel->scratch.count);
    std::vector<unsigned char> scratch(scratch_bytes + 64, 0xAB);  // what is behind it must stay as it is
    KernelArguments arguments;
    for (std::vector<float>& input : values.inputs) arguments.inputs.push_back(input.data());
    for (std::vector<float>& output : values.outputs) arguments.outputs.push_back(output.data());
    arguments.scratch = scratch.data();
    {
      const OwnedStream stream = new_stream();
      kernel->run(arguments, {*stream, nullptr, nullptr});
    }  // is drained
    INFO(c.op.kind << ", case " << seed - 1);
    for (std::size_t o = 0; o < values.outputs.size(); ++o) {
      CHECK(difference(values.outputs[o], expected.outputs[o]) <= 1e-5);
    }
    CHECK(std::all_of(scratch.begin() + static_cast<std::ptrdiff_t>(scratch_bytes), scratch.end(),
                      [](unsigned char byte) { return byte == 0xAB; }));
  }
  CHECK(tested == 21);
}

}  // namespace
}  // namespace plimsoll
