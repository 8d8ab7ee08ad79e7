#pragma once
// Who uses a saved value in the backward, and as what: `conv3x3.input`, `relu.output`.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {

/// What kind of layer reads a saved value. `stage`: one of a chain that does not say; `checkpoint` reads a value to run
/// a forward again.
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

/// A layer's use of a value. `is_result`: the layer itself has made it; else it was the layer's input, of which the
/// backward may need no more than the shape.
struct LayerUse {
  SavedBy by = SavedBy::other;
  bool is_result = false, shape_only = false;
  std::int64_t kernel = 0;  ///< of a convolution: pixels a side of its weight; 0: unknown

  friend bool operator==(const LayerUse&, const LayerUse&) = default;
};

/// A convolution or a product with a weight that reads its input in the backward.
inline bool is_input_of_product(const LayerUse& use) {
  return (use.by == SavedBy::conv || use.by == SavedBy::linear) && !use.is_result;
}

inline constexpr std::string_view use_as_input = ".input", use_as_result = ".output", use_of_shape = ".shape";

/// `conv` or `conv3x3` as its layer and its kernel; 0 where no size is named.
std::optional<std::pair<SavedBy, std::int64_t>> layer_with_kernel(std::string_view name);

/// `conv3x3.input`, as traces write it; nothing where the text is none.
std::optional<LayerUse> layer_use(std::string_view text);
std::string text_of(const LayerUse&);

}  // namespace plimsoll
