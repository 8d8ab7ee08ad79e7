#pragma once
// Gradients of parameters on every rank of a mesh, by numbers, beside those of one device.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "sim/core/graph.h"
#include "sim/model/problem.h"
#include "tests/hybrid/rank_numbers.h"

namespace plimsoll {

class GradientsOfRanks {
 public:
  /// Of a model by formula, from numbers that are the same every time.
  explicit GradientsOfRanks(const std::string& model);

  /// Every rank's share of every gradient is that of one device. How many were compared.
  std::size_t check(const Problem& of_rank, std::string_view spec) const;

 private:
  std::string model_;
  Graph graph_;
  std::map<TensorId, NumberArray> given_, whole_;
};

}  // namespace plimsoll
