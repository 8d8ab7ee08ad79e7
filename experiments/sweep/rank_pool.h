#pragma once
// A sweep over the processes that mpirun has started, on any machines: rank 0 hands out tasks and writes, the others
// answer, each in a worker process of its own (worker_pool.h). Where one of them dies, MPI ends all; what had been
// answered is in the folder, and --resume goes on.

#include <cstddef>
#include <optional>
#include <string>

#include "experiments/sweep/task_pool.h"
#include "experiments/sweep/worker_pool.h"

namespace plimsoll {

/// Where this process stands among those that were started together.
struct RankPlace {
  int rank = 0, size = 1;
};

/// As mpirun says it to what it starts (Open MPI and MPICH); unset: nobody has started several.
std::optional<RankPlace> place_among_ranks();

/// `identity`: what ranks must agree on before any of them answers: the experiment, its inputs and the build.
class RankPool final : public TaskPool {
 public:
  /// Of rank 0. Waits for all others. Throws InputError where one of them has something else to do, or has found what
  /// it was given wrong.
  RankPool(RankPlace, const Interruption&, const std::string& identity);

  /// Sends the others home.
  ~RankPool() override;

  bool run(std::span<const Json> tasks, const PoolEvents&) override;

 private:
  void take(int from, const std::string& text, const PoolEvents&);
  void hand_out(std::span<const Json> tasks, std::size_t& next, const PoolEvents&);

  RankPlace place_;
  const Interruption& interruption_;
  std::vector<std::optional<std::size_t>> tasks_of_;  ///< by rank
};

/// What every other rank does until rank 0 sends it home, or it is interrupted: the exit code.
int serve_rank(const Interruption&, TaskPool& own, const std::string& identity);

/// The same where what it was given is wrong: rank 0 says why.
int refuse_as_rank(const Interruption&, const std::string& why);

}  // namespace plimsoll
