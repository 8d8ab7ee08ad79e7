#pragma once
// Two numbers that say what placing a graph of ops can gain, and graphs scaled until they have them.

#include "traces/models/training_graph.h"

namespace plimsoll {

/// What it takes to send a value to another device: ParDNN's assumption for a DGX-2.
inline constexpr Seconds sending_latency{25e-6};
inline constexpr BytesPerSecond sending_bandwidth{130e9};

/// Every value that an op reads and another one has made is sent once more. Views and updates are left out.
struct GraphProportions {
  Seconds work;           ///< of all ops
  Seconds sending;        ///< of all values
  Seconds critical_path;  ///< the longest, values sent between all its ops
  std::size_t edges = 0;

  double parallelism() const { return work / critical_path; }  ///< DoP
  double communication() const { return sending / work; }      ///< CCR
};
GraphProportions proportions_of(const Graph&);

/// Scales all times until the communication is as wanted. Until the parallelism is, too, either ops that all of a layer
/// waits for take longer, or weights get larger; where neither is enough, as far as that goes.
Graph scaled_to(ProportionedGraph, double parallelism, double communication);

}  // namespace plimsoll
