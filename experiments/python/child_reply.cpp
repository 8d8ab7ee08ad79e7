#include "experiments/python/child_reply.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "experiments/sweep/worker_pool.h"

namespace plimsoll {
namespace {

using Size = std::uint64_t;

void write_all(int file, const char* data, std::size_t count) {
  while (count > 0) {
    const ssize_t written = write(file, data, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // nobody reads
    data += written;
    count -= static_cast<std::size_t>(written);
  }
}

/// The child, from its first breath: signals as a program has them, and memory as this one wants it.
[[noreturn]] void serve(int file, const std::function<std::string()>& task) {
  setpgid(0, 0);  // Ctrl-C reaches the parent, which passes it on
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGALRM, SIGHUP}) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  mallopt(M_MMAP_MAX, 0);  // as main() does
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const std::string reply = task();
  const Size size = reply.size();
  write_all(file, reinterpret_cast<const char*>(&size), sizeof size);
  write_all(file, reply.data(), reply.size());
  _exit(0);
}

bool is_whole(const std::string& received) {
  Size size = 0;
  if (received.size() < sizeof size) return false;
  std::memcpy(&size, received.data(), sizeof size);
  return received.size() >= sizeof size + size;
}

class Child {
 public:
  explicit Child(const std::function<std::string()>& task) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    input_ = Descriptor(ends[0]);
    const Descriptor output(ends[1]);
    process_ = fork();
    if (process_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (process_ == 0) serve(ends[1], task);
    setpgid(process_, process_);
  }
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Adds what has come within a tenth of a second; false: no more will.
  bool receive(std::string& received) {
    pollfd ready{input_.fd(), POLLIN, 0};
    const int found = poll(&ready, 1, 50);
    if (found == 0) return !has_ended();  // another child may hold the pipe open
    if (found < 0) return errno == EINTR;
    char block[65536];
    const ssize_t got = read(input_.fd(), block, sizeof block);
    if (got < 0) return errno == EINTR;
    received.append(block, static_cast<std::size_t>(got));
    return got > 0;
  }

  /// As Ctrl-C would, and for good where that does not help.
  void interrupt() {
    using namespace std::chrono;
    if (process_ > 0) kill(-process_, SIGINT);
    for (const auto until = steady_clock::now() + 500ms; steady_clock::now() < until && !has_ended();) {
      std::this_thread::sleep_for(5ms);
    }
    end(SIGKILL);
  }

  std::string how_it_ended() {
    end(SIGTERM);
    if (WIFSIGNALED(status_)) return "was ended by signal " + std::to_string(WTERMSIG(status_));
    return "ended with exit code " + std::to_string(WEXITSTATUS(status_));
  }

 private:
  bool has_ended() {
    if (process_ > 0 && waitpid(process_, &status_, WNOHANG) != 0) process_ = -1;
    return process_ < 0;
  }

  void end(int signal) {
    if (has_ended()) return;
    kill(-process_, signal);
    while (waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
  }

  Descriptor input_;
  pid_t process_ = -1;
  int status_ = 0;
};

}  // namespace

std::optional<std::string> reply_of_child(const std::function<std::string()>& task,
                                          const std::function<bool()>& goes_on) {
  Child child(task);
  std::string received;
  while (!is_whole(received)) {
    if (!goes_on()) {
      child.interrupt();
      return std::nullopt;
    }
    if (!child.receive(received) && !is_whole(received)) {
      throw std::runtime_error("the process that answers " + child.how_it_ended());
    }
  }
  return received.substr(sizeof(Size));
}

}  // namespace plimsoll
