#include "validate/cpu/kernels/onednn_layers.h"

#include <algorithm>

namespace plimsoll {
namespace {

using dnnl::algorithm;
using dnnl::memory;
constexpr auto training = dnnl::prop_kind::forward_training;
const auto scale_and_shift = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

}  // namespace

dnnl::memory::desc many_matrices(Dims dims, Dims strides, NumberType type) {
#if DNNL_VERSION_MAJOR >= 3
  strides.insert(strides.begin(), dims[0] * strides[0]);
  dims.insert(dims.begin(), 1);
#endif
  return strided(dims, strides, type);
}

dnnl::primitive_attr scaled(float scale, bool adds) {
  dnnl::primitive_attr attributes = own_scratch();
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
  after.append_eltwise(algorithm::eltwise_linear, scale, 0.0F);
#else
  attributes.set_output_scales(0, {scale});
#endif
  if (adds) after.append_sum(1.0F);
  attributes.set_post_ops(after);
  return attributes;
}

std::vector<std::pair<int, dnnl::memory>> as_batch_norm_gradient(std::vector<std::pair<int, dnnl::memory>> arguments) {
#if DNNL_VERSION_MAJOR < 3
  const auto is_scale = [](const auto& argument) { return argument.first == DNNL_ARG_SCALE; };
  const dnnl::memory scale = std::ranges::find_if(arguments, is_scale)->second;
  arguments.emplace_back(DNNL_ARG_SHIFT, scale);
#endif
  return arguments;
}

// Version 3 is told source and destination apart, for softmax also the algorithm, for pooling the dilation.
#if DNNL_VERSION_MAJOR >= 3

dnnl::eltwise_forward::primitive_desc eltwise_layer(const memory::desc& all, algorithm kind) {
  return layer<dnnl::eltwise_forward>(own_scratch(), training, kind, all, all, 0.0F, 0.0F);
}

dnnl::eltwise_backward::primitive_desc eltwise_gradient_layer(const memory::desc& all, algorithm kind) {
  return gradient_layer<dnnl::eltwise_backward>(eltwise_layer(all, kind), kind, all, all, all, 0.0F, 0.0F);
}

dnnl::softmax_forward::primitive_desc softmax_layer(const memory::desc& all) {
  return layer<dnnl::softmax_forward>(own_scratch(), training, algorithm::softmax_accurate, all, all, 1);
}

dnnl::softmax_backward::primitive_desc softmax_gradient_layer(const memory::desc& all) {
  return gradient_layer<dnnl::softmax_backward>(softmax_layer(all), algorithm::softmax_accurate, all, all, all, 1);
}

dnnl::batch_normalization_forward::primitive_desc batch_norm_layer(const memory::desc& all, float epsilon) {
  return layer<dnnl::batch_normalization_forward>(own_scratch(), training, all, all, epsilon, scale_and_shift);
}

dnnl::batch_normalization_backward::primitive_desc batch_norm_gradient_layer(const memory::desc& all, float epsilon) {
  return gradient_layer<dnnl::batch_normalization_backward>(batch_norm_layer(all, epsilon), dnnl::prop_kind::backward,
                                                            all, all, all, epsilon, scale_and_shift);
}

dnnl::layer_normalization_forward::primitive_desc layer_norm_layer(const memory::desc& x,
                                                                   const memory::desc& statistics, float epsilon) {
  return layer<dnnl::layer_normalization_forward>(own_scratch(), training, x, x, statistics, epsilon, scale_and_shift);
}

dnnl::layer_normalization_backward::primitive_desc layer_norm_gradient_layer(const memory::desc& x,
                                                                             const memory::desc& statistics,
                                                                             float epsilon) {
  return gradient_layer<dnnl::layer_normalization_backward>(layer_norm_layer(x, statistics, epsilon),
                                                            dnnl::prop_kind::backward, x, x, x, statistics, epsilon,
                                                            scale_and_shift);
}

dnnl::pooling_forward::primitive_desc pooling_layer(dnnl::prop_kind direction, algorithm kind, const memory::desc& x,
                                                    const memory::desc& y, const PoolingWindows& w) {
  const Dims no_dilation(w.window.size(), 0);
  return layer<dnnl::pooling_forward>(own_scratch(), direction, kind, x, y, w.strides, w.window, no_dilation, w.before,
                                      w.behind);
}

dnnl::pooling_backward::primitive_desc pooling_gradient_layer(algorithm kind, const memory::desc& x,
                                                              const memory::desc& y, const PoolingWindows& w) {
  const Dims no_dilation(w.window.size(), 0);
  return gradient_layer<dnnl::pooling_backward>(pooling_layer(training, kind, x, y, w), kind, x, y, w.strides, w.window,
                                                no_dilation, w.before, w.behind);
}

#else

dnnl::eltwise_forward::primitive_desc eltwise_layer(const memory::desc& all, algorithm kind) {
  return layer<dnnl::eltwise_forward>(own_scratch(), training, kind, all, 0.0F, 0.0F);
}

dnnl::eltwise_backward::primitive_desc eltwise_gradient_layer(const memory::desc& all, algorithm kind) {
  return gradient_layer<dnnl::eltwise_backward>(eltwise_layer(all, kind), kind, all, all, 0.0F, 0.0F);
}

dnnl::softmax_forward::primitive_desc softmax_layer(const memory::desc& all) {
  return layer<dnnl::softmax_forward>(own_scratch(), training, all, 1);
}

dnnl::softmax_backward::primitive_desc softmax_gradient_layer(const memory::desc& all) {
  return gradient_layer<dnnl::softmax_backward>(softmax_layer(all), all, all, 1);
}

dnnl::batch_normalization_forward::primitive_desc batch_norm_layer(const memory::desc& all, float epsilon) {
  return layer<dnnl::batch_normalization_forward>(own_scratch(), training, all, epsilon, scale_and_shift);
}

dnnl::batch_normalization_backward::primitive_desc batch_norm_gradient_layer(const memory::desc& all, float epsilon) {
  return gradient_layer<dnnl::batch_normalization_backward>(batch_norm_layer(all, epsilon), dnnl::prop_kind::backward,
                                                            all, all, epsilon, scale_and_shift);
}

dnnl::layer_normalization_forward::primitive_desc layer_norm_layer(const memory::desc& x,
                                                                   const memory::desc& statistics, float epsilon) {
  return layer<dnnl::layer_normalization_forward>(own_scratch(), training, x, statistics, epsilon, scale_and_shift);
}

dnnl::layer_normalization_backward::primitive_desc layer_norm_gradient_layer(const memory::desc& x,
                                                                             const memory::desc& statistics,
                                                                             float epsilon) {
  return gradient_layer<dnnl::layer_normalization_backward>(
      layer_norm_layer(x, statistics, epsilon), dnnl::prop_kind::backward, x, x, statistics, epsilon, scale_and_shift);
}

dnnl::pooling_forward::primitive_desc pooling_layer(dnnl::prop_kind direction, algorithm kind, const memory::desc& x,
                                                    const memory::desc& y, const PoolingWindows& w) {
  return layer<dnnl::pooling_forward>(own_scratch(), direction, kind, x, y, w.strides, w.window, w.before, w.behind);
}

dnnl::pooling_backward::primitive_desc pooling_gradient_layer(algorithm kind, const memory::desc& x,
                                                              const memory::desc& y, const PoolingWindows& w) {
  return gradient_layer<dnnl::pooling_backward>(pooling_layer(training, kind, x, y, w), kind, x, y, w.strides, w.window,
                                                w.before, w.behind);
}

#endif

}  // namespace plimsoll
