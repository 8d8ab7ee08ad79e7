#pragma once
// An evaluation beside training: forwards that keep nothing for a backward, between two iterations.

#include <cstdint>
#include <optional>

namespace plimsoll {

/// Of a batch, in micro-batches.
inline constexpr double largest_evaluation = 1e6;

struct Evaluation {
  std::uint32_t every = 1;                    ///< iterations from one to the next
  std::uint32_t batches = 1;                  ///< forwards of one, one after the other
  std::optional<std::uint32_t> samples = {};  ///< of a batch as asked for; unset: those of a micro-batch
  double size = 1;                            ///< of a batch, in micro-batches

  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

}  // namespace plimsoll
