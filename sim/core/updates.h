#pragma once
// When parameters are updated, and which version of them a micro-batch reads. Version v of a parameter is its value
// after v updates.

#include <cstdint>

namespace plimsoll {

enum class Versions : std::uint8_t {
  synchronous,     ///< one update, after all micro-batches: all of them read version 0
  stashed,         ///< a micro-batch reads the newest version that its forward finds, in its backward too
  double_buffered  ///< the micro-batches of update u read version u - 1, the first ones version 0
};

struct Updates {
  Versions versions = Versions::synchronous;
  std::uint32_t every = 0;  ///< so many micro-batches make an update; 0: synchronous, all of them

  bool are_synchronous() const { return versions == Versions::synchronous; }
  friend bool operator==(const Updates&, const Updates&) = default;
};

}  // namespace plimsoll
