#pragma once
// The strategy `selective`: a policy for each layer says whether it is recomputed or kept, as PyTorch and Megatron
// users write them: by name, every k-th recomputed, or every k-th kept.

#include <string>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// Whether a stage's name, or one of its parts between dots, matches one of the patterns, which are joined by '+' and
/// may contain `*` (any text) and `?` (any character).
bool matches(std::string_view patterns, std::string_view name);

/// One policy; unset: of no effect.
struct SelectivePolicy {
  std::optional<std::size_t> recompute_every, keep_every;
};

/// Which stages are recomputed, one by one. The last stage, the loss, never is.
std::vector<bool> selected(const std::vector<std::string>& names, std::string_view patterns, const SelectivePolicy&);

}  // namespace plimsoll
