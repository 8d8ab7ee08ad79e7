#pragma once
// How a process that simulates begins, what it says, and how it ends.

#include <sys/types.h>

#include <string>

namespace plimsoll {

/// A nameless file that takes what a child prints, SimGrid's complaints included.
class Messages {
 public:
  Messages();
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void take_over_output() const;
  std::string text() const;

 private:
  int file_;
};

/// In the child: it ends with its parent and by any signal, and prints into the messages.
void begin_child(pid_t parent, const Messages&);

/// Waits for its end; the status of waitpid.
int wait_for(pid_t child);

/// Throws what ended it, unless it ended by itself with exit code 0: SimulationInterrupted or an EngineError.
void throw_if_failed(int status, const Messages&);

}  // namespace plimsoll
