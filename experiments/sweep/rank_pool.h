#pragma once
// A sweep over the processes that mpirun has started, on any machines: rank 0 hands out tasks and writes, the others
// answer, each in a worker process of its own (worker_pool.h). Where one of them dies, most MPIs end all: what had been
// answered is in the folder, and --resume goes on. An MPI that survives it says nothing of it, so that ranks tell now
// and then that they are there. The task of one that is silent is given to another.

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

  /// Sends the others home. Waits for them only where all are there.
  ~RankPool() override;

  /// False also where no other rank is left. A task that is given again may give a record twice.
  bool run(std::span<const Json> tasks, const PoolEvents&) override;

 private:
  struct Rank {
    std::optional<std::size_t> task;
    std::chrono::steady_clock::time_point heard;
    bool is_gone = false;  ///< what it says later is not listened to
  };

  void take(int from, const std::string& text, const PoolEvents&);
  void hand_out(std::span<const Json> tasks, const PoolEvents&);
  bool give_up_silent(const PoolEvents&);

  RankPlace place_;
  const Interruption& interruption_;
  std::vector<Rank> ranks_;              ///< the first is this one
  std::vector<std::size_t> to_do_ = {};  ///< tasks, the next one last
};

/// What every other rank does until rank 0 sends it home, or it is interrupted: the exit code.
int serve_rank(const Interruption&, TaskPool& own, const std::string& identity);

/// The same where what it was given is wrong: rank 0 says why.
int refuse_as_rank(const Interruption&, const std::string& why);

}  // namespace plimsoll
