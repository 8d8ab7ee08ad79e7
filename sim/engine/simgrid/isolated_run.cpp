#include "sim/engine/simgrid/isolated_run.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>

#include "sim/engine/engine_error.h"
#include "sim/engine/simgrid/simgrid_run.h"

namespace plimsoll {
namespace {

[[noreturn]] void throw_system_error(const char* what) {
  throw EngineError(std::string("SimGrid simulation: ") + what + ": " + std::generic_category().message(errno));
}

void write_timeline(const Timeline& timeline, SharedMemory& memory) {
  MemoryWriter writer(memory.data());
  writer.put(&timeline.makespan, 1);
  writer.put(timeline.peaks.data(), timeline.peaks.size());
  writer.put(timeline.steps.data(), timeline.steps.size());
}

/// A nameless file that takes what the child prints, SimGrid's complaints included.
class Messages {
 public:
  Messages() : file_(memfd_create("plimsoll-simgrid", MFD_CLOEXEC)) {
    if (file_ < 0) throw_system_error("memfd_create");
  }
  ~Messages() { close(file_); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void take_over_output() const {
    dup2(file_, STDOUT_FILENO);
    dup2(file_, STDERR_FILENO);
  }

  std::string text() const {
    std::string text(2000, '\0');
    const ssize_t count = pread(file_, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

 private:
  int file_;
};

[[noreturn]] void be_the_child(const Program& program, SharedMemory& result, const Messages& messages, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  messages.take_over_output();
  try {
    write_timeline(run_simgrid(program), result);
    _exit(0);
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "%s\n", error.what());
  }
  _exit(1);
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_system_error("waitpid");
  }
  return status;
}

}  // namespace

void run_isolated(const Program& program, SharedMemory& result) {
  result.fit(size_of_timeline(program.step_count(), program.resident.size()));
  const Messages messages;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw_system_error("fork");
  if (child == 0) be_the_child(program, result, messages, parent);
  const int status = wait_for(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) throw SimulationInterrupted("SimGrid simulation: interrupted");
  std::string what = "SimGrid simulation failed";
  if (WIFSIGNALED(status)) what += " with signal " + std::to_string(WTERMSIG(status));
  const std::string said = messages.text();
  throw EngineError(said.empty() ? what : what + ": " + said);
}

std::size_t size_of_timeline(std::size_t steps, std::size_t memories) {
  return sizeof(Seconds) + memories * sizeof(MemoryPeak) + steps * sizeof(Interval);
}

Timeline read_timeline(const SharedMemory& memory, std::size_t steps, std::size_t memories) {
  Timeline timeline;
  timeline.peaks.resize(memories);
  timeline.steps.resize(steps);
  MemoryReader reader(memory.data());
  reader.take(&timeline.makespan, 1);
  reader.take(timeline.peaks.data(), memories);
  reader.take(timeline.steps.data(), steps);
  return timeline;
}

}  // namespace plimsoll
