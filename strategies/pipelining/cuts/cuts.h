#pragma once
// Where a chain is cut into parts for a pipeline.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/chain.h"

namespace plimsoll {

/// uniform: as many stages in each part, the first ones one more where that does not go up. balanced: the longest part
/// (forwards and backwards) is as short as can be; of those cuts, the one whose first part is longest, and so on.
enum class CutRule { uniform, balanced };

/// Parts of a chain in a row: the first stage of each, ascending, beginning with 0, and on how many devices it is.
struct StageCut {
  std::vector<std::size_t> first;
  std::vector<std::uint32_t> copies;

  std::uint32_t devices() const;
  bool has_copies() const;
  friend auto operator<=>(const StageCut&, const StageCut&) = default;
};

/// Each part on one device.
StageCut without_copies(std::vector<std::size_t> first);

/// As on the command line: 0:4:8, or 0x2:5 where the first part is on two devices. Nothing where it is none.
std::optional<StageCut> read_cut(std::string_view);
std::string text_of(const StageCut&);

/// Whole numbers from 1 on, such as 4:3:2:1. Nothing where the text is something else.
std::optional<std::vector<std::uint32_t>> read_numbers(std::string_view);

/// The first stage of each part, ascending, beginning with 0. There are at least as many stages as parts.
std::vector<std::size_t> cut_stages(const Chain&, std::size_t parts, CutRule);

/// Every cut into so many parts, each on one device; none where there are more than `most`.
std::vector<StageCut> all_cuts(std::size_t stages, std::size_t parts, std::size_t most);

/// What stages [first, last) need of a device as the part of this number; nothing where they cannot be one.
using RangeNeeds = std::function<std::optional<Bytes>(std::uint32_t first, std::uint32_t last, std::uint32_t part)>;

/// The first stages of the parts where what the part that needs the most needs is least: D(i, q) of the stages from i
/// on as parts q and on is the least max(needs(i, j, q), D(j, q + 1)). Empty where there is no cut.
std::vector<std::size_t> least_memory_cut(std::uint32_t stages, std::uint32_t parts, const RangeNeeds&);

}  // namespace plimsoll
