#pragma once
// Extents of tensors as PyTorch prints them: numbers, names of axes (`s0`), and what is computed from these:
// `2*s0 + 1`, `(s0//2)`, `Max(1, s0)`.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

struct FxExtent {
  std::int64_t value = 0;
  std::string fault;  ///< why there is none; empty: there is one
};

/// `size_of`: of an axis by its name, unset where nobody has said it.
FxExtent fx_extent(std::string_view text, const std::function<std::optional<std::int64_t>(std::string_view)>& size_of);

}  // namespace plimsoll
