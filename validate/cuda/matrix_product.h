#pragma once
// A product of matrices with cuBLASLt: the algorithm is chosen once, and with it the workspace.

#include <optional>

#include "validate/cuda/cuda_kernel.h"

namespace plimsoll {

/// As stored: row after row, `leading` numbers apart. In a batch, `stride` numbers apart.
struct StoredMatrix {
  std::int64_t rows = 0, columns = 0, leading = 0;
  bool transposed = false;  ///< the product takes the transpose of what is stored
  std::int64_t stride = 0;
  std::int64_t alignment = 64;  ///< bytes; of every address that it will be at
};

struct ProductShape {
  StoredMatrix a, b, c;  ///< c = alpha a b
  std::int64_t batch = 1;
  float alpha = 1;
  bool has_bias = false;                    ///< a row that is added to every row of c
  cudaDataType_t numbers = CUDA_R_32F;      ///< of a, b and the bias; sums are fp32
  std::optional<cudaDataType_t> of_b = {};  ///< where that is another; in 8 bits the bias is as c
  std::optional<cudaDataType_t> made = {};  ///< of c, where that is another
};

/// Numbers of 8 bits, and on the device by what they are multiplied.
struct ScaledNumbers {
  const void* numbers;
  const float* scale;
};

class MatrixProduct {
 public:
  MatrixProduct(const ProductShape&, const Libraries&);

  void run(const void* a, const void* b, void* c, const void* bias, void* scratch, const Queue&) const;
  void run_scaled(const ScaledNumbers& a, const ScaledNumbers& b, void* c, const void* bias, void* scratch,
                  const Queue&) const;
  Bytes scratch() const { return scratch_for(workspace_); }

 private:
  using Desc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static Layout layout_of(const StoredMatrix&, const ProductShape&, cudaDataType_t);

  Desc desc_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  Bytes workspace_;
  float alpha_;
  bool has_bias_;
};

}  // namespace plimsoll
