// A mixture of experts: own kernels take rows of tokens to experts and back, cuBLASLt multiplies those of all experts.

#include <memory>
#include <numeric>

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"

namespace plimsoll::cuda_kernels {
namespace {

/// Chooses in the scratch, then issues `work(arguments, choice, stream)`. `chances` is that input.
template <class Work>
CudaKernel chosen_first(const ExpertSizes& s, std::size_t chances, Work work) {
  return {[s, chances, work](const KernelArguments& a, const Queue& queue) {
            const ExpertChoice choice(a.scratch, s);
            launch::choose(a.in(chances), s, choice, queue.stream);
            work(a, choice, queue.stream);
          },
          Bytes{s.scratch()}};
}

ExpertSizes expert_sizes(const Graph& graph, const Op& op, std::size_t chances, TensorId rows) {
  return {graph[op.inputs[chances]], graph[rows], whole_attribute(op, "top")};
}

/// One behind the other, of each expert.
StoredMatrix stored(const std::vector<std::int64_t>& shape, bool transposed = false) {
  const std::int64_t numbers = shape[1] * shape[2];
  return {shape[1], shape[2], shape[2], transposed, numbers, std::gcd(std::int64_t{alignment}, 4 * numbers)};
}

CudaKernel products_of_experts(const StoredMatrix& a, const StoredMatrix& b, const Tensor& c,
                               const Libraries& libraries) {
  const auto product =
      std::make_shared<const MatrixProduct>(ProductShape{a, b, stored(c.shape), c.shape[0]}, libraries);
  return {[product](const KernelArguments& arguments, const Queue& queue) {
            product->run(arguments.in(0), arguments.in(1), arguments.out(), nullptr, arguments.scratch, queue);
          },
          product->scratch()};
}

}  // namespace

CudaKernel to_experts(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.outputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
    launch::send_to_experts(s, c, a.in(0), a.out(), stream);
  });
}

CudaKernel to_experts_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.inputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
    launch::bring_from_experts(s, c, a.in(0), a.out(), stream);
  });
}

CudaKernel from_experts(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.inputs[0]);
  return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
    launch::mix_experts(s, c, a.in(0), a.in(1), a.out(), stream);
  });
}

CudaKernel from_experts_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 2, op.inputs[1]);
  return chosen_first(s, 2, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
    launch::mix_experts_gradient(s, c, a.in(0), a.in(1), a.in(2), a.out(0), a.out(1), stream);
  });
}

CudaKernel expert_product(const Graph& graph, const Op& op, const Libraries& libraries) {
  return products_of_experts(stored(graph[op.inputs[0]].shape), stored(graph[op.inputs[1]].shape), graph[op.outputs[0]],
                             libraries);
}

CudaKernel expert_product_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  return products_of_experts(stored(graph[op.inputs[0]].shape), stored(graph[op.inputs[1]].shape, true),
                             graph[op.outputs[0]], libraries);
}

CudaKernel expert_product_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  return products_of_experts(stored(graph[op.inputs[0]].shape, true), stored(graph[op.inputs[1]].shape),
                             graph[op.outputs[0]], libraries);
}

}  // namespace plimsoll::cuda_kernels
