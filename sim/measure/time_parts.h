#pragma once
// Why an iteration takes as long as it does: parts whose times sum to the makespan.
//   makespan = ideal + kernels + launches + recomputation + exchange by axis + updates + copies
//            + evaluation + imbalance + fill and drain + waits
// Each instant of each device that is used belongs to one part. The parts of the first line are means over these
// devices. `imbalance` is what the device with the most of them has beyond the mean; the two bubbles are the rest of
// the iteration on that device. So no part is negative, and without a pipeline there are no bubbles.

#include <string>
#include <vector>

#include "sim/core/names.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

enum class TimePartKind : std::uint8_t {
  ideal,          ///< operations of forwards and backwards at the device's peak, each once
  kernels,        ///< what these take beyond that and beyond launches: slower kernels
  launches,       ///< of kernels, and idle since the host has not issued the next one
  recomputation,  ///< ops that run again
  exchange,       ///< collectives along one axis beside which nothing is computed; `pipeline`: idle while a value comes
  updates,        ///< of parameters, on the device, or idle while its host makes them
  copies,         ///< idle while values go to hosts and disks or come back, and packing
  evaluation,     ///< between iterations, where the problem has one
  imbalance,      ///< of all these, what the busiest device has beyond the mean
  fill_and_drain,  ///< idle before its first backward, or after its last forward
  waits,           ///< idle between them: for other stages
};

struct TimePart {
  TimePartKind kind{};
  std::string axis;  ///< of an exchange: of the mesh, or `pipeline`; else empty
  Seconds time;

  friend bool operator==(const TimePart&, const TimePart&) = default;
};

/// In the order of the equation, exchanges by name of their axis; those that are 0 too, but for exchanges and
/// evaluations, which are there as far as the schedule has them.
std::vector<TimePart> time_parts(const Problem&, const Schedule&, const Timeline&);

/// An iteration on one of the devices that compute, for the makespan is also the sum of what is done there.
struct DeviceTime {
  DeviceId device;
  std::vector<TimePart> parts;  ///< as of all, without imbalance
  Seconds contention;           ///< of the time of its steps and of exposed ones what they take beyond what each takes
                                ///< alone: they share links, memories or hosts, or copies slow kernels. In no part
};

/// Ascending. The parts and the contention of each sum to the makespan; none is negative.
std::vector<DeviceTime> time_by_device(const Problem&, const Schedule&, const Timeline&);

template <>
struct Names<TimePartKind> {
  static constexpr std::array all{
      std::pair{TimePartKind::ideal, "ideal"},         std::pair{TimePartKind::kernels, "kernels"},
      std::pair{TimePartKind::launches, "launches"},   std::pair{TimePartKind::recomputation, "recomputation"},
      std::pair{TimePartKind::exchange, "exchange"},   std::pair{TimePartKind::updates, "updates"},
      std::pair{TimePartKind::copies, "copies"},       std::pair{TimePartKind::evaluation, "evaluation"},
      std::pair{TimePartKind::imbalance, "imbalance"}, std::pair{TimePartKind::fill_and_drain, "fill and drain"},
      std::pair{TimePartKind::waits, "waits"}};
};

}  // namespace plimsoll
