// Matrix products: linear layers and attention, forward and backward.

#include <algorithm>

#include "validate/cpu/kernel_table.h"
#include "validate/cpu/onednn_layers.h"
#include "validate/reference/elementwise.h"

namespace plimsoll {
namespace {

using dnnl::memory;

std::int64_t rows_of(const Tensor& tensor) {
  return row_sizes(tensor).rows;
}

Kernel product(const memory::desc& a, const memory::desc& b, const memory::desc& c, std::size_t first,
               std::size_t second, const dnnl::primitive_attr& attributes = own_scratch()) {
  const auto desc = layer<dnnl::matmul>(attributes, a, b, c);
  return bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, a, false, first}, {DNNL_ARG_WEIGHTS, b, false, second}, {DNNL_ARG_DST, c, true}});
}

/// y = x W + b; x (rows, k), W (k, n), b (n).
Kernel linear(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  const memory::desc from = strided({rows, k}, {x.shape.back(), 1}), bias = dense({1, n}), to = dense({rows, n});
  const auto desc = layer<dnnl::matmul>(own_scratch(), from, dense({k, n}), bias, to);
  return bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, from, false, 0},
                       {DNNL_ARG_WEIGHTS, dense({k, n}), false, 1},
                       {DNNL_ARG_BIAS, bias, false, 2},
                       {DNNL_ARG_DST, to, true, 0}});
}

/// dx = dy W^T.
Kernel linear_input_gradient(const Graph& graph, const Op& op) {
  const Tensor& weight = graph[op.inputs[1]];
  const std::int64_t rows = rows_of(graph[op.inputs[0]]), k = weight.shape[0], n = weight.shape[1];
  return product(dense({rows, n}), strided({n, k}, {1, n}), dense({rows, k}), 0, 1);
}

/// dW = x^T dy, db = column sums of dy. x may have more columns than W has rows: then the first are meant.
Kernel linear_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.outputs[0]];
  const std::int64_t rows = rows_of(x), k = weight.shape[0], n = weight.shape[1];
  Kernel kernel = product(strided({k, rows}, {1, x.shape.back()}), dense({rows, n}), dense({k, n}), 0, 1);
  kernel.run = [matrix = kernel.run, rows, n](const KernelArguments& a) {
    matrix(a);
    plain::column_sums(a.in(1), rows, n, a.out(1));
  };
  return kernel;
}

struct Attention : AttentionSizes {
  using AttentionSizes::AttentionSizes;

  /// Query, key or value as (batch, heads, sequence, size), where they lie in a tensor of `columns` columns.
  memory::desc rows(std::int64_t columns) const {
    return strided({batch, heads, sequence, size}, {sequence * columns, size, columns, 1});
  }
  memory::desc columns(std::int64_t columns) const {
    return strided({batch, heads, size, sequence}, {sequence * columns, size, 1, columns});
  }
  memory::desc square() const { return dense({batch, heads, sequence, sequence}); }
  memory::desc transposed() const {
    const std::int64_t t = sequence;
    return strided({batch, heads, t, t}, {heads * t * t, t * t, 1, t});
  }
};

struct Part {
  memory::desc a, b, c;
  Bound first, second, result;
  float scale = 1;
};

/// Products one after the other, each with the scratch that the largest needs.
Kernel products(const std::vector<Part>& parts) {
  std::vector<Kernel> kernels;
  Kernel all;
  for (const Part& part : parts) {
    const auto desc = layer<dnnl::matmul>(scaled(part.scale), part.a, part.b, part.c);
    kernels.push_back(bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(), {part.first, part.second, part.result}));
    all.scratch = std::max(all.scratch, kernels.back().scratch);
  }
  all.run = [kernels](const KernelArguments& arguments) {
    for (const Kernel& kernel : kernels) kernel.run(arguments);
  };
  return all;
}

Part part(const memory::desc& a, std::size_t from, std::int64_t from_offset, const memory::desc& b, std::size_t with,
          std::int64_t with_offset, const memory::desc& c, std::int64_t to_offset, float scale) {
  return {a,
          b,
          c,
          {DNNL_ARG_SRC, a, false, from, from_offset},
          {DNNL_ARG_WEIGHTS, b, false, with, with_offset},
          {DNNL_ARG_DST, c, true, 0, to_offset},
          scale};
}

/// scores = q k^T / sqrt(size), minus infinity for keys behind the query.
Kernel attention_scores(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[0]], op);
  Kernel kernel =
      products({part(s.rows(3 * s.width), 0, 0, s.columns(3 * s.width), 0, s.width, s.square(), 0, s.scale())});
  kernel.run = [all = kernel.run, s](const KernelArguments& a) {
    all(a);
    plain::mask_scores(a.out(), s.batch * s.heads * s.sequence, s.sequence);
  };
  return kernel;
}

/// mixed = weights v, heads side by side.
Kernel attention_values(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op);
  return products({part(s.square(), 0, 0, s.rows(3 * s.width), 1, 2 * s.width, s.rows(s.width), 0, 1)});
}

/// Of the weights: dmixed v^T.
Kernel attention_values_gradient(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op);
  return products({part(s.rows(s.width), 0, 0, s.columns(3 * s.width), 1, 2 * s.width, s.square(), 0, 1)});
}

/// dq = dscores k / sqrt(size), dk = dscores^T q / sqrt(size), dv = weights^T dmixed.
Kernel attention_qkv_gradient(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[3]], op);
  const memory::desc third = s.rows(3 * s.width);
  return products({part(s.square(), 0, 0, third, 3, s.width, third, 0, s.scale()),
                   part(s.transposed(), 0, 0, third, 3, 0, third, s.width, s.scale()),
                   part(s.transposed(), 1, 0, s.rows(s.width), 2, 0, third, 2 * s.width, 1)});
}

}  // namespace

std::optional<Kernel> product_kernel(const Graph& graph, const Op& op) {
  if (op.kind == "linear" || op.kind == "lstm_gates") return linear(graph, op);
  if (op.kind == "linear_input_gradient") return linear_input_gradient(graph, op);
  if (op.kind == "linear_weight_gradient" || op.kind == "lstm_weight_gradient")
    return linear_weight_gradient(graph, op);
  if (op.kind == "attention_scores") return attention_scores(graph, op);
  if (op.kind == "attention_values") return attention_values(graph, op);
  if (op.kind == "attention_values_gradient") return attention_values_gradient(graph, op);
  if (op.kind == "attention_qkv_gradient") return attention_qkv_gradient(graph, op);
  return std::nullopt;
}

}  // namespace plimsoll
