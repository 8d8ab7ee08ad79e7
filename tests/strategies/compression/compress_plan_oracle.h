#pragma once
// Every way in which compress_plan may keep the values of a small problem, one after the other: each saved value as it
// is, as a ReLU's signs, in 8, 4 or 2 bits, or made again; of chains also every row of forwards that rotor's class has;
// and with each of them whole values on the host, by exact search.

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/model/problem.h"

namespace plimsoll {

struct TriedWay {
  Bytes peak;
  Seconds makespan;
  double error = 0;
};

/// Nothing where there are no saved values, more than `most_values`, or more than `most_ways` ways.
std::optional<std::vector<TriedWay>> every_way(const Problem&, bool again, std::size_t most_values,
                                               std::size_t most_ways);

/// The least time within the budget and the error that a way has with whole values on the host; unset: none fits. And
/// what no way can beat with pieces of any size there.
struct BestWithHost {
  std::optional<Seconds> found;
  Seconds bound;
};
std::optional<BestWithHost> best_with_host(const Problem&, Bytes budget, double error, std::size_t most_ways);

}  // namespace plimsoll
