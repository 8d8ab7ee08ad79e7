#pragma once
// How far gradients that were made from approximations are from exact ones.

#include <map>
#include <string>

#include "sim/core/graph.h"
#include "validate/replayed.h"

namespace plimsoll {

struct GradientError {
  double relative = 0;  ///< |run - exact| / |exact|; infinite where the exact one is 0 and the other is not
  double cosine = 1;    ///< of the angle between them; 0 where one of them is 0 and the other is not
};

struct GradientErrors {
  std::map<std::string, GradientError> of;  ///< by name of the parameter gradient
  GradientError whole;                      ///< of all of them as one vector
};

/// Of the graph's parameter gradients, which both runs must have kept, in fp32.
GradientErrors gradient_errors(const Graph&, const Replayed& run, const Replayed& exact);

}  // namespace plimsoll
