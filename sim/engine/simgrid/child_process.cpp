#include "sim/engine/simgrid/child_process.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "sim/engine/engine_error.h"

namespace plimsoll {
namespace {

[[noreturn]] void throw_system_error(const char* what) {
  throw EngineError(std::string("SimGrid simulation: ") + what + ": " + std::generic_category().message(errno));
}

}  // namespace

Messages::Messages() : file_(memfd_create("plimsoll-simgrid", MFD_CLOEXEC)) {
  if (file_ < 0) throw_system_error("memfd_create");
}

Messages::~Messages() {
  close(file_);
}

void Messages::take_over_output() const {
  dup2(file_, STDOUT_FILENO);
  dup2(file_, STDERR_FILENO);
}

std::string Messages::text() const {
  std::string text(2000, '\0');
  const ssize_t count = pread(file_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void begin_child(pid_t parent, const Messages& messages) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  messages.take_over_output();
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_system_error("waitpid");
  }
  return status;
}

void throw_if_failed(int status, const Messages& messages) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) throw SimulationInterrupted("SimGrid simulation: interrupted");
  std::string what = "SimGrid simulation failed";
  if (WIFSIGNALED(status)) what += " with signal " + std::to_string(WTERMSIG(status));
  const std::string said = messages.text();
  throw EngineError(said.empty() ? what : what + ": " + said);
}

}  // namespace plimsoll
