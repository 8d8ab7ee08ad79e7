// A mixture of experts: own kernels take rows of tokens to experts and back, cuBLASLt multiplies those of all experts.

#include <memory>
#include <numeric>

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/matrix_product.h"
#include "validate/cuda/narrow_kernels.h"

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
  return {graph[op.inputs[chances]], graph[rows], op};
}

/// One behind the other, of each expert.
StoredMatrix stored(const Tensor& numbers, bool transposed = false) {
  const std::int64_t rows = numbers.shape[1], columns = numbers.shape[2];
  const std::int64_t bytes = numbers.bytes.count / numbers.shape[0];
  return {rows, columns, columns, transposed, rows * columns, std::gcd(std::int64_t{alignment}, bytes)};
}

CudaKernel products_of_experts(const StoredMatrix& a, const StoredMatrix& b, const Tensor& c, cudaDataType_t numbers,
                               const Libraries& libraries) {
  const ProductShape shape{
      .a = a, .b = b, .c = stored(c), .batch = c.shape[0], .numbers = numbers, .made = number_type(c)};
  const auto product = std::make_shared<const MatrixProduct>(shape, libraries);
  return {[product](const KernelArguments& arguments, const Queue& queue) {
            product->run(arguments.inputs[0], arguments.inputs[1], arguments.outputs[0], nullptr, arguments.scratch,
                         queue);
          },
          product->scratch()};
}

/// An expert's weight as it is read: rounded, its numbers take as many bytes as those of the other factor.
StoredMatrix stored_weight(const Graph& graph, const Op& op, bool transposed = false) {
  StoredMatrix made = stored(graph[op.inputs[1]], transposed);
  if (is_bf16(graph[op.inputs[0]])) made.alignment = std::gcd(std::int64_t{alignment}, 2 * made.stride);
  return made;
}

}  // namespace

CudaKernel to_experts(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.outputs[0]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
      launch::send_to_experts(s, c, a.in_as<Number>(0), a.out_as<Number>(), stream);
    });
  });
}

CudaKernel to_experts_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.inputs[0]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
      launch::bring_from_experts(s, c, a.in_as<Number>(0), a.out_as<Number>(), stream);
    });
  });
}

CudaKernel from_experts(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 1, op.inputs[0]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return chosen_first(s, 1, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
      launch::mix_experts(s, c, a.in_as<Number>(0), a.in(1), a.out_as<Number>(), stream);
    });
  });
}

CudaKernel from_experts_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const ExpertSizes s = expert_sizes(graph, op, 2, op.inputs[1]);
  return by_number(graph[op.inputs[0]], [s]<class Number>(Number) {
    return chosen_first(s, 2, [s](const KernelArguments& a, const ExpertChoice& c, cudaStream_t stream) {
      launch::mix_experts_gradient(s, c, a.in_as<Number>(0), a.in_as<Number>(1), a.in(2), a.out_as<Number>(0), a.out(1),
                                   stream);
    });
  });
}

CudaKernel expert_product(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor& x = graph[op.inputs[0]];
  return with_rounded_parameters(
      graph, op,
      products_of_experts(stored(x), stored_weight(graph, op), graph[op.outputs[0]], number_type(x), libraries));
}

CudaKernel expert_product_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor& dy = graph[op.inputs[0]];
  return with_rounded_parameters(graph, op,
                                 products_of_experts(stored(dy), stored_weight(graph, op, true), graph[op.outputs[0]],
                                                     number_type(dy), libraries));
}

CudaKernel expert_product_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor& x = graph[op.inputs[0]];
  return products_of_experts(stored(x, true), stored(graph[op.inputs[1]]), graph[op.outputs[0]], number_type(x),
                             libraries);
}

}  // namespace plimsoll::cuda_kernels
