#include "experiments/sweep/worker_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

#include "experiments/study/exit_code.h"
#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

// A reply is a line that begins with what it is.
constexpr char record_mark = 'R', done_mark = 'D', failure_mark = 'F';

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string line(char mark, const Json& json) {
  return mark + json_text(json) + "\n";
}

std::string failure_line(int exit_code, const char* message) {
  return line(failure_mark, Json{{"exit_code", exit_code}, {"message", message}});
}

/// Reads one line; nothing when the other end is gone.
std::optional<std::string> read_line(int socket, std::string& unread) {
  for (;;) {
    if (const std::size_t end = unread.find('\n'); end != std::string::npos) {
      std::string whole = unread.substr(0, end);
      unread.erase(0, end + 1);
      return whole;
    }
    char block[65536];
    const ssize_t got = recv(socket, block, sizeof block, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    unread.append(block, static_cast<std::size_t>(got));
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

TaskFailure out_of_memory(Bytes limit) {
  return {4, fmt::format("stopped: needed more than its memory limit of {}", format_bytes(limit)), true};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Interruption::Interruption() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (sigprocmask(SIG_BLOCK, &signals, &before_) != 0) fail("sigprocmask");
  signals_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.fd() < 0) fail("signalfd");
}

Interruption::~Interruption() {
  signalfd_siginfo taken;  // what is still pending has been seen
  while (read(signals_.fd(), &taken, sizeof taken) > 0) {
  }
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

bool Interruption::asked() const {
  pollfd signals{signals_.fd(), POLLIN, 0};
  return poll(&signals, 1, 0) > 0;
}

WorkerPool::WorkerPool(std::size_t workers, const Interruption& interruption, TaskWork work, TaskLimits limits)
    : interruption_(interruption), work_(std::move(work)), limits_(limits) {
  EXPECTS(workers >= 1);
  for (std::size_t w = 0; w < workers; ++w) workers_.push_back(start());
}

WorkerPool::~WorkerPool() {
  for (Worker& worker : workers_) end(worker);
}

WorkerPool::Worker WorkerPool::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  Worker worker;
  worker.socket = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  worker.process = fork();
  if (worker.process < 0) fail("fork");
  if (worker.process > 0) {
    setpgid(worker.process, worker.process);
    return worker;
  }
  // The worker, in a group of its own: Ctrl-C reaches this process only, and what the worker forks ends with it.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  close(ends[0]);
  close(interruption_.fd());
  for (const Worker& other : workers_) close(other.socket.fd());
  sigprocmask(SIG_SETMASK, &interruption_.mask_before(), nullptr);
  if (limits_.memory) {
    rlimit data{};  // no more than the system grants already
    if (getrlimit(RLIMIT_DATA, &data) != 0) _exit(1);
    data.rlim_max = std::min(data.rlim_max, static_cast<rlim_t>(limits_.memory->count));
    data.rlim_cur = data.rlim_max;
    if (setrlimit(RLIMIT_DATA, &data) != 0) _exit(1);
  }
  serve(ends[1]);
}

void WorkerPool::serve(int socket) const {
  std::string unread;
  while (const std::optional<std::string> task = read_line(socket, unread)) {
    std::string end = line(done_mark, nullptr);
    try {
      work_(Json::parse(*task), [&](const Json& record) {
        if (!send_all(socket, line(record_mark, record))) _exit(1);
      });
    } catch (const InputError& error) {
      end = failure_line(2, error.what());
    } catch (const std::bad_alloc&) {
      end = failure_line(4, "not enough memory");
    } catch (const std::system_error& error) {  // no process, no shared memory to be had
      end = failure_line(4, error.what());
    } catch (const std::exception& error) {
      end = failure_line(3, error.what());
    }
    if (!send_all(socket, end)) break;
  }
  _exit(0);  // not exit(): what the parent registered is the parent's
}

int WorkerPool::end(Worker& worker) {
  if (worker.process < 0) return 0;
  kill(-worker.process, SIGKILL);
  int status = 0;
  while (waitpid(worker.process, &status, 0) < 0 && errno == EINTR) {
  }
  worker.process = -1;
  return status;
}

void WorkerPool::hand_out(Worker& worker, std::size_t task, const Json& json) {
  worker.task = task;
  worker.since = std::chrono::steady_clock::now();
  send_all(worker.socket.fd(), json_text(json) + "\n");  // a worker that is gone is noticed when it is read from
}

bool WorkerPool::is_late(const Worker& worker) const {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - worker.since;
  return worker.task && limits_.timeout && taken.count() > limits_.timeout->value;
}

/// What to say of a task whose process has ended.
TaskFailure WorkerPool::failure_of(int status, Bytes used, bool late) const {
  if (late) {
    return {4, fmt::format("stopped: took longer than its timeout of {}", format_seconds(*limits_.timeout)), true};
  }
  // What cannot allocate may also end by a signal; then it had most of what it might have.
  constexpr double most = 0.75;
  const bool was_full =
      limits_.memory && static_cast<double>(used.count) >= most * static_cast<double>(limits_.memory->count);
  if (WIFSIGNALED(status) && was_full) return out_of_memory(*limits_.memory);
  return {3, "the process that worked on it " + how_it_ended(status)};
}

void WorkerPool::take_line(Worker& worker, std::string_view text, const PoolEvents& events) const {
  EXPECTS(!text.empty() && worker.task.has_value());
  const std::string_view body = text.substr(1);
  if (text[0] == record_mark) {
    events.record(*worker.task, body);
    return;
  }
  const std::size_t task = *std::exchange(worker.task, std::nullopt);
  events.ended(task);
  if (text[0] == done_mark) return;
  EXPECTS(text[0] == failure_mark);
  const Json failure = Json::parse(body);
  if (failure.at("exit_code") == exit_no_room && limits_.memory)
    return events.failed(task, out_of_memory(*limits_.memory));
  events.failed(task, {failure.at("exit_code"), failure.at("message")});
}

bool WorkerPool::receive(Worker& worker, const PoolEvents& events) const {
  char block[65536];
  for (;;) {
    const ssize_t got = recv(worker.socket.fd(), block, sizeof block, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    worker.unread.append(block, static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = worker.unread.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take_line(worker, std::string_view(worker.unread).substr(begin, end - begin), events);
    }
    worker.unread.erase(0, begin);
  }
}

/// A worker that ended by itself fails its task; another takes its place.
void WorkerPool::bury(Worker& worker, const PoolEvents& events) {
  const bool late = is_late(worker);
  if (late) kill(-worker.process, SIGKILL);
  int status = 0;
  rusage usage{};
  while (wait4(worker.process, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  kill(-worker.process, SIGKILL);
  worker.process = -1;
  if (worker.task) {
    events.ended(*worker.task);
    events.failed(*worker.task, failure_of(status, Bytes{usage.ru_maxrss * 1024}, late));
  }
  worker.socket = Descriptor();
  worker = start();
}

bool WorkerPool::run(std::span<const Json> tasks, const PoolEvents& events) {
  constexpr int tick_ms = 200;
  std::size_t next = 0;
  for (;;) {
    std::vector<pollfd> watched{{interruption_.fd(), POLLIN, 0}};
    bool busy = false;
    for (Worker& worker : workers_) {
      if (!worker.task && next < tasks.size()) {
        hand_out(worker, next, tasks[next]);
        events.started(next++);
      }
      busy |= worker.task.has_value();
      watched.push_back({worker.socket.fd(), POLLIN, 0});
    }
    if (!busy) return true;
    if (poll(watched.data(), watched.size(), tick_ms) < 0 && errno != EINTR) fail("poll");
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const bool is_there = watched[w + 1].revents == 0 || receive(workers_[w], events);
      if (!is_there || is_late(workers_[w])) bury(workers_[w], events);
    }
    if (watched[0].revents != 0) return false;
    events.tick();
  }
}

}  // namespace plimsoll
