#pragma once
// How far gradients that were made from approximations are from exact ones, and how far those of other batches are.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

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

/// Of one gradient, or of all as one vector, over runs of the same batch with other seeds and over other batches.
struct MeasuredError {
  GradientError mean;    ///< of a run, over the runs
  double deviation = 0;  ///< of the runs' relative errors; 0 of one run
  double bias = 0;       ///< |mean gradient of the runs - exact| / |exact|: of unbiased runs about mean / sqrt(runs)
  GradientError noise;   ///< of the exact gradient of another batch, over other batches
};

struct MeasuredErrors {
  std::size_t runs = 0, batches = 0;
  std::map<std::string, MeasuredError> of = {};
  MeasuredError whole = {};
};

/// Takes runs one after the other, so that one is in memory at a time.
class ErrorMeter {
 public:
  ErrorMeter(const Graph&, const Replayed& exact);

  void add_run(const Replayed&);    ///< of the same batch, made from approximations
  void add_batch(const Replayed&);  ///< exact, of another batch

  /// At least one run and one batch must have been added.
  MeasuredErrors errors() const;

 private:
  using Values = std::map<std::string, std::vector<float>>;  // by gradient

  const Graph& graph_;
  Values exact_;
  std::map<std::string, std::vector<double>> sums_;  // of the runs
  std::vector<GradientErrors> runs_, batches_;
};

}  // namespace plimsoll
