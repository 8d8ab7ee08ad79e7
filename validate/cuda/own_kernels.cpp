// The ops that are our own kernels: makers that bind their sizes.

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/narrow_kernels.h"

namespace plimsoll::cuda_kernels {
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

std::int64_t numbers_of(const Graph& graph, const Op& op) {
  return number_count(graph[op.inputs[0]]);
}

RowSizes rows_of(const Graph& graph, const Op& op) {
  return row_sizes(graph[op.inputs[0]]);
}

}  // namespace

// --- elementwise

CudaKernel relu(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = numbers_of(graph, op)]<class Number>(Number) {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::relu(a.in_as<Number>(0), a.out_as<Number>(), n, s); });
  });
}

CudaKernel relu_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = numbers_of(graph, op)]<class Number>(Number) {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) {
      launch::relu_gradient(a.in_as<Number>(0), a.in_as<Number>(1), a.out_as<Number>(), n, s);
    });
  });
}

CudaKernel gelu(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = numbers_of(graph, op)]<class Number>(Number) {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::gelu(a.in_as<Number>(0), a.out_as<Number>(), n, s); });
  });
}

CudaKernel gelu_gradient(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = numbers_of(graph, op)]<class Number>(Number) {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) {
      launch::gelu_gradient(a.in_as<Number>(0), a.in_as<Number>(1), a.out_as<Number>(), n, s);
    });
  });
}

CudaKernel add(const Graph& graph, const Op& op, const Libraries&) {
  return by_number(graph[op.inputs[0]], [n = numbers_of(graph, op)]<class Number>(Number) {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) {
      launch::add(a.in_as<Number>(0), a.in_as<Number>(1), a.out_as<Number>(), n, s);
    });
  });
}

CudaKernel optimizer(const Graph& graph, const Op& op, const Libraries&) {
  const std::int64_t n = numbers_of(graph, op);
  const std::string_view name = attribute(op, "optimizer");
  if (name == "sgd") {
    return plain_kernel([n](const Arguments& a, cudaStream_t s) { launch::sgd(changed(a, 0), a.in(1), n, s); });
  }
  if (name == "momentum") {
    return plain_kernel(
        [n](const Arguments& a, cudaStream_t s) { launch::momentum(changed(a, 0), a.in(1), changed(a, 2), n, s); });
  }
  if (name != "adam") return {};
  return plain_kernel([n](const Arguments& a, cudaStream_t s) {
    launch::adam(changed(a, 0), a.in(1), changed(a, 2), changed(a, 3), n, s);
  });
}

// --- by rows and by columns

CudaKernel softmax(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  if (is_bf16(graph[op.inputs[0]]) && !is_bf16(graph[op.outputs[0]])) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) { launch::softmax(a.in_as<Bf16>(0), r, a.out(), s); });
  }
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) { launch::softmax(a.in_as<Number>(0), r, a.out_as<Number>(), s); });
  });
}

CudaKernel softmax_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  if (!is_bf16(graph[op.inputs[0]]) && is_bf16(graph[op.outputs[0]])) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::softmax_gradient(a.in(0), a.in(1), r, a.out_as<Bf16>(), s);
    });
  }
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::softmax_gradient(a.in_as<Number>(0), a.in_as<Number>(1), r, a.out_as<Number>(), s);
    });
  });
}

CudaKernel cross_entropy_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.outputs[0]], [r]<class Number>(Number) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::cross_entropy_gradient(a.in(0), r.rows, r.columns, a.out_as<Number>(), s);
    });
  });
}

CudaKernel batch_norm(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm(a.in_as<Number>(0), a.in(1), a.in(2), r, a.scratch, a.statistics, a.out_as<Number>(), s);
        },
        Bytes{launch::column_norm_scratch(r)});
  });
}

CudaKernel batch_norm_input_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm_input_gradient(a.in_as<Number>(0), a.in(1), a.in_as<Number>(2), r, a.scratch,
                                            a.out_as<Number>(), s);
        },
        Bytes{launch::column_norm_scratch(r)});
  });
}

CudaKernel batch_norm_weight_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::batch_norm_weight_gradient(a.in_as<Number>(0), a.in_as<Number>(1), r, a.scratch, a.out(0), a.out(1),
                                             s);
        },
        Bytes{launch::column_norm_scratch(r)});
  });
}

CudaKernel layer_norm(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::layer_norm(a.in_as<Number>(0), a.in(1), a.in(2), r, a.out_as<Number>(), s);
    });
  });
}

CudaKernel layer_norm_input_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel([r](const Arguments& a, cudaStream_t s) {
      launch::layer_norm_input_gradient(a.in_as<Number>(0), a.in(1), a.in_as<Number>(2), r, a.out_as<Number>(), s);
    });
  });
}

CudaKernel layer_norm_weight_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const RowSizes r = rows_of(graph, op);
  return by_number(graph[op.inputs[0]], [r]<class Number>(Number) {
    return plain_kernel(
        [r](const Arguments& a, cudaStream_t s) {
          launch::layer_norm_weight_gradient(a.in_as<Number>(0), a.in_as<Number>(1), r, a.scratch, a.out(0), a.out(1),
                                             s);
        },
        Bytes{launch::layer_norm_weight_scratch(r)});
  });
}

// --- pooling

CudaKernel max_pool_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.inputs[1]];
  const PoolSizes p{x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2]};
  return by_number(x, [p]<class Number>(Number) {
    return plain_kernel([p](const Arguments& a, cudaStream_t s) {
      launch::max_pool_gradient(a.in_as<Number>(0), a.in_as<Number>(1), p, a.out_as<Number>(), s);
    });
  });
}

CudaKernel average_pool(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor& x = graph[op.inputs[0]];
  const std::int64_t batch = x.shape[0], pixels = x.shape[1] * x.shape[2], channels = x.shape[3];
  return by_number(x, [=]<class Number>(Number) {
    return plain_kernel([=](const Arguments& a, cudaStream_t s) {
      launch::average_pool(a.in_as<Number>(0), batch, pixels, channels, a.out_as<Number>(), s);
    });
  });
}

CudaKernel average_pool_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor& x = graph[op.outputs[0]];
  const std::int64_t batch = x.shape[0], pixels = x.shape[1] * x.shape[2], channels = x.shape[3];
  return by_number(x, [=]<class Number>(Number) {
    return plain_kernel([=](const Arguments& a, cudaStream_t s) {
      launch::average_pool_gradient(a.in_as<Number>(0), batch, pixels, channels, a.out_as<Number>(), s);
    });
  });
}

// --- embeddings and cells

namespace {

plain::EmbeddingSizes embedding_sizes(const Tensor& token, const Tensor& table, const Tensor& positions) {
  return {token.bytes.count / 4, positions.shape[0], positions.shape[1], table.shape[0]};
}

}  // namespace

CudaKernel embedding(const Graph& graph, const Op& op, const Libraries&) {
  const bool has_positions = op.inputs.size() > 2;
  const auto e = embedding_sizes(graph[op.inputs[0]], graph[op.inputs[1]], graph[op.inputs.back()]);
  return by_number(graph[op.outputs[0]], [e, has_positions]<class Number>(Number) {
    return plain_kernel([e, has_positions](const Arguments& a, cudaStream_t s) {
      launch::embedding(tokens(a), a.in(1), has_positions ? a.in(2) : nullptr, e, a.out_as<Number>(), s);
    });
  });
}

CudaKernel embedding_weight_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const bool has_positions = op.outputs.size() > 1;
  const auto e = embedding_sizes(graph[op.inputs[0]], graph[op.outputs[0]], graph[op.outputs.back()]);
  return by_number(graph[op.inputs[1]], [e, has_positions]<class Number>(Number) {
    return plain_kernel(
        [e, has_positions](const Arguments& a, cudaStream_t s) {
          float* dpositions = has_positions ? a.out(1) : nullptr;
          launch::embedding_weight_gradient(tokens(a), a.in_as<Number>(1), e, a.scratch, a.out(0), dpositions, s);
        },
        Bytes{launch::embedding_gradient_scratch(e)});
  });
}

CudaKernel fused_attention(const Graph& graph, const Op& op, const Libraries&) {
  return plain_kernel([sizes = fused_sizes(graph, op)](const Arguments& a, cudaStream_t s) {
    launch::fused_attention(sizes, a.in(0), a.in(1), a.out(), a.out(1), s);
  });
}

CudaKernel fused_attention_backward(const Graph& graph, const Op& op, const Libraries&) {
  return plain_kernel([sizes = fused_sizes(graph, op)](const Arguments& a, cudaStream_t s) {
    launch::fused_attention_backward(sizes, {a.in(0), a.in(1), a.in(2), a.in(3), a.in(4)}, a.out(), a.out(1), s);
  });
}

CudaKernel lstm_cell(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor& gates = graph[op.inputs[0]];
  const std::int64_t batch = gates.shape[0], width = gates.shape[1] / 4;
  return by_number(gates, [=]<class Number>(Number) {
    return plain_kernel([=](const Arguments& a, cudaStream_t s) {
      launch::lstm_cell(a.in_as<Number>(0), a.in_as<Number>(1), batch, width, a.out_as<Number>(), s);
    });
  });
}

CudaKernel lstm_cell_gradient(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor& gates = graph[op.inputs[1]];
  const std::int64_t batch = gates.shape[0], width = gates.shape[1] / 4;
  return by_number(gates, [=]<class Number>(Number) {
    return plain_kernel([=](const Arguments& a, cudaStream_t s) {
      launch::lstm_cell_gradient(a.in_as<Number>(0), a.in_as<Number>(1), a.in_as<Number>(2), batch, width,
                                 a.out_as<Number>(), s);
    });
  });
}

}  // namespace plimsoll::cuda_kernels
