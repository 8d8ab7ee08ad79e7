#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include "sim/engine/engine_error.h"
#include "sim/engine/simgrid/isolated_run.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/engine/simgrid/simgrid_run.h"

namespace plimsoll {
namespace {

enum class Outcome : std::uint8_t { timeline, error, interrupted };

/// The other end of the socket is gone.
struct Closed {};

void send_all(int socket, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw Closed{};
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t received = ::recv(socket, at, size, MSG_WAITALL);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) throw Closed{};
    at += received;
    size -= static_cast<std::size_t>(received);
  }
}

template <class T>
void send_value(int socket, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  send_all(socket, &value, sizeof value);
}

template <class T>
T receive_value(int socket) {
  T value;
  receive_all(socket, &value, sizeof value);
  return value;
}

/// Vectors and strings of plain values.
template <class List>
void send_list(int socket, const List& list) {
  static_assert(std::is_trivially_copyable_v<typename List::value_type>);
  send_value(socket, std::uint64_t{list.size()});
  send_all(socket, list.data(), list.size() * sizeof(typename List::value_type));
}

template <class List>
void receive_list(int socket, List& list) {
  list.resize(receive_value<std::uint64_t>(socket));
  receive_all(socket, list.data(), list.size() * sizeof(typename List::value_type));
}

template <class AnyProgram, class Visit>
void for_each_array(AnyProgram& p, Visit visit) {
  visit(p.steps), visit(p.predecessors), visit(p.successors), visit(p.allocations), visit(p.frees);
  visit(p.streams), visit(p.routes), visit(p.route_links), visit(p.route_devices), visit(p.links);
  visit(p.devices), visit(p.speeds), visit(p.resident);
}

void answer(int socket, const Program& program) {
  std::optional<Timeline> timeline;
  Outcome outcome = Outcome::timeline;
  std::string error;
  try {
    timeline = run_isolated(program);
  } catch (const SimulationInterrupted& interrupted) {
    outcome = Outcome::interrupted;
    error = interrupted.what();
  } catch (const std::exception& failure) {
    outcome = Outcome::error;
    error = failure.what();
  }
  send_value(socket, outcome);
  if (!timeline) return send_list(socket, error);
  send_value(socket, timeline->makespan);
  send_list(socket, timeline->steps);
  send_list(socket, timeline->peaks);
}

[[noreturn]] void be_the_server(int socket) {
  try {
    prepare_simgrid();
    std::signal(SIGINT, SIG_IGN);
    while (true) {
      Program program;
      for_each_array(program, [&](auto& list) { receive_list(socket, list); });
      answer(socket, program);
    }
  } catch (const Closed&) {
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

}  // namespace

SimgridForkserver::SimgridForkserver() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw EngineError("SimGrid server: socketpair: " + std::generic_category().message(errno));
  }
  server_ = fork();
  if (server_ < 0) {
    const std::string reason = std::generic_category().message(errno);
    close(ends[0]);
    close(ends[1]);
    throw EngineError("SimGrid server: fork: " + reason);
  }
  if (server_ == 0) {
    close(ends[0]);
    be_the_server(ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

SimgridForkserver::~SimgridForkserver() {
  shutdown(socket_, SHUT_RDWR);  // reaches the server even while other processes have inherited our end
  close(socket_);
  while (waitpid(server_, nullptr, 0) < 0 && errno == EINTR) continue;
}

Timeline SimgridForkserver::simulate(const Schedule& schedule, const Platform& platform) {
  return simulate(flatten(schedule, platform));
}

Timeline SimgridForkserver::simulate(const Program& program) try {
  const std::lock_guard lock(one_at_a_time_);
  for_each_array(program, [&](const auto& list) { send_list(socket_, list); });
  const auto outcome = receive_value<Outcome>(socket_);
  if (outcome == Outcome::timeline) {
    Timeline timeline;
    timeline.makespan = receive_value<Seconds>(socket_);
    receive_list(socket_, timeline.steps);
    receive_list(socket_, timeline.peaks);
    return timeline;
  }
  std::string error;
  receive_list(socket_, error);
  if (outcome == Outcome::interrupted) throw SimulationInterrupted(error);
  throw EngineError(error);
} catch (const Closed&) {
  throw EngineError("SimGrid server: the process is gone");
}

Timeline simulate_simgrid(const Schedule& schedule, const Platform& platform) {
  return run_isolated(flatten(schedule, platform));
}

}  // namespace plimsoll
