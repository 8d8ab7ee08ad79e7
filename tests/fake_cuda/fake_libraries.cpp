// cuBLASLt and cuDNN as far as the backend uses them, as plain loops on made-up streams: what is tested is which
// matrices and pictures they are told of.

#include <algorithm>
#include <cstring>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/cuda/library_error.h"
#include "validate/cuda/load_libraries.h"
#include "validate/reference/formulas.h"

namespace {

struct Product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  bool has_bias = false;
  const float* bias = nullptr;
};

struct Layout {
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0;
  std::int32_t batch = 1;
};

constexpr std::size_t workspace_bytes = 192;

template <class Fake, class Opaque>
Fake& real(Opaque* opaque) {
  return *reinterpret_cast<Fake*>(opaque);
}

/// Column after column, as cuBLAS has it.
float at(const float* matrix, const Layout& layout, cublasOperation_t operation, std::int64_t row,
         std::int64_t column) {
  if (operation == CUBLAS_OP_T) std::swap(row, column);
  return matrix[column * layout.leading + row];
}

}  // namespace

struct cudnnTensorStruct {
  int n = 0, c = 0, h = 0, w = 0;
};
struct cudnnFilterStruct {
  int k = 0, c = 0, h = 0, w = 0;
};
struct cudnnConvolutionStruct {
  int pad = 0, stride = 0;
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

cudaStream_t dnn_stream = nullptr;

/// The fastest is not the same every time, the next fails: the third is what must be taken.
template <class Perf, class Algorithm>
cudnnStatus_t offer(int* count, Perf* perfs, Algorithm algorithm) {
  *count = 3;
  perfs[0].determinism = CUDNN_NON_DETERMINISTIC;
  perfs[1].status = CUDNN_STATUS_NOT_SUPPORTED;
  perfs[1].determinism = perfs[2].determinism = CUDNN_DETERMINISTIC;
  perfs[2].algo = algorithm;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace plimsoll {

void load_libraries() {}

}  // namespace plimsoll

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) {
  return "";
}
size_t cublasLtGetVersion() {
  return 0;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &real<Product>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  auto& product = real<Product>(desc);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) std::memcpy(&product.a, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) std::memcpy(&product.b, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) product.has_bias = true;
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) std::memcpy(&product.bias, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{rows, columns, leading, 0, 1});
  return static_cast<std::int64_t>(rows) <= leading ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &real<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t size) {
  auto& own = real<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) std::memcpy(&own.batch, value, size);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) std::memcpy(&own.stride, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 2;
  results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  results[1].workspaceSize = workspace_bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void* workspace,
                              size_t workspace_size, cudaStream_t stream) {
  const Product product = real<Product>(desc);
  const Layout la = real<Layout>(a_layout), lb = real<Layout>(b_layout), ld = real<Layout>(d_layout);
  const float scale = *static_cast<const float*>(alpha);
  const std::uint64_t inner = product.a == CUBLAS_OP_T ? la.rows : la.columns;
  const std::uint64_t rows = product.a == CUBLAS_OP_T ? la.columns : la.rows;
  const std::uint64_t other = product.b == CUBLAS_OP_T ? lb.columns : lb.rows;
  const std::uint64_t columns = product.b == CUBLAS_OP_T ? lb.rows : lb.columns;
  const bool fits = inner == other && rows == ld.rows && columns == ld.columns && la.batch == ld.batch &&
                    lb.batch == ld.batch && workspace_size == workspace_bytes;
  if (!fits || *static_cast<const float*>(beta) != 0) return CUBLAS_STATUS_INVALID_VALUE;
  plimsoll::fake::enqueue(stream, [=] {
    std::memset(workspace, 0xFF, workspace_bytes);
    for (std::int64_t m = 0; m < ld.batch; ++m) {
      const float *one = static_cast<const float*>(a) + m * la.stride,
                  *two = static_cast<const float*>(b) + m * lb.stride;
      float* made = static_cast<float*>(d) + m * ld.stride;
      for (std::int64_t j = 0; j < static_cast<std::int64_t>(columns); ++j) {
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows); ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < static_cast<std::int64_t>(inner); ++k) {
            sum += double{at(one, la, product.a, i, k)} * double{at(two, lb, product.b, k, j)};
          }
          made[j * ld.leading + i] = scale * static_cast<float>(sum) + (product.has_bias ? product.bias[i] : 0);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

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
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format, cudnnDataType_t,
                                         int n, int c, int h, int w) {
  *desc = {n, c, h, w};
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
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  *desc = {k, c, h, w};
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
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
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
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  *bytes = workspace_bytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           size_t* bytes) {
  *bytes = workspace_bytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t,
                                                             size_t* bytes) {
  *bytes = workspace_bytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x_desc, const void* x,
                                      cudnnFilterDescriptor_t w_desc, const void* w,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_size, const void*,
                                      cudnnTensorDescriptor_t y_desc, void* y) {
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_GEMM) return CUDNN_STATUS_NOT_SUPPORTED;
  plimsoll::fake::enqueue(dnn_stream, [=, tx = *x_desc, tw = *w_desc, c = *convolution, ty = *y_desc] {
    std::memset(workspace, 0xFF, workspace_size);
    auto* sums = static_cast<float*>(y);
    std::fill_n(sums, ty.n * ty.h * ty.w * ty.c, 0.0F);
    every_product(tx, tw, c, ty, [&](int to, int from, int by) {
      sums[to] += static_cast<const float*>(x)[from] * static_cast<const float*>(w)[by];
    });
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void*, cudnnFilterDescriptor_t w_desc, const void* w,
                                           cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_size, const void*, cudnnTensorDescriptor_t dx_desc,
                                           void* dx) {
  if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT) return CUDNN_STATUS_NOT_SUPPORTED;
  plimsoll::fake::enqueue(dnn_stream, [=, tx = *dx_desc, tw = *w_desc, c = *convolution, ty = *dy_desc] {
    std::memset(workspace, 0xFF, workspace_size);
    auto* sums = static_cast<float*>(dx);
    std::fill_n(sums, tx.n * tx.h * tx.w * tx.c, 0.0F);
    every_product(tx, tw, c, ty, [&](int to, int from, int by) {
      sums[from] += static_cast<const float*>(dy)[to] * static_cast<const float*>(w)[by];
    });
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void*, cudnnTensorDescriptor_t x_desc, const void* x,
                                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_size, const void*, cudnnFilterDescriptor_t dw_desc,
                                             void* dw) {
  if (algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT) return CUDNN_STATUS_NOT_SUPPORTED;
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
