#include "validate/cuda/narrow_kernels.h"

#include <utility>
#include <vector>

#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/networks/narrow_values.h"
#include "validate/networks/wide_op.h"

namespace plimsoll {
namespace {

/// Kinds whose kernel here takes fp32 alone.
bool is_in_fp32_alone(OpKind kind) {
  switch (kind) {
    case OpKind::convolution_weight_gradient:
    case OpKind::fused_attention:
    case OpKind::fused_attention_backward:
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
  struct Parameter {
    std::size_t input;
    std::int64_t numbers;
  };
  std::vector<Parameter> parameters;
  Bytes rounded;
  for (std::size_t i = 1; i < op.inputs.size(); ++i) {
    const Tensor& input = graph[op.inputs[i]];
    if (is_bf16(input)) continue;
    parameters.push_back({i, number_count(input)});
    rounded += aligned(Bytes{2 * number_count(input)});
  }
  return {[product = std::move(kernel.run), parameters](const KernelArguments& a, const Queue& queue) {
            KernelArguments given = a;
            for (const Parameter& each : parameters) {
              launch::narrow(a.in(each.input), each.numbers, static_cast<Bf16*>(given.scratch), queue.stream);
              given.inputs[each.input] = given.scratch;
              given.scratch = static_cast<std::byte*>(given.scratch) + aligned(Bytes{2 * each.numbers}).count;
            }
            product(given, queue);
          },
          rounded + kernel.scratch};
}

std::optional<CudaKernel> narrow_cuda_kernel(const Graph& graph, const Op& op, const Libraries& libraries,
                                             CudaKernelMaker make) {
  if (!bfloat_use(op)) return std::nullopt;
  if (multiplies_8_bits(op)) return cuda_kernels::product_in_fp8(graph, op, libraries);
  if (!is_in_fp32_alone(*network_kind(op.kind))) {
    try {
      return make(graph, op, libraries);
    } catch (const CudaError&) {  // cuDNN has none for this card or these sizes
    }
  }
  const WideOp wide(graph, op);
  return on_wide_copies(wide, make(wide.graph, wide.op, libraries));
}

}  // namespace plimsoll
