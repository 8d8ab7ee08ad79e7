#include "validate/cuda/matrix_product.h"

#include <array>
#include <string>

#include "validate/networks/packing.h"

namespace plimsoll {
namespace {

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class Value>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, Value value) {
  CUDA_CHECK(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}
template <class Value>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  CUDA_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}
template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

Preference preference_of(const ProductShape& shape) {
  cublasLtMatmulPreference_t made = nullptr;
  CUDA_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_limit.count));
  // Partial sums in the workspace, added in a step of their own: the same bits every time.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(shape.b.alignment));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(shape.a.alignment));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(shape.c.alignment));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(shape.c.alignment));
  return preference;
}

}  // namespace

/// cuBLASLt stores column after column: what we store is the transpose of what it sees.
MatrixProduct::Layout MatrixProduct::layout_of(const StoredMatrix& m, const ProductShape& shape,
                                               cudaDataType_t numbers) {
  cublasLtMatrixLayout_t made = nullptr;
  CUDA_CHECK(cublasLtMatrixLayoutCreate(&made, numbers, static_cast<std::uint64_t>(m.columns),
                                        static_cast<std::uint64_t>(m.rows), m.leading));
  Layout layout(made);
  set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(shape.batch));
  set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.stride);
  return layout;
}

/// c = a b by rows is c^T = b^T a^T by columns: its first factor is our second.
MatrixProduct::MatrixProduct(const ProductShape& shape, const Libraries& libraries)
    : a_(layout_of(shape.a, shape, shape.numbers)),
      b_(layout_of(shape.b, shape, shape.of_b.value_or(shape.numbers))),
      c_(layout_of(shape.c, shape, shape.made.value_or(shape.numbers))),
      alpha_(shape.alpha),
      has_bias_(shape.has_bias) {
  cublasLtMatmulDesc_t made = nullptr;
  const bool rounds = libraries.tf32 && shape.numbers == CUDA_R_32F;
  CUDA_CHECK(cublasLtMatmulDescCreate(&made, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  desc_ = Desc(made);
  set(made, CUBLASLT_MATMUL_DESC_TRANSA, shape.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, shape.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (has_bias_) {
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    // Some address, for choosing the algorithm: only its alignment counts; each run sets its own.
    alignas(alignment) static constexpr float anywhere = 0;
    set(made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(&anywhere));
  }
  const Preference preference = preference_of(shape);
  std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
  int found = 0;
  CUDA_CHECK(cublasLtMatmulAlgoGetHeuristic(libraries.blas, made, *b_, *a_, *c_, *c_, *preference,
                                            static_cast<int>(results.size()), results.data(), &found));
  for (int r = 0; r < found; ++r) {
    const cublasLtMatmulHeuristicResult_t& result = results.at(static_cast<std::size_t>(r));
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithm_ = result.algo;
    workspace_ = Bytes{static_cast<std::int64_t>(result.workspaceSize)};
    return;
  }
  throw CudaError("cuBLASLt has no algorithm for a product that makes " + std::to_string(shape.c.rows) + " x " +
                  std::to_string(shape.c.columns) + " numbers" +
                  (shape.of_b ? " in fp8, which GPUs have from compute capability 8.9 on" : ""));
}

void MatrixProduct::run_scaled(const ScaledNumbers& a, const ScaledNumbers& b, void* c, const void* bias, void* scratch,
                               const Queue& queue) const {
  set(*desc_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(b.scale));
  set(*desc_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(a.scale));
  run(a.numbers, b.numbers, c, bias, scratch, queue);
}

void MatrixProduct::run(const void* a, const void* b, void* c, const void* bias, void* scratch,
                        const Queue& queue) const {
  if (has_bias_) set(*desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float beta = 0;
  CUDA_CHECK(cublasLtMatmul(queue.blas, *desc_, &alpha_, b, *b_, a, *a_, &beta, c, *c_, c, *c_, &algorithm_,
                            workspace_in(scratch), static_cast<std::size_t>(workspace_.count), queue.stream));
}

}  // namespace plimsoll
