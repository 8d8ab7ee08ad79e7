#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>

#include "sim/engine/engine_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/child_process.h"
#include "sim/engine/simgrid/isolated_run.h"
#include "sim/engine/simgrid/shared_memory.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/engine/simgrid/simgrid_run.h"

namespace plimsoll {
namespace {

enum class ChildOutcome : std::uint8_t { timeline, error, interrupted };

constexpr std::size_t longest_message = 4096;

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

template <class AnyProgram, class Visit>
void for_each_array(AnyProgram& p, Visit visit) {
  visit(p.steps), visit(p.predecessors), visit(p.successors), visit(p.allocations), visit(p.frees);
  visit(p.streams), visit(p.routes), visit(p.route_links), visit(p.route_devices), visit(p.links);
  visit(p.devices), visit(p.speeds), visit(p.resident);
}

constexpr std::size_t arrays = 13;

/// What goes to the server: the lengths of the program that lies in the shared memory.
struct Request {
  std::size_t size = 0;  ///< of the shared memory, enough for the program and for its timeline
  std::array<std::size_t, arrays> lengths{};
};

/// What comes back: a timeline, or `message_size` characters, in the shared memory.
struct Reply {
  ChildOutcome outcome = ChildOutcome::timeline;
  std::size_t message_size = 0;
};

Request write_program(const Program& program, SharedMemory& memory) {
  Request request;
  std::size_t at = 0;
  for_each_array(program, [&](const auto& list) {
    request.lengths[at++] = list.size();
    request.size += list.size() * sizeof list[0];
  });
  request.size = std::max(request.size, size_of_timeline(program.step_count(), program.resident.size()));
  memory.fit(request.size);
  MemoryWriter writer(memory.data());
  for_each_array(program, [&](const auto& list) { writer.put(list.data(), list.size()); });
  return request;
}

/// Into arrays that the last program may have left.
void read_program(const Request& request, SharedMemory& memory, Program& program) {
  memory.fit(request.size);
  MemoryReader reader(memory.data());
  std::size_t at = 0;
  for_each_array(program, [&](auto& list) {
    list.resize(request.lengths[at++]);
    reader.take(list.data(), list.size());
  });
}

/// The next request, which stays to be received.
Request look_at_request(int socket) {
  Request request;
  while (true) {
    const ssize_t seen = ::recv(socket, &request, sizeof request, MSG_WAITALL | MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen != sizeof request) throw Closed{};
    return request;
  }
}

/// Answers one request after the other, as long as this process can: SimGrid has one platform a process. A request is
/// taken off the socket once it is answered; any other is for the next process.
[[noreturn]] void be_the_child(int socket, SharedMemory& memory) {
  try {
    Program program;
    while (true) {
      const Request request = look_at_request(socket);
      read_program(request, memory, program);
      if (!simgrid().can_run(program)) _exit(0);
      write_timeline(simgrid().run(program), memory);
      Request answered;
      receive_all(socket, &answered, sizeof answered);
      const Reply reply;
      send_all(socket, &reply, sizeof reply);
    }
  } catch (const Closed&) {
    _exit(0);
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "%s\n", error.what());
  }
  _exit(1);
}

/// In place of a child that ended before it had answered.
void reply_with_failure(int socket, SharedMemory& memory, ChildOutcome outcome, std::string message) {
  Request unanswered;
  receive_all(socket, &unanswered, sizeof unanswered);
  memory.fit(unanswered.size);
  message.resize(std::min(message.size(), longest_message));
  MemoryWriter(memory.data()).put(message.data(), message.size());
  const Reply reply{outcome, message.size()};
  send_all(socket, &reply, sizeof reply);
}

[[noreturn]] void be_the_server(int socket, SharedMemory& memory) {
  try {
    simgrid().prepare();
    std::signal(SIGINT, SIG_IGN);
    const pid_t server = getpid();
    while (true) {
      look_at_request(socket);
      try {
        const Messages messages;
        const pid_t child = fork();
        if (child < 0) throw EngineError("SimGrid simulation: fork: " + std::generic_category().message(errno));
        if (child == 0) {
          begin_child(server, messages);
          be_the_child(socket, memory);
        }
        throw_if_failed(wait_for(child), messages);
      } catch (const SimulationInterrupted& interrupted) {
        reply_with_failure(socket, memory, ChildOutcome::interrupted, interrupted.what());
      } catch (const EngineError& failure) {
        reply_with_failure(socket, memory, ChildOutcome::error, failure.what());
      }
    }
  } catch (const Closed&) {
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

}  // namespace

SimgridForkserver::SimgridForkserver() : memory_(std::make_unique<SharedMemory>()) {
  simgrid();  // what is missing is told here, not by a server that is gone
  memory_->fit(longest_message);
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
    be_the_server(ends[1], *memory_);
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
  if (!is_anything_shared(program)) return simulate_event(program);
  const std::lock_guard lock(one_at_a_time_);
  const Request request = write_program(program, *memory_);
  send_all(socket_, &request, sizeof request);
  Reply reply;
  receive_all(socket_, &reply, sizeof reply);
  if (reply.outcome == ChildOutcome::timeline) {
    return read_timeline(*memory_, program.step_count(), program.resident.size());
  }
  std::string message(reply.message_size, ' ');
  MemoryReader(memory_->data()).take(message.data(), message.size());
  if (reply.outcome == ChildOutcome::interrupted) throw SimulationInterrupted(message);
  throw EngineError(message);
} catch (const Closed&) {
  throw EngineError("SimGrid server: the process is gone");
}

Timeline simulate_simgrid(const Schedule& schedule, const Platform& platform) {
  const Program program = flatten(schedule, platform);
  if (!is_anything_shared(program)) return simulate_event(program);
  SharedMemory memory;
  run_isolated(program, memory);
  return read_timeline(memory, program.step_count(), program.resident.size());
}

}  // namespace plimsoll
