#pragma once
// A schedule repeated on the CPU, step after step of training: parameters, running statistics and optimizers' states go
// from one to the next.

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sim/model/problem.h"
#include "validate/backend.h"
#include "validate/cpu/block_pool.h"
#include "validate/cpu/cpu_network.h"
#include "validate/labelled_rows.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

class Trainee {
 public:
  /// Begins with the initial values of that seed. What can't be repeated or run is said before anything runs.
  static std::variant<Trainee, ReplayFailure> make(Problem, Schedule, Network, std::uint64_t seed);

  /// One iteration of the schedule; the sums over the rows of the batch as its forward saw them.
  std::variant<Score, ReplayFailure> step(const Batch&, const UpdateStep&, const Chance&);

  /// With the parameters as they are.
  Score infer(const LabelledRows&) const;

  /// Parameters, running statistics and states, by name.
  const std::map<std::string, std::vector<std::byte>>& values() const { return values_; }
  const Problem& problem() const { return problem_; }
  const Schedule& schedule() const { return schedule_; }
  const Network& network() const { return cpu_.network; }  ///< whole, also where ranks have shares

 private:
  Trainee(Problem, Schedule, CpuNetwork, std::unique_ptr<BlockPool>, std::unique_ptr<RunnableNetwork> on_ranks,
          ReplayPlan, std::uint64_t seed);

  Problem problem_;
  Schedule schedule_;
  CpuNetwork cpu_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<RunnableNetwork> on_ranks_;  ///< of a problem with a mesh; else null
  ReplayPlan plan_;
  std::map<std::string, std::vector<std::byte>> values_;
};

}  // namespace plimsoll
