#pragma once
// What a forward leaves for the backward, and who reads it there: what compression strategies choose from.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/layer_use.h"
#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// A use of a saved value in the backward. `is_result`: the layer itself has made it; else it was the layer's input. A
/// stage of a chain may use a value several times at once.
struct SavedUse {
  std::uint32_t position = 0;
  SavedBy by = SavedBy::other;
  bool is_result = false;
  OpId op;                  ///< that reads it
  std::int64_t kernel = 0;  ///< of a convolution: pixels a side of its weight
  bool shape_only = false;  ///< of a chain's stage: it needs no more

  LayerUse layer_use() const { return {by, is_result, shape_only, kernel}; }
};

/// A value that is made before the backward and is used there; the network's input is never among them.
struct SavedTensor {
  TensorId tensor;         ///< stands for its storage
  std::uint32_t from = 0;  ///< position of its last use before the gap
  std::vector<SavedUse> uses;
};

std::vector<SavedTensor> saved_tensors(const Graph&, const OffloadModel&);

/// Of the tensor as a matrix whose columns are its last dimension.
std::int64_t rows_of(const Tensor&);

/// Whether the op sums over the rows of the value and of a gradient with as many rows, to the gradient of a weight.
bool sums_over_rows(const Graph&, const Op&, const Tensor& value);

/// A choice of uses: `conv.input+bn.input`, `conv3x3.input`, `relu.output`, `softmax`, `all`.
class UsePattern {
 public:
  /// Why the text is none, or nothing.
  static std::string refusal(std::string_view text);

  /// The text must be one.
  explicit UsePattern(std::string_view text);

  bool matches(const SavedUse&) const;
  bool names_all() const;
  bool names(SavedBy) const;  ///< not only by `all`

 private:
  struct Term {
    bool all = false;
    SavedBy layer = SavedBy::other;
    std::int64_t kernel = 0;  ///< 0: any
    bool inputs = true, results = true;
  };
  std::vector<Term> terms_;
};

/// `conv.input`, `relu.output`: every kind of use there is, for a message.
std::string written_uses(std::span<const SavedTensor>);

}  // namespace plimsoll
