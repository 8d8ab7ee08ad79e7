#include "sim/engine/simgrid/isolated_run.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
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

/// Memory that parent and child both see: the child's timeline.
class SharedTimeline {
 public:
  explicit SharedTimeline(const Program& program)
      : steps_(program.step_count()),
        peaks_(program.resident.size()),
        size_(sizeof(Seconds) + steps_ * sizeof(Interval) + peaks_ * sizeof(MemoryPeak)) {
    void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_system_error("mmap");
    memory_ = static_cast<std::byte*>(memory);
  }
  ~SharedTimeline() { munmap(memory_, size_); }
  SharedTimeline(const SharedTimeline&) = delete;
  SharedTimeline& operator=(const SharedTimeline&) = delete;

  void write(const Timeline& timeline) {
    std::byte* at = memory_;
    at = put(at, &timeline.makespan, 1);
    at = put(at, timeline.peaks.data(), peaks_);
    put(at, timeline.steps.data(), steps_);
  }

  Timeline read() const {
    Timeline timeline;
    timeline.steps.resize(steps_);
    timeline.peaks.resize(peaks_);
    const std::byte* at = memory_;
    at = take(at, &timeline.makespan, 1);
    at = take(at, timeline.peaks.data(), peaks_);
    take(at, timeline.steps.data(), steps_);
    return timeline;
  }

 private:
  template <class T>
  static std::byte* put(std::byte* at, const T* items, std::size_t count) {
    if (count > 0) std::memcpy(at, items, count * sizeof(T));
    return at + count * sizeof(T);
  }

  template <class T>
  static const std::byte* take(const std::byte* at, T* items, std::size_t count) {
    if (count > 0) std::memcpy(items, at, count * sizeof(T));
    return at + count * sizeof(T);
  }

  std::size_t steps_, peaks_, size_;
  std::byte* memory_ = nullptr;
};

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

[[noreturn]] void be_the_child(const Program& program, SharedTimeline& result, const Messages& messages, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  messages.take_over_output();
  try {
    result.write(run_simgrid(program));
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

Timeline run_isolated(const Program& program) {
  SharedTimeline result(program);
  const Messages messages;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw_system_error("fork");
  if (child == 0) be_the_child(program, result, messages, parent);
  const int status = wait_for(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return result.read();
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) throw SimulationInterrupted("SimGrid simulation: interrupted");
  std::string what = "SimGrid simulation failed";
  if (WIFSIGNALED(status)) what += " with signal " + std::to_string(WTERMSIG(status));
  const std::string said = messages.text();
  throw EngineError(said.empty() ? what : what + ": " + said);
}

}  // namespace plimsoll
