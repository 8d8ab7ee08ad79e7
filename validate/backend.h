#pragma once
// What runs schedules: a backend makes a network's kernels, runs schedules of it, and measures its machine.

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>

#include "sim/model/problem.h"
#include "validate/link_pace.h"
#include "validate/measured_rates.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

/// The machine or this build cannot do what was asked: one line, exit code 1.
class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A network with a backend's kernels.
class RunnableNetwork {
 public:
  RunnableNetwork() = default;
  virtual ~RunnableNetwork() = default;
  RunnableNetwork(const RunnableNetwork&) = delete;
  RunnableNetwork& operator=(const RunnableNetwork&) = delete;

  /// Its ops state the workspaces that the kernels take, to the byte.
  virtual const Network& network() const = 0;

  /// `plan` is that of the schedule and of this network.
  virtual std::variant<Replayed, ReplayFailure> run(const Problem&, const Schedule&, const ReplayPlan& plan,
                                                    const ReplayOptions&) = 0;
};

/// Asked between measurements, and told which comes next; where it says no, measuring ends.
using Proceed = std::function<bool(const std::string& next)>;

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::unique_ptr<RunnableNetwork> prepared(Network) = 0;

  /// As all ranks of the problem's mesh run it, each on its shares; the problem's graph is one rank's of the network's.
  /// Or why they cannot.
  virtual std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared_on_ranks(Network, const Problem&) = 0;

  /// Nothing where `proceed` said no. The paces are those that copies are held to, where the backend does so.
  virtual std::optional<MachineRates> measure(LinkPace to_host, LinkPace to_device, std::size_t repetitions,
                                              const Proceed&) = 0;

  /// Seconds of an all_reduce, reduce_scatter or all_gather of a value of so many bytes, among the first ranks of this
  /// machine. Throws BackendError where it has not so many.
  virtual MeasuredRate exchange_seconds(CollectiveKind, std::uint32_t ranks, Bytes, std::size_t repetitions) = 0;

  virtual std::string device() const = 0;   ///< the hardware, as traces and platforms name it (sim/core/device_name.h)
  virtual std::string library() const = 0;  ///< what computes on it, and how
};

}  // namespace plimsoll
