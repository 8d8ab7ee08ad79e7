// Batch norm in training mode and layer norm: rows of channels, each normalised over the rows or over its channels.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/networks/network.h"
#include "validate/networks/packing.h"
#include "validate/reference/formulas.h"
#include "validate/reference/normalization.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::memory;
constexpr float epsilon = norm_epsilon;
using NormSizes = RowSizes;

float* floats(const KernelArguments& a, Bytes offset = {}) {
  return static_cast<float*>(static_cast<void*>(static_cast<std::byte*>(a.scratch) + offset.count));
}

/// x is (batch, height, width, channels).
memory::desc norm_picture(const Tensor& x) {
  const std::int64_t h = x.shape[1], w = x.shape[2], c = x.shape[3];
  return strided({x.shape[0], c, h, w}, {h * w * c, 1, w * c, c});
}

/// Mean and variance, computed anew from x, and the double sums they take.
Bytes statistics_bytes(const NormSizes& s) {
  return aligned(Bytes{8 * s.columns}) + aligned(Bytes{8 * s.columns});
}

double* sums_of(const KernelArguments& a, const NormSizes& s) {
  const Bytes behind = aligned(Bytes{8 * s.columns});
  return static_cast<double*>(static_cast<void*>(static_cast<std::byte*>(a.scratch) + behind.count));
}

/// Of the first input.
void row_statistics(const KernelArguments& a, NumberType type, const NormSizes& s, float* mean, float* variance) {
  if (type == NumberType::bf16) return plain::row_statistics(a.in_as<Bf16>(0), s, mean, variance);
  plain::row_statistics(a.in(0), s, mean, variance);
}

}  // namespace

/// Scratch: mean and variance of the channels, then oneDNN's.
Kernel batch_norm(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  const memory::desc all = norm_picture(graph[op.inputs[0]]);
  const auto desc = batch_norm_layer(all, epsilon);
  const memory::desc row = dense({s.columns}), scratch = desc.scratchpad_desc();
  const Bytes statistics = aligned(Bytes{8 * s.columns});
  const dnnl::batch_normalization_forward primitive(desc);
  return {[=](const KernelArguments& a) {
            float *mean = floats(a), *variance = mean + s.columns;
            execute(primitive, {{DNNL_ARG_SRC, at(all, a.inputs[0])},
                                {DNNL_ARG_SCALE, at(row, a.inputs[1])},
                                {DNNL_ARG_SHIFT, at(row, a.inputs[2])},
                                {DNNL_ARG_MEAN, at(row, mean)},
                                {DNNL_ARG_VARIANCE, at(row, variance)},
                                {DNNL_ARG_DST, at(all, a.outputs[0])},
                                {DNNL_ARG_SCRATCHPAD, at(scratch, floats(a, statistics))}});
            if (a.statistics == nullptr) return;
            plain::move_statistics(a.statistics, mean, variance, s.columns);
          },
          statistics + Bytes{static_cast<std::int64_t>(scratch.get_size())}};
}

/// inputs: x, scale, gradient. oneDNN also makes the gradients of scale and shift; they stay in the scratch.
Kernel batch_norm_input_gradient(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  const memory::desc all = norm_picture(graph[op.inputs[0]]), row = dense({s.columns});
  const auto desc = batch_norm_gradient_layer(all, epsilon);
  const memory::desc scratch = desc.scratchpad_desc();
  const dnnl::batch_normalization_backward primitive(desc);
  const Bytes unused = statistics_bytes(s), own = unused + aligned(Bytes{8 * s.columns});
  return {[=](const KernelArguments& a) {
            float *mean = floats(a), *variance = mean + s.columns;
            plain::column_statistics(a.in(0), s, sums_of(a, s), mean, variance);
            execute(primitive, as_batch_norm_gradient({{DNNL_ARG_SRC, at(all, a.inputs[0])},
                                                       {DNNL_ARG_SCALE, at(row, a.inputs[1])},
                                                       {DNNL_ARG_MEAN, at(row, mean)},
                                                       {DNNL_ARG_VARIANCE, at(row, variance)},
                                                       {DNNL_ARG_DIFF_DST, at(all, a.inputs[2])},
                                                       {DNNL_ARG_DIFF_SRC, at(all, a.outputs[0])},
                                                       {DNNL_ARG_DIFF_SCALE, at(row, floats(a, unused))},
                                                       {DNNL_ARG_DIFF_SHIFT, at(row, floats(a, unused) + s.columns)},
                                                       {DNNL_ARG_SCRATCHPAD, at(scratch, floats(a, own))}}));
          },
          own + Bytes{static_cast<std::int64_t>(scratch.get_size())}};
}

/// inputs: x, gradient; outputs: of scale, of shift.
Kernel batch_norm_weight_gradient(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  return {[=](const KernelArguments& a) {
            float *mean = floats(a), *variance = mean + s.columns;
            plain::column_statistics(a.in(0), s, sums_of(a, s), mean, variance);
            plain::batch_norm_weight_gradient(a.in(0), a.in(1), s, mean, variance, a.out(0), a.out(1));
          },
          statistics_bytes(s)};
}

// --- layer norm

/// Scratch: mean and variance of the rows, then oneDNN's.
Kernel layer_norm(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  const NumberType type = type_of(graph[op.inputs[0]]);
  const memory::desc all = dense({s.rows, s.columns}, type), row = dense({s.columns}), column = dense({s.rows});
  const auto desc = layer_norm_layer(all, column, epsilon);
  const memory::desc scratch = desc.scratchpad_desc();
  const Bytes statistics = aligned(Bytes{8 * s.rows});
  const dnnl::layer_normalization_forward primitive(desc);
  return {[=](const KernelArguments& a) {
            execute(primitive, {{DNNL_ARG_SRC, at(all, a.inputs[0])},
                                {DNNL_ARG_SCALE, at(row, a.inputs[1])},
                                {DNNL_ARG_SHIFT, at(row, a.inputs[2])},
                                {DNNL_ARG_MEAN, at(column, floats(a))},
                                {DNNL_ARG_VARIANCE, at(column, floats(a) + s.rows)},
                                {DNNL_ARG_DST, at(all, a.outputs[0])},
                                {DNNL_ARG_SCRATCHPAD, at(scratch, floats(a, statistics))}});
          },
          statistics + Bytes{static_cast<std::int64_t>(scratch.get_size())}};
}

Kernel layer_norm_input_gradient(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  const NumberType type = type_of(graph[op.inputs[0]]);
  const memory::desc all = dense({s.rows, s.columns}, type), row = dense({s.columns}), column = dense({s.rows});
  const auto desc = layer_norm_gradient_layer(all, column, epsilon);
  const memory::desc scratch = desc.scratchpad_desc();
  const dnnl::layer_normalization_backward primitive(desc);
  const Bytes unused = aligned(Bytes{8 * s.rows}), own = unused + aligned(Bytes{8 * s.columns});
  return {[=](const KernelArguments& a) {
            float *mean = floats(a), *variance = mean + s.rows;
            row_statistics(a, type, s, mean, variance);
            execute(primitive, {{DNNL_ARG_SRC, at(all, a.inputs[0])},
                                {DNNL_ARG_SCALE, at(row, a.inputs[1])},
                                {DNNL_ARG_SHIFT, at(row, a.inputs[1])},  // must be there, is not read
                                {DNNL_ARG_MEAN, at(column, mean)},
                                {DNNL_ARG_VARIANCE, at(column, variance)},
                                {DNNL_ARG_DIFF_DST, at(all, a.inputs[2])},
                                {DNNL_ARG_DIFF_SRC, at(all, a.outputs[0])},
                                {DNNL_ARG_DIFF_SCALE, at(row, floats(a, unused))},
                                {DNNL_ARG_DIFF_SHIFT, at(row, floats(a, unused) + s.columns)},
                                {DNNL_ARG_SCRATCHPAD, at(scratch, floats(a, own))}});
          },
          own + Bytes{static_cast<std::int64_t>(scratch.get_size())}};
}

Kernel layer_norm_weight_gradient(const Graph& graph, const Op& op) {
  const NormSizes s = row_sizes(graph[op.inputs[0]]);
  const NumberType type = type_of(graph[op.inputs[0]]);
  return {[=](const KernelArguments& a) {
            float *mean = floats(a), *variance = mean + s.rows;
            row_statistics(a, type, s, mean, variance);
            if (type == NumberType::bf16) {
              return plain::layer_norm_weight_gradient(a.in_as<Bf16>(0), a.in_as<Bf16>(1), s, mean, variance, a.out(0),
                                                       a.out(1));
            }
            plain::layer_norm_weight_gradient(a.in(0), a.in(1), s, mean, variance, a.out(0), a.out(1));
          },
          Bytes{8 * s.rows}};
}

}  // namespace plimsoll::cpu_kernels
