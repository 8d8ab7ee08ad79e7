#pragma once
// cut=madpipe of 1f1b: MadPipe's stages, of which one device may have several, in the order 1F1B*.

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/core/partition.h"
#include "sim/model/problem.h"

namespace plimsoll {

inline constexpr std::string_view star_cut = "madpipe";

/// The fastest, for the problem's micro-batches, of: 1F1B* on one stage a device; 1F1B there, if it fits; a periodic
/// order where one device has several stages. Within the budget in plain training or, where none fits, what needs the
/// least.
Partition star_partition(const Problem&, std::string_view strategy, std::uint32_t ranks,
                         const std::optional<Bytes>& budget);

}  // namespace plimsoll
