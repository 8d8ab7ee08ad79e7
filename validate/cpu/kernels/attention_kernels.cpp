// Attention: products of heads that lie side by side, forward and backward; or plain loops without whole weights.

#include <algorithm>

#include "sim/core/op_attribute.h"
#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/networks/bf16.h"
#include "validate/networks/network.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/fused_attention.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::memory;

/// Of one slice of a sequence, or a whole one: its queries, and the keys of so many slices, the last of them its own.
struct Attention : AttentionSizes {
  Attention(const Tensor& qkv, const Op& op, std::size_t count)
      : AttentionSizes(qkv, op),
        slices(static_cast<std::int64_t>(count)),
        keys(slices * sequence),
        type(type_of(qkv)),
        each(is_bf16(qkv) ? 2 : 4) {}

  std::int64_t slices, keys;
  NumberType type;
  std::int64_t each;  ///< bytes of a number

  /// Query, key or value as (batch, heads, sequence, size), where they lie in a tensor of `columns` columns, of which
  /// each head has as many.
  memory::desc rows(std::int64_t columns) const {
    return many_matrices({batch, heads, sequence, size}, {sequence * columns, columns / heads, columns, 1}, type);
  }
  memory::desc columns(std::int64_t columns) const {
    return many_matrices({batch, heads, size, sequence}, {sequence * columns, columns / heads, 1, columns}, type);
  }
  /// Scores or weights of the keys of one slice, and where they begin.
  memory::desc square() const {
    return many_matrices({batch, heads, sequence, sequence}, {heads * sequence * keys, sequence * keys, keys, 1}, type);
  }
  memory::desc transposed() const {
    return many_matrices({batch, heads, sequence, sequence}, {heads * sequence * keys, sequence * keys, 1, keys}, type);
  }
  std::int64_t square_of(std::size_t slice) const { return static_cast<std::int64_t>(slice) * sequence; }

  /// The op's inputs have its own slice first, then the others in their order.
  std::size_t place_of(std::size_t slice) const {
    return slice + 1 == static_cast<std::size_t>(slices) ? 0 : slice + 1;
  }
};

/// An operand of a product: an input of the op, or its output.
struct Operand {
  memory::desc desc;
  std::size_t input = 0;
  std::int64_t offset = 0;
  bool is_output = false;
};

struct AttentionPart {
  Operand a, b, c;
  float scale = 1;
  bool adds = false;
};

/// Products one after the other, each with the scratch that the largest needs.
Kernel products(const std::vector<AttentionPart>& parts, std::int64_t each) {
  std::vector<Kernel> kernels;
  Kernel all;
  const auto bound = [each](int argument, const Operand& o) {
    return Bound{argument, o.desc, o.is_output, o.input, o.offset * each};
  };
  for (const AttentionPart& part : parts) {
    const auto desc = layer<dnnl::matmul>(scaled(part.scale, part.adds), part.a.desc, part.b.desc, part.c.desc);
    kernels.push_back(
        bound_kernel(dnnl::matmul(desc), desc.scratchpad_desc(),
                     {bound(DNNL_ARG_SRC, part.a), bound(DNNL_ARG_WEIGHTS, part.b), bound(DNNL_ARG_DST, part.c)}));
    all.scratch = std::max(all.scratch, kernels.back().scratch);
  }
  all.run = [kernels](const KernelArguments& arguments) {
    for (const Kernel& kernel : kernels) kernel.run(arguments);
  };
  return all;
}

Operand output(const memory::desc& desc, std::int64_t offset = 0) {
  return {desc, 0, offset, true};
}

}  // namespace

/// scores = q k^T / sqrt(size), minus infinity for keys behind the query. Inputs: qkv; of slices, each with room for
/// its gradients, which only backwards use.
Kernel attention_scores(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[0]], op, (op.inputs.size() + 1) / 2);
  std::vector<AttentionPart> parts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.slices); ++i) {
    parts.push_back({{s.rows(3 * s.width), 0},
                     {s.columns(3 * s.width), 2 * s.place_of(i), s.size},
                     output(s.square(), s.square_of(i)),
                     s.scale()});
  }
  Kernel kernel = products(parts, s.each);
  kernel.run = [all = kernel.run, s](const KernelArguments& a) {
    all(a);
    const std::int64_t rows = s.batch * s.heads * s.sequence;
    if (s.type == NumberType::bf16) return plain::mask_scores(a.out_as<Bf16>(), rows, s.sequence, s.keys);
    plain::mask_scores(a.out(), rows, s.sequence, s.keys);
  };
  return kernel;
}

/// mixed = weights v, heads side by side. Inputs: weights, qkv of each slice.
Kernel attention_values(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op, op.inputs.size() - 1);
  std::vector<AttentionPart> parts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.slices); ++i) {
    parts.push_back({{s.square(), 0, s.square_of(i)},
                     {s.rows(3 * s.width), 1 + s.place_of(i), 2 * s.size},
                     output(s.rows(s.width)),
                     1,
                     i > 0});
  }
  return products(parts, s.each);
}

/// Of the weights: dmixed v^T. Inputs: dmixed, qkv of each slice.
Kernel attention_values_gradient(const Graph& graph, const Op& op) {
  const Attention s(graph[op.inputs[1]], op, op.inputs.size() - 1);
  std::vector<AttentionPart> parts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(s.slices); ++i) {
    parts.push_back({{s.rows(s.width), 0},
                     {s.columns(3 * s.width), 1 + s.place_of(i), 2 * s.size},
                     output(s.square(), s.square_of(i))});
  }
  return products(parts, s.each);
}

/// dq = dscores k / sqrt(size), dk = dscores^T q / sqrt(size), dv = weights^T dmixed. Inputs: dscores, weights, dmixed,
/// qkv; of slices, each with room for its gradients. The last slice's backward, which comes first, fills the rooms of
/// the others, the next ones add to them, and each takes what has come together in its own.
Kernel attention_qkv_gradient(const Graph& graph, const Op& op) {
  constexpr std::size_t first = 3;  // of the inputs: the slice's own
  const Attention s(graph[op.inputs[first]], op, (op.inputs.size() - first + 1) / 2);
  const memory::desc third = s.rows(3 * s.width);
  const auto own = static_cast<std::size_t>(s.slices) - 1;
  const bool is_last = !attribute_of(op, slices_attribute) || whole_attribute(op, slices_attribute) == s.slices;
  std::vector<AttentionPart> parts;
  for (std::size_t i = 0; i <= own; ++i) {
    const std::size_t qkv = first + 2 * s.place_of(i);
    const bool adds = i < own && !is_last;
    const auto gradient = [&](std::int64_t offset) {
      return i == own ? output(third, offset) : Operand{third, qkv + 1, offset};
    };
    parts.push_back({{s.square(), 0, s.square_of(i)}, {third, qkv, s.size}, output(third), s.scale(), i > 0});
    parts.push_back({{s.transposed(), 0, s.square_of(i)}, {third, first}, gradient(s.size), s.scale(), adds});
    parts.push_back({{s.transposed(), 1, s.square_of(i)}, {s.rows(s.width), 2}, gradient(2 * s.size), 1, adds});
  }
  Kernel kernel = products(parts, s.each);
  if (is_last) return kernel;
  kernel.run = [all = kernel.run, s](const KernelArguments& a) {
    all(a);
    const float* room = a.in(first + 1);
    for (std::int64_t head = 0; head < s.batch * s.sequence * s.heads; ++head) {  // of every row: its key and value
      const std::int64_t begin = (3 * head + 1) * s.size;
      plain::accumulate(a.out() + begin, room + begin, 2 * s.size);
    }
  };
  return kernel;
}

Kernel fused_attention(const Graph& graph, const Op& op) {
  return {[s = fused_sizes(graph, op)](const KernelArguments& a) {
            plain::fused_attention(s, a.in(0), a.in(1), a.out(), a.out(1));
          },
          {}};
}

Kernel fused_attention_backward(const Graph& graph, const Op& op) {
  return {[s = fused_sizes(graph, op)](const KernelArguments& a) {
            plain::fused_attention_backward(s, {a.in(0), a.in(1), a.in(2), a.in(3), a.in(4)}, a.out(), a.out(1));
          },
          {}};
}

}  // namespace plimsoll::cpu_kernels
