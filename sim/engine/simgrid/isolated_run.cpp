#include "sim/engine/simgrid/isolated_run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>

#include "sim/engine/engine_error.h"
#include "sim/engine/simgrid/child_process.h"
#include "sim/engine/simgrid/simgrid_run.h"

namespace plimsoll {
namespace {

[[noreturn]] void be_the_child(const Program& program, SharedMemory& result, const Messages& messages, pid_t parent) {
  begin_child(parent, messages);
  try {
    write_timeline(simgrid().run(program), result);
    _exit(0);
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "%s\n", error.what());
  }
  _exit(1);
}

}  // namespace

void write_timeline(const Timeline& timeline, SharedMemory& memory) {
  MemoryWriter writer(memory.data());
  writer.put(&timeline.makespan, 1);
  writer.put(timeline.peaks.data(), timeline.peaks.size());
  writer.put(timeline.steps.data(), timeline.steps.size());
}

void run_isolated(const Program& program, SharedMemory& result) {
  result.fit(size_of_timeline(program.step_count(), program.resident.size()));
  simgrid();  // loaded once, before the fork
  const Messages messages;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw EngineError("SimGrid simulation: fork: " + std::generic_category().message(errno));
  if (child == 0) be_the_child(program, result, messages, parent);
  throw_if_failed(wait_for(child), messages);
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
