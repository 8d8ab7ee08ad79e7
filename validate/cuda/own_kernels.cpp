// The ops that are our own kernels: makers that bind their sizes.

#include "validate/cuda/cuda_kernel.h"
#include "validate/cuda/launch.h"

namespace plimsoll {
namespace {

using Arguments = KernelArguments;

CudaKernel plain_kernel(std::function<void(const Arguments&, cudaStream_t)> run, Bytes scratch = {}) {
  return {[run = std::move(run)](const Arguments& a, const Queue& queue) { run(a, queue.stream); }, scratch};
}

const std::int32_t* tokens(const Arguments& a) {
  return static_cast<const std::int32_t*>(a.inputs[0]);
}

float* changed(const Arguments& a, std::size_t i) {
  return static_cast<float*>(a.inputs[i]);
}

std::optional<CudaKernel> elementwise(const Graph& graph, const Op& op) {
  if (op.inputs.empty()) return std::nullopt;
  const std::int64_t n = graph[op.inputs[0]].bytes.count / 4;
  if (op.kind == "relu") {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) { launch::relu(a.in(0), a.out(), n, s); });
  }
  if (op.kind == "relu_gradient") {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::relu_gradient(a.in(0), a.in(1), a.out(), n, s); });
  }
  if (op.kind == "gelu") {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) { launch::gelu(a.in(0), a.out(), n, s); });
  }
  if (op.kind == "gelu_gradient") {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::gelu_gradient(a.in(0), a.in(1), a.out(), n, s); });
  }
  if (op.kind == "add") {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) { launch::add(a.in(0), a.in(1), a.out(), n, s); });
  }
  if (op.kind != "optimizer") return std::nullopt;
  const std::string_view name = attribute(op, "optimizer");
  if (name == "sgd") {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) { launch::sgd(changed(a, 0), a.in(1), n, s); });
  }
  if (name == "momentum") {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::momentum(changed(a, 0), a.in(1), changed(a, 2), n, s); });
  }
  if (name != "adam") return std::nullopt;
  return plain_kernel([n](const Arguments& a, cudaStream_t s) {
    launch::adam(changed(a, 0), a.in(1), changed(a, 2), changed(a, 3), n, s);
  });
}

std::optional<CudaKernel> by_rows(const Graph& graph, const Op& op) {
  if (op.inputs.empty()) return std::nullopt;
  const RowSizes r = row_sizes(graph[op.inputs[0]]);
  const Bytes by_column{launch::column_norm_scratch(r)};
  if (op.kind == "softmax" || op.kind == "cross_entropy") {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) { launch::softmax(a.in(0), r, a.out(), s); });
  }
  if (op.kind == "softmax_gradient") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) { launch::softmax_gradient(a.in(0), a.in(1), r, a.out(), s); });
  }
  if (op.kind == "cross_entropy_gradient") {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::cross_entropy_gradient(a.in(0), r.rows, r.columns, a.out(), s);
    });
  }
  if (op.kind == "batch_norm") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm(a.in(0), a.in(1), a.in(2), r, a.scratch, a.statistics, a.out(), s);
        },
        by_column);
  }
  if (op.kind == "batch_norm_input_gradient") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm_input_gradient(a.in(0), a.in(1), a.in(2), r, a.scratch, a.out(), s);
        },
        by_column);
  }
  if (op.kind == "batch_norm_weight_gradient") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm_weight_gradient(a.in(0), a.in(1), r, a.scratch, a.out(0), a.out(1), s);
        },
        by_column);
  }
  if (op.kind == "layer_norm") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) { launch::layer_norm(a.in(0), a.in(1), a.in(2), r, a.out(), s); });
  }
  if (op.kind == "layer_norm_input_gradient") {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::layer_norm_input_gradient(a.in(0), a.in(1), a.in(2), r, a.out(), s);
    });
  }
  if (op.kind == "layer_norm_weight_gradient") {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::layer_norm_weight_gradient(a.in(0), a.in(1), r, a.scratch, a.out(0), a.out(1), s);
        },
        Bytes{launch::layer_norm_weight_scratch(r)});
  }
  return std::nullopt;
}

std::optional<CudaKernel> pooling(const Graph& graph, const Op& op) {
  if (op.kind == "max_pool_gradient") {
    const Tensor &x = graph[op.inputs[0]], &y = graph[op.inputs[1]];
    const PoolSizes p{x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2]};
    return plain_kernel(
        [p](const Arguments& a, cudaStream_t s) { launch::max_pool_gradient(a.in(0), a.in(1), p, a.out(), s); });
  }
  if (op.kind != "average_pool" && op.kind != "average_pool_gradient") return std::nullopt;
  const bool forward = op.kind == "average_pool";
  const Tensor& x = graph[forward ? op.inputs[0] : op.outputs[0]];
  const std::int64_t batch = x.shape[0], pixels = x.shape[1] * x.shape[2], channels = x.shape[3];
  return plain_kernel([=](const Arguments& a, cudaStream_t s) {
    if (forward) {
      launch::average_pool(a.in(0), batch, pixels, channels, a.out(), s);
    } else {
      launch::average_pool_gradient(a.in(0), batch, pixels, channels, a.out(), s);
    }
  });
}

plain::EmbeddingSizes embedding_sizes(const Tensor& token, const Tensor& table, const Tensor& positions) {
  return {token.bytes.count / 4, positions.shape[0], positions.shape[1], table.shape[0]};
}

std::optional<CudaKernel> ends_and_cells(const Graph& graph, const Op& op) {
  if (op.kind == "embedding") {
    const auto e = embedding_sizes(graph[op.inputs[0]], graph[op.inputs[1]], graph[op.inputs[2]]);
    return plain_kernel(
        [e](const Arguments& a, cudaStream_t s) { launch::embedding(tokens(a), a.in(1), a.in(2), e, a.out(), s); });
  }
  if (op.kind == "embedding_weight_gradient") {
    const auto e = embedding_sizes(graph[op.inputs[0]], graph[op.outputs[0]], graph[op.outputs[1]]);
    return plain_kernel(
        [e](const Arguments& a, cudaStream_t s) {
          launch::embedding_weight_gradient(tokens(a), a.in(1), e, a.scratch, a.out(0), a.out(1), s);
        },
        Bytes{launch::embedding_gradient_scratch(e)});
  }
  if (op.kind != "lstm_cell" && op.kind != "lstm_cell_gradient") return std::nullopt;
  const bool forward = op.kind == "lstm_cell";
  const Tensor& gates = graph[op.inputs[forward ? 0 : 1]];
  const std::int64_t batch = gates.shape[0], width = gates.shape[1] / 4;
  return plain_kernel([=](const Arguments& a, cudaStream_t s) {
    if (forward) {
      launch::lstm_cell(a.in(0), a.in(1), batch, width, a.out(), s);
    } else {
      launch::lstm_cell_gradient(a.in(0), a.in(1), a.in(2), batch, width, a.out(), s);
    }
  });
}

}  // namespace

std::optional<CudaKernel> own_cuda_kernel(const Graph& graph, const Op& op) {
  for (const auto make : {elementwise, by_rows, pooling, ends_and_cells}) {
    if (std::optional<CudaKernel> kernel = make(graph, op)) return kernel;
  }
  return std::nullopt;
}

std::optional<CudaKernel> make_cuda_kernel(const Graph& graph, const Op& op, const Libraries& libraries) {
  for (const auto make : {cuda_product_kernel, cuda_convolution_kernel}) {
    if (std::optional<CudaKernel> kernel = make(graph, op, libraries)) return kernel;
  }
  return own_cuda_kernel(graph, op);
}

}  // namespace plimsoll
