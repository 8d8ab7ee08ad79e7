#pragma once
// What planners of orders know of the parts of a pipeline.

#include <cstdint>
#include <vector>

namespace plimsoll {

/// Times in seconds and bytes of one micro-batch, by part; plain training within each part.
struct PartCosts {
  std::vector<double> f, b, w;                       ///< of the pieces
  std::vector<double> sent;                          ///< time of a transfer from part g to g + 1; one less than parts
  std::vector<double> returned;                      ///< of its gradient, from g + 1 to g
  std::vector<std::int64_t> kept, kept_for_weights;  ///< after the forward, and after the backward until W

  std::size_t parts() const { return f.size(); }
};

/// Times as whole numbers, of which the largest has ten digits: sums that are equal on paper are equal then too, so
/// that a search finds the same order whatever the unit of the times.
PartCosts in_ticks(PartCosts);

}  // namespace plimsoll
