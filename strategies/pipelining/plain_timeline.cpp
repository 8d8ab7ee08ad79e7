#include "strategies/pipelining/plain_timeline.h"

#include <algorithm>
#include <vector>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/models/chain_pass.h"

namespace plimsoll {

Timeline plain_timeline(const Problem& problem, const Partition& partition) {
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < partition.parts.size(); ++p) {
    tapes.push_back(plain_tape({problem, partition, id_at<PartId>(p)}));
  }
  const auto schedule = lower(problem, partition, tapes);
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  return simulate_event(std::get<Schedule>(schedule), problem.platform);
}

Bytes plain_peak(const Problem& problem, const Partition& partition) {
  const Timeline timeline = plain_timeline(problem, partition);
  Bytes peak;
  for (const Device& device : problem.platform.devices) {
    peak = std::max(peak, timeline.peaks[device.memory.index].bytes);
  }
  return peak;
}

}  // namespace plimsoll
