// cuDNN as far as the backend uses it, as plain loops on made-up streams: what is tested is which pictures it is told
// of.

#include <algorithm>
#include <cstring>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/cuda/library_error.h"
#include "validate/cuda/load_libraries.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/formulas.h"

struct cudnnTensorStruct {
  int n = 0, c = 0, h = 0, w = 0;
  cudnnDataType_t numbers = CUDNN_DATA_FLOAT;
};
struct cudnnFilterStruct {
  int k = 0, c = 0, h = 0, w = 0;
  cudnnDataType_t numbers = CUDNN_DATA_FLOAT;
};
struct cudnnConvolutionStruct {
  int pad = 0, stride = 0;
  cudnnMathType_t maths = CUDNN_DEFAULT_MATH;
};
struct cudnnPoolingStruct {
  int window = 0, pad = 0, stride = 0;
};

namespace {

/// Calls `work(y, x, w)` with the indices of every product that a convolution sums.
template <class Work>
void every_product(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnConvolutionStruct& c,
                   const cudnnTensorStruct& y, Work work) {
  for (int n = 0; n < y.n; ++n) {
    for (int i = 0; i < y.h * y.w * y.c * w.h * w.w * x.c; ++i) {
      const int from = i % x.c, s = i / x.c % w.w, r = i / (x.c * w.w) % w.h;
      const int window = i / (x.c * w.w * w.h), to = window % y.c, q = window / y.c % y.w, p = window / (y.c * y.w);
      const int h = p * c.stride - c.pad + r, v = q * c.stride - c.pad + s;
      if (h < 0 || h >= x.h || v < 0 || v >= x.w) continue;
      work(((n * y.h + p) * y.w + q) * y.c + to, ((n * x.h + h) * x.w + v) * x.c + from,
           ((to * w.h + r) * w.w + s) * w.c + from);
    }
  }
}

std::vector<float> in_fp32(const void* numbers, cudnnDataType_t type, int count) {
  std::vector<float> wide(static_cast<std::size_t>(count));
  if (type == CUDNN_DATA_FLOAT) {
    std::memcpy(wide.data(), numbers, 4 * wide.size());
  } else {
    plimsoll::plain::widen(static_cast<const plimsoll::Bf16*>(numbers), count, wide.data());
  }
  return wide;
}

void put(const std::vector<float>& wide, cudnnDataType_t type, void* numbers) {
  if (type == CUDNN_DATA_FLOAT) {
    std::memcpy(numbers, wide.data(), 4 * wide.size());
  } else {
    plimsoll::plain::narrow(wide.data(), static_cast<std::int64_t>(wide.size()), static_cast<plimsoll::Bf16*>(numbers));
  }
}

auto& at(auto& numbers, int i) {
  return numbers[static_cast<std::size_t>(i)];
}

int count_of(const cudnnTensorStruct& t) {
  return t.n * t.c * t.h * t.w;
}
int count_of(const cudnnFilterStruct& t) {
  return t.k * t.c * t.h * t.w;
}

/// cuDNN's convolutions take one type of numbers.
bool are_alike(const cudnnTensorStruct& x, const cudnnFilterStruct& w, const cudnnTensorStruct& y) {
  return x.numbers == w.numbers && x.numbers == y.numbers;
}

cudaStream_t dnn_stream = nullptr;

/// The algorithm that is right takes the machine's workspace, all others twice that.
std::size_t size_of(bool is_right) {
  return (is_right ? 1 : 2) * plimsoll::fake::machine().convolution_workspace;
}

/// The fastest is not the same every time, the next fails: the third is what must be taken where TF32 is allowed, the
/// fourth, with the maths of fp32, where it is not. Each has the right algorithm; its maths is what tells them apart.
template <class Perf, class Algorithm>
cudnnStatus_t offer(int* count, Perf* perfs, Algorithm algorithm) {
  *count = 4;
  perfs[0].determinism = CUDNN_NON_DETERMINISTIC;
  perfs[1].status = CUDNN_STATUS_NOT_SUPPORTED;
  perfs[1].determinism = perfs[2].determinism = perfs[3].determinism = CUDNN_DETERMINISTIC;
  perfs[2].algo = perfs[3].algo = algorithm;
  perfs[2].mathType = CUDNN_TENSOR_OP_MATH;
  perfs[3].mathType = CUDNN_FMA_MATH;
  return CUDNN_STATUS_SUCCESS;
}

/// In which maths the convolution is computed: 'F' for fp32's own, 'T' where it may round, 'D' where cuDNN chooses.
void note_maths(const cudnnConvolutionStruct& convolution) {
  plimsoll::fake::maths() += convolution.maths == CUDNN_FMA_MATH         ? 'F'
                             : convolution.maths == CUDNN_TENSOR_OP_MATH ? 'T'
                                                                         : 'D';
}

}  // namespace

namespace plimsoll {

void load_libraries() {}

}  // namespace plimsoll

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = nullptr;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
  return "";
}
size_t cudnnGetVersion() {
  return 0;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t stream) {
  dnn_stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* desc) {
  *desc = new cudnnTensorStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc) {
  delete desc;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format,
                                         cudnnDataType_t numbers, int n, int c, int h, int w) {
  *desc = {n, c, h, w, numbers};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* desc) {
  *desc = new cudnnFilterStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc) {
  delete desc;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t numbers,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *desc = {k, c, h, w, numbers};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* desc) {
  *desc = new cudnnConvolutionStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc) {
  delete desc;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad, int, int stride, int, int,
                                              int, cudnnConvolutionMode_t, cudnnDataType_t) {
  *desc = {pad, stride};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t maths) {
  desc->maths = maths;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* desc) {
  *desc = new cudnnPoolingStruct;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t desc) {
  delete desc;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t desc, cudnnPoolingMode_t, cudnnNanPropagation_t,
                                          int window, int, int pad, int, int stride, int) {
  *desc = {window, pad, stride};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                     cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int,
                                                     int* count, cudnnConvolutionFwdAlgoPerf_t* perfs) {
  return offer(count, perfs, CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                          cudnnTensorDescriptor_t, int, int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* perfs) {
  return offer(count, perfs, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                            cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                            cudnnFilterDescriptor_t, int, int* count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* perfs) {
  return offer(count, perfs, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  *bytes = size_of(algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  *bytes = size_of(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  *bytes = size_of(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x_desc, const void* x,
                                      cudnnFilterDescriptor_t w_desc, const void* w,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_size, const void*,
                                      cudnnTensorDescriptor_t y_desc, void* y) {
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_GEMM || !are_alike(*x_desc, *w_desc, *y_desc)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  note_maths(*convolution);
  plimsoll::fake::enqueue(dnn_stream, [=, tx = *x_desc, tw = *w_desc, c = *convolution, ty = *y_desc] {
    std::memset(workspace, 0xFF, workspace_size);
    const std::vector<float> wide = in_fp32(x, tx.numbers, count_of(tx)), by_w = in_fp32(w, tw.numbers, count_of(tw));
    std::vector<float> sums(static_cast<std::size_t>(count_of(ty)));
    every_product(tx, tw, c, ty, [&](int to, int from, int by) { at(sums, to) += at(wide, from) * at(by_w, by); });
    put(sums, ty.numbers, y);
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void*, cudnnFilterDescriptor_t w_desc, const void* w,
                                           cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_size, const void*, cudnnTensorDescriptor_t dx_desc,
                                           void* dx) {
  if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT || !are_alike(*dx_desc, *w_desc, *dy_desc)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  note_maths(*convolution);
  plimsoll::fake::enqueue(dnn_stream, [=, tx = *dx_desc, tw = *w_desc, c = *convolution, ty = *dy_desc] {
    std::memset(workspace, 0xFF, workspace_size);
    const std::vector<float> wide = in_fp32(dy, ty.numbers, count_of(ty)), by_w = in_fp32(w, tw.numbers, count_of(tw));
    std::vector<float> sums(static_cast<std::size_t>(count_of(tx)));
    every_product(tx, tw, c, ty, [&](int to, int from, int by) { at(sums, from) += at(wide, to) * at(by_w, by); });
    put(sums, tx.numbers, dx);
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x_desc, const void* x,
                                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_size, const void*, cudnnFilterDescriptor_t dw_desc,
                                             void* dw) {
  if (algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT || dw_desc->numbers != CUDNN_DATA_FLOAT) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  note_maths(*convolution);
  plimsoll::fake::enqueue(dnn_stream, [=, tx = *x_desc, tw = *dw_desc, c = *convolution, ty = *dy_desc] {
    std::memset(workspace, 0xFF, workspace_size);
    auto* sums = static_cast<float*>(dw);
    std::fill_n(sums, tw.k * tw.h * tw.w * tw.c, 0.0F);
    every_product(tx, tw, c, ty, [&](int to, int from, int by) {
      sums[by] += static_cast<const float*>(dy)[to] * static_cast<const float*>(x)[from];
    });
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t pooling, const void*,
                                  cudnnTensorDescriptor_t x_desc, const void* x, const void*,
                                  cudnnTensorDescriptor_t y_desc, void* y) {
  plimsoll::fake::enqueue(dnn_stream, [=, p = *pooling, tx = *x_desc, ty = *y_desc] {
    const plimsoll::PoolSizes s{tx.n, tx.h, tx.w, tx.c, ty.h, ty.w, p.window, p.stride, p.pad};
    const auto* from = static_cast<const float*>(x);
    for (int k = 0; k < ty.n * ty.h * ty.w * ty.c; ++k) {
      static_cast<float*>(y)[k] = from[plimsoll::largest_in_window(
          from, s, k / (ty.c * ty.w * ty.h), k / (ty.c * ty.w) % ty.h, k / ty.c % ty.w, k % ty.c)];
    }
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
