#include "strategies/solve/limited_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <system_error>

#include "strategies/api/deadline.h"

namespace plimsoll {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0) fail("pipe");
  }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_writing() {
    close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Pages that this process may write and shares with no other, by Linux' own count, which RLIMIT_DATA is held against.
rlim_t data_bytes() {
  std::ifstream status("/proc/self/statm");
  std::uint64_t size = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  status >> size >> resident >> shared >> text >> library >> data;
  return data * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void write_all(int file, const void* data, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  while (size > 0) {
    const ssize_t written = write(file, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);
    at += written;
    size -= static_cast<std::size_t>(written);
  }
}

[[noreturn]] void be_the_child(const std::function<void(const SendMessage&)>& work, Bytes memory, int output,
                               pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  const rlim_t most = data_bytes() + static_cast<rlim_t>(memory.count);
  const rlimit limit{most, most}, no_core{0, 0};
  setrlimit(RLIMIT_DATA, &limit);
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_WRONLY);  // what this process has not printed yet is not the child's to print
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  try {
    work([output](std::span<const double> message) {
      const std::uint64_t count = message.size();
      write_all(output, &count, sizeof count);
      write_all(output, message.data(), message.size_bytes());
    });
    _exit(0);
  } catch (const std::exception&) {  // no memory, most likely: the parent sees that it did not finish
    _exit(1);
  }
}

/// Everything that comes until the other end is closed; false where the deadline comes first.
bool read_until(const Deadline& deadline, int file, std::vector<std::byte>& all) {
  std::array<std::byte, 65536> some;
  while (!deadline.passed()) {
    pollfd ready{file, POLLIN, 0};
    const int milliseconds = static_cast<int>(std::min(60'000.0, std::ceil(1000 * deadline.left())));
    if (poll(&ready, 1, milliseconds) <= 0) continue;  // late, or a signal
    const ssize_t count = read(file, some.data(), some.size());
    if (count == 0) return true;
    if (count > 0) all.insert(all.end(), some.begin(), some.begin() + count);
  }
  return false;
}

/// The complete messages at the head of the bytes.
std::vector<std::vector<double>> messages_in(std::span<const std::byte> bytes) {
  std::vector<std::vector<double>> messages;
  std::uint64_t count = 0;
  while (bytes.size() >= sizeof count) {
    std::memcpy(&count, bytes.data(), sizeof count);
    bytes = bytes.subspan(sizeof count);
    if (bytes.size() / sizeof(double) < count) break;
    std::vector<double>& message = messages.emplace_back(count);
    const std::span<const std::byte> numbers = bytes.first(count * sizeof(double));
    std::ranges::copy(numbers, std::as_writable_bytes(std::span(message)).begin());  // also of none
    bytes = bytes.subspan(numbers.size());
  }
  return messages;
}

}  // namespace

ProcessResult run_limited(const ProcessLimits& limits, const std::function<void(const SendMessage&)>& work) {
  const Deadline deadline(limits.seconds);
  Pipe pipe;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) be_the_child(work, limits.memory, pipe.writing(), parent);
  pipe.close_writing();
  std::vector<std::byte> all;
  const bool ended = read_until(deadline, pipe.reading(), all);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  using End = ProcessResult::End;
  const bool finished = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return {finished ? End::finished : ended ? End::died : End::out_of_time, messages_in(all)};
}

}  // namespace plimsoll
