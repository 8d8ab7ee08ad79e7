#pragma once
// Whoever answers tasks: processes of this machine (worker_pool.h), or those that mpirun has started (rank_pool.h).

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "sim/io/json/json.h"

namespace plimsoll {

/// Does one task and hands every record to `reply`.
using TaskWork = std::function<void(const Json& task, const std::function<void(const Json&)>& reply)>;

/// Why a task has not been done, with the exit code it asks for.
struct TaskFailure {
  int exit_code = 0;
  std::string message;
  bool beyond_limits = false;
};

/// What is told while tasks run. `record` is one line of JSON.
struct PoolEvents {
  std::function<void(std::size_t task, std::string_view record)> record;
  std::function<void(std::size_t task, const TaskFailure&)> failed;
  std::function<void()> tick;  ///< a few times a second
  std::function<void(std::size_t task)> started = [](std::size_t) {};
  std::function<void(std::size_t task)> ended = [](std::size_t) {};  ///< whether done or failed
};

class TaskPool {
 public:
  TaskPool() = default;
  virtual ~TaskPool() = default;
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// Hands out the tasks in order and returns when all are done or have failed; false: interrupted, and what had
  /// arrived by then has been told.
  virtual bool run(std::span<const Json> tasks, const PoolEvents&) = 0;
};

}  // namespace plimsoll
