#include "validate/cuda/narrow_kernels.h"

#include <utility>
#include <vector>

#include "sim/core/op_kind.h"
#include "validate/cuda/launch.h"
#include "validate/networks/narrow_values.h"
#include "validate/networks/wide_op.h"

namespace plimsoll {
namespace {

bool computes_in_bf16(OpKind kind) {
  switch (kind) {
    case OpKind::linear:
    case OpKind::linear_input_gradient:
    case OpKind::linear_weight_gradient:
    case OpKind::lstm_gates:
    case OpKind::lstm_weight_gradient:
    case OpKind::relu:
    case OpKind::relu_gradient:
    case OpKind::gelu:
    case OpKind::gelu_gradient:
    case OpKind::add:
      return true;
    default:
      return false;
  }
}

CudaKernel on_wide_copies(const WideOp& wide, const CudaKernel& kernel) {
  return {[in_fp32 = kernel.run, inputs = wide.inputs, outputs = wide.outputs, copies = wide.copies](
              const KernelArguments& a, const Queue& queue) {
            for (const WideCopy& copy : inputs) {
              if (copy.rounds) {
                launch::round_numbers(a.in(copy.index), copy.numbers, copy.address(a), queue.stream);
              } else {
                launch::widen(a.in_as<Bf16>(copy.index), copy.numbers, copy.address(a), queue.stream);
              }
            }
            in_fp32(WideOp::arguments(a, inputs, outputs, copies), queue);
            for (const WideCopy& copy : outputs) {
              launch::narrow(copy.address(a), copy.numbers, a.out_as<Bf16>(copy.index), queue.stream);
            }
          },
          wide.copies + kernel.scratch};
}

}  // namespace

cudaDataType_t number_type(const Tensor& tensor) {
  return is_bf16(tensor) ? CUDA_R_16BF : CUDA_R_32F;
}

CudaKernel with_rounded_parameters(const Graph& graph, const Op& op, CudaKernel kernel) {
  if (!is_bf16(graph[op.inputs[0]])) return kernel;
  std::vector<std::int64_t> numbers;
  Bytes rounded;
  for (std::size_t i = 1; i < op.inputs.size(); ++i) {
    numbers.push_back(number_count(graph[op.inputs[i]]));
    rounded += aligned(Bytes{2 * numbers.back()});
  }
  return {[product = std::move(kernel.run), numbers](const KernelArguments& a, const Queue& queue) {
            KernelArguments given = a;
            for (std::size_t i = 0; i < numbers.size(); ++i) {
              launch::narrow(a.in(i + 1), numbers[i], static_cast<Bf16*>(given.scratch), queue.stream);
              given.inputs[i + 1] = given.scratch;
              given.scratch = static_cast<std::byte*>(given.scratch) + aligned(Bytes{2 * numbers[i]}).count;
            }
            product(given, queue);
          },
          rounded + kernel.scratch};
}

std::optional<CudaKernel> narrow_cuda_kernel(const Graph& graph, const Op& op, const Libraries& libraries,
                                             CudaKernelMaker make) {
  if (!bfloat_use(op)) return std::nullopt;
  if (computes_in_bf16(*network_kind(op.kind))) return make(graph, op, libraries);
  const WideOp wide(graph, op);
  return on_wide_copies(wide, make(wide.graph, wide.op, libraries));
}

}  // namespace plimsoll
