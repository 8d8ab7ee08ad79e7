#pragma once
// What eviction costs by the heuristics of dynamic tensor rematerialization: the storage of least cost goes first.
// Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor Rematerialization", 2021.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/core/names.h"

namespace plimsoll {

/// m: bytes of the storage, s: time since its last access, c0: time of the calls that made its tensors.
enum class DtrHeuristic : std::uint8_t {
  dtr,     ///< (c0 + c0 of every evicted storage reachable through evicted ones, up or down) / (m s)
  dtr_eq,  ///< the same with sums over union-find components that are never split
  local,   ///< c0 / (m s)
  lru,     ///< the last access
  size,    ///< 1 / m
  msps,    ///< (c0 + c0 of the evicted ancestors) / m
  random,
};

template <>
struct Names<DtrHeuristic> {
  static constexpr std::array all{std::pair{DtrHeuristic::dtr, "dtr"},      std::pair{DtrHeuristic::dtr_eq, "dtr_eq"},
                                  std::pair{DtrHeuristic::local, "local"},  std::pair{DtrHeuristic::lru, "lru"},
                                  std::pair{DtrHeuristic::size, "size"},    std::pair{DtrHeuristic::msps, "msps"},
                                  std::pair{DtrHeuristic::random, "random"}};
};

/// Whether the cost is divided by the time since the last access.
constexpr bool uses_staleness(DtrHeuristic h) {
  return h == DtrHeuristic::dtr || h == DtrHeuristic::dtr_eq || h == DtrHeuristic::local;
}

/// Whether the cost has the evicted storages on either side in it, each once.
constexpr bool counts_evicted(DtrHeuristic h) {
  return h == DtrHeuristic::dtr || h == DtrHeuristic::msps;
}

/// weight / (bytes * staleness) rounded once, to nearest even, as a quotient of whole numbers of any length is in
/// Python; infinite where the denominator is 0.
double eviction_cost(std::int64_t weight, std::int64_t bytes, std::int64_t staleness);

}  // namespace plimsoll
