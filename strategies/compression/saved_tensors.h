#pragma once
// What a forward leaves for the backward, and who reads it there: what compression strategies choose from.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

/// What kind of layer an op belongs to, forward or backward. `checkpoint` reads a value to run a forward again.
enum class SavedBy : std::uint8_t {
  conv,
  linear,
  matmul,
  bn,
  ln,
  relu,
  gelu,
  softmax,
  pool,
  embedding,
  lstm,
  loss,
  stage,
  checkpoint,
  other
};

std::string_view name_of(SavedBy);

/// Of an op by its kind, as PyTorch names it or as our networks do; `stage` for those of chains.
SavedBy layer_of(const Op&);

/// A use of a saved value in the backward. `is_result`: the layer itself has made it; else it was the layer's input.
struct SavedUse {
  std::uint32_t position = 0;
  SavedBy by = SavedBy::other;
  bool is_result = false;
  OpId op;                  ///< that reads it
  std::int64_t kernel = 0;  ///< of a convolution: pixels a side of its weight
};

/// A value that is made before the backward and is used there; the network's input is never among them.
struct SavedTensor {
  TensorId tensor;         ///< stands for its storage
  std::uint32_t from = 0;  ///< position of its last use before the gap
  std::vector<SavedUse> uses;
};

std::vector<SavedTensor> saved_tensors(const Graph&, const OffloadModel&);

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
