// Convolution and pooling of pictures, channels last: x (batch, height, width, channels), weight (height, width, from,
// to). Windows of k x k with stride s are padded by (k - 1) / 2 before, and behind so that ceil(size / s) results come
// out.

#include "validate/cpu/kernels/kernel_table.h"
#include "validate/cpu/kernels/onednn.h"
#include "validate/cpu/kernels/onednn_layers.h"
#include "validate/reference/layers.h"

namespace plimsoll::cpu_kernels {
namespace {

using dnnl::algorithm;
using dnnl::memory;

memory::desc picture(const Tensor& x) {
  const std::int64_t h = x.shape[1], w = x.shape[2], c = x.shape[3];
  return strided({x.shape[0], c, h, w}, {h * w * c, 1, w * c, c});
}

memory::desc kernel_weights(const Tensor& weight) {
  const std::int64_t h = weight.shape[0], w = weight.shape[1], from = weight.shape[2], to = weight.shape[3];
  return strided({to, from, h, w}, {1, to, w * from * to, from * to});
}

/// Windows over one picture.
struct Windows {
  std::int64_t kernel, stride, before, behind_height, behind_width;

  Windows(const Tensor& x, const Tensor& y, std::int64_t k, std::int64_t s)
      : kernel(k),
        stride(s),
        before((k - 1) / 2),
        behind_height((y.shape[1] - 1) * s + k - x.shape[1] - before),
        behind_width((y.shape[2] - 1) * s + k - x.shape[2] - before) {}
  Dims strides() const { return {stride, stride}; }
  Dims padding_before() const { return {before, before}; }
  Dims padding_behind() const { return {behind_height, behind_width}; }
};

Windows windows_of(const Tensor& x, const Tensor& weight, const Tensor& y, const Op& op) {
  return {x, y, weight.shape[0], whole_attribute(op, "stride")};
}

dnnl::convolution_forward::primitive_desc forward_desc(const Tensor& x, const Tensor& weight, const Tensor& y,
                                                       const Windows& w) {
  return layer<dnnl::convolution_forward>(own_scratch(), dnnl::prop_kind::forward_training,
                                          algorithm::convolution_direct, picture(x), kernel_weights(weight), picture(y),
                                          w.strides(), w.padding_before(), w.padding_behind());
}

}  // namespace

Kernel convolution(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]], &y = graph[op.outputs[0]];
  const auto desc = forward_desc(x, weight, y, windows_of(x, weight, y, op));
  return bound_kernel(dnnl::convolution_forward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, picture(x), false, 0},
                       {DNNL_ARG_WEIGHTS, kernel_weights(weight), false, 1},
                       {DNNL_ARG_DST, picture(y), true, 0}});
}

/// inputs: gradient, weight.
Kernel convolution_input_gradient(const Graph& graph, const Op& op) {
  const Tensor &y = graph[op.inputs[0]], &weight = graph[op.inputs[1]], &x = graph[op.outputs[0]];
  const Windows w = windows_of(x, weight, y, op);
  const auto desc = gradient_layer<dnnl::convolution_backward_data>(
      forward_desc(x, weight, y, w), algorithm::convolution_direct, picture(x), kernel_weights(weight), picture(y),
      w.strides(), w.padding_before(), w.padding_behind());
  return bound_kernel(dnnl::convolution_backward_data(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_DIFF_DST, picture(y), false, 0},
                       {DNNL_ARG_WEIGHTS, kernel_weights(weight), false, 1},
                       {DNNL_ARG_DIFF_SRC, picture(x), true, 0}});
}

/// inputs: x, gradient.
Kernel convolution_weight_gradient(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.inputs[1]], &weight = graph[op.outputs[0]];
  const Windows w = windows_of(x, weight, y, op);
  const auto desc = gradient_layer<dnnl::convolution_backward_weights>(
      forward_desc(x, weight, y, w), algorithm::convolution_direct, picture(x), kernel_weights(weight), picture(y),
      w.strides(), w.padding_before(), w.padding_behind());
  return bound_kernel(dnnl::convolution_backward_weights(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, picture(x), false, 0},
                       {DNNL_ARG_DIFF_DST, picture(y), false, 1},
                       {DNNL_ARG_DIFF_WEIGHTS, kernel_weights(weight), true, 0}});
}

// --- pooling

namespace {

constexpr std::int64_t pool_window = 3, pool_stride = 2;

/// One window over the whole picture.
PoolingWindows whole_of(const Tensor& x) {
  return {{1, 1}, {x.shape[1], x.shape[2]}, {0, 0}, {0, 0}};
}

memory::desc one_pixel(const Tensor& y) {
  return strided({y.shape[0], y.shape[1], 1, 1}, {y.shape[1], 1, y.shape[1], y.shape[1]});
}

}  // namespace

Kernel max_pool(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.outputs[0]];
  const Windows w(x, y, pool_window, pool_stride);
  const auto desc = pooling_layer(dnnl::prop_kind::forward_inference, algorithm::pooling_max, picture(x), picture(y),
                                  {w.strides(), {pool_window, pool_window}, w.padding_before(), w.padding_behind()});
  return bound_kernel(dnnl::pooling_forward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, picture(x), false, 0}, {DNNL_ARG_DST, picture(y), true, 0}});
}

/// inputs: x, gradient.
Kernel max_pool_gradient(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.inputs[1]];
  const PoolSizes s{x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2]};
  return {[s](const KernelArguments& a) { plain::max_pool_gradient(a.in(0), a.in(1), s, a.out()); }, {}};
}

Kernel average_pool(const Graph& graph, const Op& op) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.outputs[0]];
  const auto desc = pooling_layer(dnnl::prop_kind::forward_training, algorithm::pooling_avg_exclude_padding, picture(x),
                                  one_pixel(y), whole_of(x));
  return bound_kernel(dnnl::pooling_forward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_SRC, picture(x), false, 0}, {DNNL_ARG_DST, one_pixel(y), true, 0}});
}

Kernel average_pool_gradient(const Graph& graph, const Op& op) {
  const Tensor &y = graph[op.inputs[0]], &x = graph[op.outputs[0]];
  const auto desc =
      pooling_gradient_layer(algorithm::pooling_avg_exclude_padding, picture(x), one_pixel(y), whole_of(x));
  return bound_kernel(dnnl::pooling_backward(desc), desc.scratchpad_desc(),
                      {{DNNL_ARG_DIFF_DST, one_pixel(y), false, 0}, {DNNL_ARG_DIFF_SRC, picture(x), true, 0}});
}

}  // namespace plimsoll::cpu_kernels
