#pragma once
// Processes that answer tasks: each takes one task at a time and replies with any number of records. Processes, not
// threads: the SimGrid engine forks for every simulation, and a task that crashes takes only its own process with it.

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sweep/task_pool.h"
#include "sim/core/units.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// A file descriptor that closes.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// While this lives, Ctrl-C and SIGTERM do not end the process but make `fd()` readable.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  int fd() const { return signals_.fd(); }
  bool asked() const;  ///< whether it has come
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t before_{};
  Descriptor signals_;
};

/// What one task may take; its worker is ended beyond it.
struct TaskLimits {
  std::optional<Seconds> timeout;  ///< wall time
  std::optional<Bytes> memory;     ///< of the worker's data
};

class WorkerPool final : public TaskPool {
 public:
  /// Forks at once; this process must not have threads.
  WorkerPool(std::size_t workers, const Interruption&, TaskWork, TaskLimits = {});

  /// Ends the workers, finished or not.
  ~WorkerPool() override;

  bool run(std::span<const Json> tasks, const PoolEvents&) override;

 private:
  struct Worker {
    pid_t process = -1;
    Descriptor socket;
    std::optional<std::size_t> task;
    std::string unread;                           ///< of a line that has not arrived whole
    std::chrono::steady_clock::time_point since;  ///< when the task was handed out
  };

  Worker start();
  [[noreturn]] void serve(int socket) const;
  static void hand_out(Worker&, std::size_t task, const Json&);
  bool receive(Worker&, const PoolEvents&) const;
  void take_line(Worker&, std::string_view text, const PoolEvents&) const;
  bool is_late(const Worker&) const;
  TaskFailure failure_of(int status, Bytes used, bool late) const;
  void bury(Worker&, const PoolEvents&);
  static int end(Worker&);

  const Interruption& interruption_;
  TaskWork work_;
  TaskLimits limits_;
  std::vector<Worker> workers_;
};

}  // namespace plimsoll
