// cuBLASLt as far as the backend uses it, as plain loops on made-up streams: what is tested is which matrices it is
// told of, and that addresses and workspaces are aligned as promised.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/cuda/library_error.h"
#include "validate/networks/bf16.h"
#include "validate/networks/fp8.h"

namespace {

struct Product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  bool has_bias = false;
  const void* bias = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;  ///< on the device
};

struct Layout {
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0;
  std::int32_t batch = 1;
  cudaDataType_t numbers = CUDA_R_32F;
};

struct Preference {
  std::uint64_t most_workspace = 0;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};  ///< of A, B, C and D; cuBLASLt's defaults
};

constexpr std::size_t workspace_bytes = 192;
constexpr std::uint64_t wanted_bytes = 32 << 20;  // what a fast algorithm takes on Hopper

bool is_aligned(const void* address, std::uint64_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % to == 0;
}

template <class Fake, class Opaque>
Fake& real(Opaque* opaque) {
  return *reinterpret_cast<Fake*>(opaque);
}

bool has_8_bits(const Layout& layout) {
  return layout.numbers == CUDA_R_8F_E4M3 || layout.numbers == CUDA_R_8F_E5M2;
}

/// As documented of numbers of 8 bits: the first operand is turned, the second not, not both are E5M2, columns begin at
/// multiples of 16 bytes, and results are wider.
bool multiplies_8_bits(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const bool is_turned = product.a == CUBLAS_OP_T && product.b == CUBLAS_OP_N;
  const bool both_reach = a.numbers == CUDA_R_8F_E5M2 && b.numbers == CUDA_R_8F_E5M2;
  return has_8_bits(a) && has_8_bits(b) && is_turned && !both_reach && a.leading % 16 == 0 && b.leading % 16 == 0 &&
         d.leading % 16 == 0 && !has_8_bits(d);
}

/// A number of 8, 16 or 32 bits.
float number_at(const void* numbers, cudaDataType_t type, std::int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(numbers)[i];
  const auto* codes = static_cast<const std::uint8_t*>(numbers);
  if (type == CUDA_R_8F_E4M3) return plimsoll::float_of_8_bits<plimsoll::E4m3>(codes[i]);
  if (type == CUDA_R_8F_E5M2) return plimsoll::float_of_8_bits<plimsoll::E5m2>(codes[i]);
  const auto bits = std::uint32_t{static_cast<const std::uint16_t*>(numbers)[i]};
  if (type == CUDA_R_16BF) return std::bit_cast<float>(bits << 16U);
  const float size = std::ldexp(static_cast<float>((bits & 0x3FFU) | 0x400U), static_cast<int>(bits >> 10U & 31U) - 25);
  return (bits & 0x8000U) != 0 ? -size : size;  // of normal numbers
}

void store(void* numbers, cudaDataType_t type, std::int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(numbers)[i] = value;
  } else {
    static_cast<std::uint16_t*>(numbers)[i] = plimsoll::as_bf16(value).bits;
  }
}

/// Column after column, as cuBLAS has it.
float at(const void* matrix, std::int64_t first, const Layout& layout, cublasOperation_t operation, std::int64_t row,
         std::int64_t column) {
  if (operation == CUBLAS_OP_T) std::swap(row, column);
  return number_at(matrix, layout.numbers, first + column * layout.leading + row);
}

}  // namespace

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
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) std::memcpy(&product.a_scale, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) std::memcpy(&product.b_scale, value, size);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) std::memcpy(&product.bias, value, size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{rows, columns, leading, 0, 1, type});
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
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &real<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  auto& own = real<Preference>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) std::memcpy(&own.most_workspace, value, size);
  const std::array of_matrices{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const auto which = std::ranges::find(of_matrices, attribute);
  if (which != of_matrices.end()) {
    std::memcpy(&own.alignments.at(static_cast<std::size_t>(which - of_matrices.begin())), value, size);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto& wanted = real<Preference>(preference);
  if (wanted.most_workspace < wanted_bytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 2;
  for (std::size_t m = 0; m < 4; ++m) results[1].algo.data[m] = wanted.alignments.at(m);
  results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  results[1].workspaceSize = workspace_bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
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
  const bool in_8_bits = has_8_bits(la) || has_8_bits(lb);
  if (in_8_bits && !multiplies_8_bits(product, la, lb, ld)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // As documented, and as the algorithm was chosen for.
  if (!is_aligned(workspace, 256)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::array<const void*, 4> matrices{a, b, d, d};
  for (std::size_t m = 0; m < 4; ++m) {
    if (!is_aligned(matrices.at(m), algorithm->data[m])) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool zeros = number_at(a, la.numbers, 0) == 0 && number_at(b, lb.numbers, 0) == 0;
  plimsoll::fake::issued() += zeros ? '0' : 'P';
  plimsoll::fake::enqueue(stream, [=] {
    std::memset(workspace, 0xFF, workspace_bytes);
    const float by = in_8_bits ? scale * *product.a_scale * *product.b_scale : scale;
    for (std::int64_t m = 0; m < ld.batch; ++m) {
      if (ld.numbers != CUDA_R_32F && rows * columns * inner > 1U << 20U) continue;  // for timing only
      for (std::int64_t j = 0; j < static_cast<std::int64_t>(columns); ++j) {
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows); ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < static_cast<std::int64_t>(inner); ++k) {
            sum +=
                double{at(a, m * la.stride, la, product.a, i, k)} * double{at(b, m * lb.stride, lb, product.b, k, j)};
          }
          const float bias = product.has_bias ? number_at(product.bias, ld.numbers, i) : 0;  // of the result's type
          store(d, ld.numbers, m * ld.stride + j * ld.leading + i, by * static_cast<float>(sum) + bias);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
