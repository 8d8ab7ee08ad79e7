// Attention: products of heads that lie side by side, forward and backward.

#include <algorithm>

#include "validate/cpu/kernel_table.h"
#include "validate/cpu/onednn_layers.h"
#include "validate/reference/elementwise.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::memory;

struct Attention : AttentionSizes {
  using AttentionSizes::AttentionSizes;

  /// Query, key or value as (batch, heads, sequence, size), where they lie in a tensor of `columns` columns, of which
  /// each head has as many.
  memory::desc rows(std::int64_t columns) const {
    return strided({batch, heads, sequence, size}, {sequence * columns, columns / heads, columns, 1});
  }
  memory::desc columns(std::int64_t columns) const {
    return strided({batch, heads, size, sequence}, {sequence * columns, columns / heads, 1, columns});
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

}  // namespace

/// scores = q k^T / sqrt(size), minus infinity for keys behind the query.
Kernel attention_scores(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[0]], op);
  Kernel kernel =
      products({part(s.rows(3 * s.width), 0, 0, s.columns(3 * s.width), 0, s.size, s.square(), 0, s.scale())});
  kernel.run = [all = kernel.run, s](const KernelArguments& a) {
    all(a);
    plain::mask_scores(a.out(), s.batch * s.heads * s.sequence, s.sequence);
  };
  return kernel;
}

/// mixed = weights v, heads side by side.
Kernel attention_values(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op);
  return products({part(s.square(), 0, 0, s.rows(3 * s.width), 1, 2 * s.size, s.rows(s.width), 0, 1)});
}

/// Of the weights: dmixed v^T.
Kernel attention_values_gradient(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op);
  return products({part(s.rows(s.width), 0, 0, s.columns(3 * s.width), 1, 2 * s.size, s.square(), 0, 1)});
}

/// dq = dscores k / sqrt(size), dk = dscores^T q / sqrt(size), dv = weights^T dmixed.
Kernel attention_qkv_gradient(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[3]], op);
  const memory::desc third = s.rows(3 * s.width);
  return products({part(s.square(), 0, 0, third, 3, s.size, third, 0, s.scale()),
                   part(s.transposed(), 0, 0, third, 3, 0, third, s.size, s.scale()),
                   part(s.transposed(), 1, 0, s.rows(s.width), 2, 0, third, 2 * s.size, 1)});
}

}  // namespace plimsoll::cpu_kernels
