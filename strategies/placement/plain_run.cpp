#include "strategies/placement/plain_run.h"

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/models/graph_tape.h"

namespace plimsoll {

PlainRun plain_run(const Problem& problem, const Partition& partition) {
  std::vector<Tape> tapes;
  for (const Part& part : partition.parts) tapes.push_back(graph_tape(problem.graph, part));
  const std::variant<Schedule, std::string> lowered = lower(problem, partition, tapes);
  if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
  const Timeline timeline = simulate_event(std::get<Schedule>(lowered), problem.platform);
  PlainRun run{timeline.makespan, {}};
  for (const Device& device : problem.platform.devices) run.peaks.push_back(timeline.peaks[device.memory.index].bytes);
  return run;
}

}  // namespace plimsoll
