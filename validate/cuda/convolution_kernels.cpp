// Convolution and max pooling of pictures with cuDNN, channels last. Our weights are (height, width, from, to), cuDNN's
// (to, height, width, from): they are transposed in the scratch. Padding by (k - 1) / 2 on all sides makes ceil(size /
// stride) results for odd k, the windows that we mean.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

#include "validate/cuda/kernel_makers.h"
#include "validate/cuda/launch.h"
#include "validate/networks/packing.h"

namespace plimsoll::cuda_kernels {
namespace {

using Picture = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using Filter = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using Convolution = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;
using Pooling = Owned<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;

int whole(std::int64_t n) {
  return static_cast<int>(n);
}

cudnnDataType_t picture_numbers(const Tensor& x) {
  return is_bf16(x) ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

Picture picture(const Tensor& x) {
  cudnnTensorDescriptor_t made = nullptr;
  CUDA_CHECK(cudnnCreateTensorDescriptor(&made));
  Picture desc(made);
  CUDA_CHECK(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, picture_numbers(x), whole(x.shape[0]),
                                        whole(x.shape[3]), whole(x.shape[1]), whole(x.shape[2])));
  return desc;
}

Filter filter(const Tensor& weight, cudnnDataType_t numbers) {
  cudnnFilterDescriptor_t made = nullptr;
  CUDA_CHECK(cudnnCreateFilterDescriptor(&made));
  Filter desc(made);
  CUDA_CHECK(cudnnSetFilter4dDescriptor(made, numbers, CUDNN_TENSOR_NHWC, whole(weight.shape[3]),
                                        whole(weight.shape[2]), whole(weight.shape[0]), whole(weight.shape[1])));
  return desc;
}

/// What cuDNN may choose from. Products of bf16 are exact in fp32: any maths will do.
cudnnMathType_t maths_of(cudnnDataType_t numbers, bool tf32) {
  if (numbers == CUDNN_DATA_BFLOAT16) return CUDNN_TENSOR_OP_MATH;
  return tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

Convolution convolution_of(const Tensor& weight, std::int64_t stride, cudnnMathType_t maths) {
  cudnnConvolutionDescriptor_t made = nullptr;
  CUDA_CHECK(cudnnCreateConvolutionDescriptor(&made));
  Convolution desc(made);
  const int padding = whole((weight.shape[0] - 1) / 2);
  CUDA_CHECK(cudnnSetConvolution2dDescriptor(made, padding, padding, whole(stride), whole(stride), 1, 1,
                                             CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CUDA_CHECK(cudnnSetConvolutionMathType(made, maths));
  return desc;
}

/// What the three kernels of a convolution share.
struct ConvolutionLayer {
  Picture x, y;
  Filter weight;
  Convolution convolution;
  cudnnMathType_t maths;
  bool is_narrow;
  std::int64_t outputs, inputs;  ///< of the weights as a matrix: (height, width, from) x to
  Bytes weights;
  std::string text;

  ConvolutionLayer(const Tensor& from, const Tensor& weights_of, const Tensor& to, std::int64_t stride, bool may_round)
      : x(picture(from)),
        y(picture(to)),
        weight(filter(weights_of, picture_numbers(from))),
        convolution(convolution_of(weights_of, stride, maths_of(picture_numbers(from), may_round))),
        maths(maths_of(picture_numbers(from), may_round)),
        is_narrow(is_bf16(from)),
        outputs(weights_of.shape[3]),
        inputs(weights_of.bytes.count / 4 / outputs),
        weights(aligned(Bytes{(is_narrow ? 2 : 4) * inputs * outputs})),
        text(fmt::format("convolution of {} pictures of {} x {} x {} by {} x {}", from.shape[0], from.shape[1],
                         from.shape[2], from.shape[3], weights_of.shape[0], weights_of.shape[1])) {}

  /// Into the scratch, where they stay for the kernel; rounded where pictures are.
  void turn_weights(const KernelArguments& a, const Queue& queue) const {
    if (is_narrow) {
      launch::transpose(a.in(1), 1, inputs, outputs, static_cast<Bf16*>(a.scratch), queue.stream);
    } else {
      launch::transpose(a.in(1), 1, inputs, outputs, static_cast<float*>(a.scratch), queue.stream);
    }
  }
};

/// The first of cuDNN's algorithms, in its order of speed, that gives the same bits every time and keeps to the limit;
/// where none keeps to it, the one with the smallest workspace. The layer's descriptor gets the maths for which cuDNN
/// offered it: without TF32 none that rounds.
template <class Algorithm, std::size_t count, class Size>
std::pair<Algorithm, Bytes> chosen(const auto& perfs, int found, const std::array<Algorithm, count>& usual, Size size,
                                   const ConvolutionLayer& layer) {
  std::vector<std::pair<Algorithm, cudnnMathType_t>> order;
  for (int p = 0; p < found; ++p) {
    const auto& perf = perfs.at(static_cast<std::size_t>(p));
    const bool is_exact = perf.mathType == CUDNN_FMA_MATH || layer.maths != CUDNN_FMA_MATH;
    const bool fine = perf.status == CUDNN_STATUS_SUCCESS && perf.determinism == CUDNN_DETERMINISTIC && is_exact;
    if (fine) order.emplace_back(perf.algo, perf.mathType);
  }
  for (const Algorithm algorithm : usual) order.emplace_back(algorithm, layer.maths);
  std::optional<std::tuple<Algorithm, Bytes, cudnnMathType_t>> best;
  for (const auto& [algorithm, maths] : order) {
    std::size_t bytes = 0;
    CUDA_CHECK(cudnnSetConvolutionMathType(*layer.convolution, maths));
    if (size(algorithm, &bytes) != CUDNN_STATUS_SUCCESS) continue;
    const Bytes workspace{static_cast<std::int64_t>(bytes)};
    if (!best || workspace < std::get<Bytes>(*best)) best = {algorithm, workspace, maths};
    if (workspace > workspace_limit) continue;
    best = {algorithm, workspace, maths};
    break;
  }
  if (!best) throw CudaError("cuDNN has no deterministic algorithm for a " + layer.text);
  CUDA_CHECK(cudnnSetConvolutionMathType(*layer.convolution, std::get<cudnnMathType_t>(*best)));
  return {std::get<Algorithm>(*best), std::get<Bytes>(*best)};
}

void use(const Queue& queue) {
  CUDA_CHECK(cudnnSetStream(queue.dnn, queue.stream));
}

constexpr float one = 1, zero = 0;

/// Behind the transposed weights.
void* workspace_of(const KernelArguments& a, const ConvolutionLayer& layer) {
  return workspace_in(static_cast<std::byte*>(a.scratch) + layer.weights.count);
}

}  // namespace

CudaKernel convolution(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &weight = graph[op.inputs[1]], &y = graph[op.outputs[0]];
  const auto layer =
      std::make_shared<const ConvolutionLayer>(x, weight, y, whole_attribute(op, "stride"), libraries.tf32);
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> perfs{};
  int found = 0;
  CUDA_CHECK(cudnnGetConvolutionForwardAlgorithm_v7(libraries.dnn, *layer->x, *layer->weight, *layer->convolution,
                                                    *layer->y, whole(perfs.size()), &found, perfs.data()));
  const auto size = [&](cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(libraries.dnn, *layer->x, *layer->weight, *layer->convolution,
                                                   *layer->y, algorithm, bytes);
  };
  const std::array usual{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM};
  const auto [algorithm, workspace] = chosen(perfs, found, usual, size, *layer);
  return {[layer, algorithm = algorithm, workspace = workspace](const KernelArguments& a, const Queue& queue) {
            layer->turn_weights(a, queue);
            use(queue);
            CUDA_CHECK(cudnnConvolutionForward(
                queue.dnn, &one, *layer->x, a.inputs[0], *layer->weight, a.scratch, *layer->convolution, algorithm,
                workspace_of(a, *layer), static_cast<std::size_t>(workspace.count), &zero, *layer->y, a.outputs[0]));
          },
          layer->weights + scratch_for(workspace)};
}

/// inputs: gradient, weight.
CudaKernel convolution_input_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &y = graph[op.inputs[0]], &weight = graph[op.inputs[1]], &x = graph[op.outputs[0]];
  const auto layer =
      std::make_shared<const ConvolutionLayer>(x, weight, y, whole_attribute(op, "stride"), libraries.tf32);
  std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT> perfs{};
  int found = 0;
  CUDA_CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(libraries.dnn, *layer->weight, *layer->y, *layer->convolution,
                                                         *layer->x, whole(perfs.size()), &found, perfs.data()));
  const auto size = [&](cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(libraries.dnn, *layer->weight, *layer->y, *layer->convolution,
                                                        *layer->x, algorithm, bytes);
  };
  const std::array usual{CUDNN_CONVOLUTION_BWD_DATA_ALGO_1};
  const auto [algorithm, workspace] = chosen(perfs, found, usual, size, *layer);
  return {[layer, algorithm = algorithm, workspace = workspace](const KernelArguments& a, const Queue& queue) {
            layer->turn_weights(a, queue);
            use(queue);
            CUDA_CHECK(cudnnConvolutionBackwardData(
                queue.dnn, &one, *layer->weight, a.scratch, *layer->y, a.inputs[0], *layer->convolution, algorithm,
                workspace_of(a, *layer), static_cast<std::size_t>(workspace.count), &zero, *layer->x, a.outputs[0]));
          },
          layer->weights + scratch_for(workspace)};
}

/// inputs: x, gradient. In fp32 alone: of bf16 cuDNN would make a gradient in bf16.
CudaKernel convolution_weight_gradient(const Graph& graph, const Op& op, const Libraries& libraries) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.inputs[1]], &weight = graph[op.outputs[0]];
  const auto layer =
      std::make_shared<const ConvolutionLayer>(x, weight, y, whole_attribute(op, "stride"), libraries.tf32);
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT> perfs{};
  int found = 0;
  CUDA_CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(libraries.dnn, *layer->x, *layer->y, *layer->convolution,
                                                           *layer->weight, whole(perfs.size()), &found, perfs.data()));
  const auto size = [&](cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(libraries.dnn, *layer->x, *layer->y, *layer->convolution,
                                                          *layer->weight, algorithm, bytes);
  };
  const std::array usual{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1};
  const auto [algorithm, workspace] = chosen(perfs, found, usual, size, *layer);
  return {[layer, algorithm = algorithm, workspace = workspace](const KernelArguments& a, const Queue& queue) {
            auto* turned = static_cast<float*>(a.scratch);
            use(queue);
            CUDA_CHECK(cudnnConvolutionBackwardFilter(
                queue.dnn, &one, *layer->x, a.in(0), *layer->y, a.in(1), *layer->convolution, algorithm,
                workspace_of(a, *layer), static_cast<std::size_t>(workspace.count), &zero, *layer->weight, turned));
            launch::transpose(turned, 1, layer->outputs, layer->inputs, a.out(), queue.stream);
          },
          layer->weights + scratch_for(workspace)};
}

namespace {

struct PoolingLayer {
  Picture x, y;
  Pooling pooling;
};

}  // namespace

CudaKernel max_pool(const Graph& graph, const Op& op, const Libraries&) {
  const Tensor &x = graph[op.inputs[0]], &y = graph[op.outputs[0]];
  if (is_bf16(x)) {
    const PoolSizes p{x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2]};
    return {[p](const KernelArguments& a, const Queue& queue) {
              launch::max_pool(a.in_as<Bf16>(0), p, a.out_as<Bf16>(), queue.stream);
            },
            {}};
  }
  cudnnPoolingDescriptor_t made = nullptr;
  CUDA_CHECK(cudnnCreatePoolingDescriptor(&made));
  Pooling pooling(made);
  constexpr PoolSizes windows{};
  constexpr int window = windows.window, before = windows.before, stride = windows.stride;
  CUDA_CHECK(cudnnSetPooling2dDescriptor(made, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, window, window,
                                         before, before, stride, stride));
  const auto layer = std::make_shared<const PoolingLayer>(PoolingLayer{picture(x), picture(y), std::move(pooling)});
  return {[layer](const KernelArguments& a, const Queue& queue) {
            use(queue);
            CUDA_CHECK(
                cudnnPoolingForward(queue.dnn, *layer->pooling, &one, *layer->x, a.in(0), &zero, *layer->y, a.out()));
          },
          {}};
}

}  // namespace plimsoll::cuda_kernels
