#pragma once
// What every backend gives a kernel: addresses of an op's tensors. And how an op's attributes are read.

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"
#include "validate/networks/update_step.h"

namespace plimsoll {

/// Addresses of an op's tensors, in the order in which its kind states them.
struct KernelArguments {
  std::vector<void*> inputs, outputs;
  void* scratch = nullptr;
  float* statistics = nullptr;           ///< running statistics to move along, or null: leave them
  const std::int32_t* labels = nullptr;  ///< of a loss's rows; null: each row's number modulo the number of classes
  UpdateStep update = {};                ///< of an update

  const float* in(std::size_t i) const { return static_cast<const float*>(inputs[i]); }
  float* out(std::size_t i = 0) const { return static_cast<float*>(outputs[i]); }
  template <class Number>
  const Number* in_as(std::size_t i) const {
    return static_cast<const Number*>(inputs[i]);
  }
  template <class Number>
  Number* out_as(std::size_t i = 0) const {
    return static_cast<Number*>(outputs[i]);
  }
};

/// The value of an attribute; a broken promise where the op has none.
std::string_view attribute(const Op&, std::string_view name);
std::int64_t whole_attribute(const Op&, std::string_view name);

/// Where an op that adds to parameter gradients makes its contribution first: in the scratch, before the kernel's own.
KernelArguments contribution_arguments(const Graph&, const Op&, const KernelArguments&);

/// States the workspace of an op whose kernel takes `scratch`.
void state_workspace(const Graph&, Op&, Bytes scratch);

/// Numbers of a tensor, by the bytes of its dtype.
std::int64_t number_count(const Tensor&);

/// Of two bytes a number: see narrow_values.h.
bool is_bf16(const Tensor&);
/// Null: there is none.
const Tensor* first_in_bf16(const Graph&);
bool reads_or_makes_bf16(const Graph&, const Op&);

/// Rows of `columns` numbers, the last dimension of a tensor.
struct RowSizes {
  std::int64_t rows, columns;
};
RowSizes row_sizes(const Tensor&);

/// Of attention: qkv is (batch, sequence, heads x 3 x size), a head's query, key and value one after the other;
/// everything else is (batch, heads, sequence, ...).
struct AttentionSizes {
  std::int64_t batch, sequence, width, heads, size;

  AttentionSizes(const Tensor& qkv, const Op&);
  float scale() const;  ///< of the scores: 1 / sqrt(size)
};

}  // namespace plimsoll
