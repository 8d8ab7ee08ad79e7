#include "sim/core/layer_use.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

constexpr std::array layer_names{std::pair{SavedBy::conv, std::string_view("conv")},
                                 std::pair{SavedBy::linear, std::string_view("linear")},
                                 std::pair{SavedBy::matmul, std::string_view("matmul")},
                                 std::pair{SavedBy::bn, std::string_view("bn")},
                                 std::pair{SavedBy::ln, std::string_view("ln")},
                                 std::pair{SavedBy::relu, std::string_view("relu")},
                                 std::pair{SavedBy::gelu, std::string_view("gelu")},
                                 std::pair{SavedBy::softmax, std::string_view("softmax")},
                                 std::pair{SavedBy::pool, std::string_view("pool")},
                                 std::pair{SavedBy::embedding, std::string_view("embedding")},
                                 std::pair{SavedBy::lstm, std::string_view("lstm")},
                                 std::pair{SavedBy::loss, std::string_view("loss")},
                                 std::pair{SavedBy::stage, std::string_view("stage")},
                                 std::pair{SavedBy::checkpoint, std::string_view("checkpoint")},
                                 std::pair{SavedBy::other, std::string_view("other")}};

constexpr std::int64_t largest_kernel = 99;

std::string sized_convolution(std::int64_t kernel) {
  return std::string(name_of(SavedBy::conv)) + std::to_string(kernel) + "x" + std::to_string(kernel);
}

}  // namespace

std::string_view name_of(SavedBy layer) {
  return layer_names[static_cast<std::size_t>(layer)].second;
}

std::optional<std::pair<SavedBy, std::int64_t>> layer_with_kernel(std::string_view name) {
  const auto* found = std::ranges::find(layer_names, name, &std::pair<SavedBy, std::string_view>::second);
  if (found != layer_names.end()) return std::pair{found->first, std::int64_t{0}};
  for (std::int64_t kernel = 1; kernel <= largest_kernel; ++kernel) {
    if (name == sized_convolution(kernel)) return std::pair{SavedBy::conv, kernel};
  }
  return std::nullopt;
}

std::optional<LayerUse> layer_use(std::string_view text) {
  const std::size_t dot = std::min(text.find('.'), text.size());
  const std::string_view which = text.substr(dot);
  const auto layer = layer_with_kernel(text.substr(0, dot));
  if (!layer || layer->first == SavedBy::stage || layer->first == SavedBy::checkpoint) return std::nullopt;
  if (which != use_as_input && which != use_as_result && which != use_of_shape) return std::nullopt;
  return LayerUse{.by = layer->first,
                  .is_result = which == use_as_result,
                  .shape_only = which == use_of_shape,
                  .kernel = layer->second};
}

std::string text_of(const LayerUse& use) {
  std::string layer = use.kernel > 0 ? sized_convolution(use.kernel) : std::string(name_of(use.by));
  return layer.append(use.is_result ? use_as_result : use.shape_only ? use_of_shape : use_as_input);
}

}  // namespace plimsoll
