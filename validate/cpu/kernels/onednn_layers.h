#pragma once
// Layers of oneDNN as versions 2 (Debian 12) and 3 (Debian 13) describe them: the only place that knows of the
// difference. Scratch comes from the caller throughout.

#include "validate/cpu/kernels/onednn.h"

namespace plimsoll {

/// A layer, or its gradient, from the arguments that both versions take in the same order.
template <class Primitive, class... Arguments>
typename Primitive::primitive_desc layer(const dnnl::primitive_attr& attributes, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), arguments..., attributes};
#else
  return {typename Primitive::desc(arguments...), attributes, cpu_engine()};
#endif
}
template <class Primitive, class Forward, class... Arguments>
typename Primitive::primitive_desc gradient_layer(const Forward& forward, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), arguments..., forward, own_scratch()};
#else
  return {typename Primitive::desc(arguments...), own_scratch(), cpu_engine(), forward};
#endif
}

/// An operand of the products of many matrices, one for each index of all but the last two dimensions. Version 3.7
/// multiplies wrongly, with AVX2 and AVX-512, where the first dimension is as large as the matrices have rows: there it
/// gets one of size 1 before it.
dnnl::memory::desc many_matrices(Dims dims, Dims strides, NumberType);

/// Of a product that takes its parameters, all inputs but the first, in `type`: in bf16 they are rounded anew into the
/// scratch.
namespace cpu_kernels {
Kernel with_parameters_as(NumberType type, const Graph&, const Op&, Kernel);
}

/// Results are multiplied by `scale` and, with `adds`, added to what is there.
dnnl::primitive_attr scaled(float scale, bool adds = false);

dnnl::eltwise_forward::primitive_desc eltwise_layer(const dnnl::memory::desc&, dnnl::algorithm);
dnnl::eltwise_backward::primitive_desc eltwise_gradient_layer(const dnnl::memory::desc&, dnnl::algorithm);

/// Over the columns of rows.
dnnl::softmax_forward::primitive_desc softmax_layer(const dnnl::memory::desc&);
dnnl::softmax_backward::primitive_desc softmax_gradient_layer(const dnnl::memory::desc&);

/// In training mode, with scale and shift.
dnnl::batch_normalization_forward::primitive_desc batch_norm_layer(const dnnl::memory::desc&, float epsilon);
dnnl::batch_normalization_backward::primitive_desc batch_norm_gradient_layer(const dnnl::memory::desc&, float epsilon);
dnnl::layer_normalization_forward::primitive_desc layer_norm_layer(const dnnl::memory::desc& x,
                                                                   const dnnl::memory::desc& statistics, float epsilon);
dnnl::layer_normalization_backward::primitive_desc layer_norm_gradient_layer(const dnnl::memory::desc& x,
                                                                             const dnnl::memory::desc& statistics,
                                                                             float epsilon);

/// The arguments of the gradient of batch norm: version 2 wants a shift among them, which it does not read; 3 refuses
/// it.
std::vector<std::pair<int, dnnl::memory>> as_batch_norm_gradient(std::vector<std::pair<int, dnnl::memory>>);

struct PoolingWindows {
  Dims strides, window, before, behind;
};
dnnl::pooling_forward::primitive_desc pooling_layer(dnnl::prop_kind, dnnl::algorithm, const dnnl::memory::desc& x,
                                                    const dnnl::memory::desc& y, const PoolingWindows&);
dnnl::pooling_backward::primitive_desc pooling_gradient_layer(dnnl::algorithm, const dnnl::memory::desc& x,
                                                              const dnnl::memory::desc& y, const PoolingWindows&);

}  // namespace plimsoll
