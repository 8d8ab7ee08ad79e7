#pragma once
// One simulation by SimGrid, in this process.

#include <simgrid/s4u.hpp>  // before the others: they do not compile alone

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/Model.hpp>

#include <cstdint>
#include <vector>

#include "sim/engine/dispatcher.h"
#include "sim/engine/event_tree.h"
#include "sim/engine/program.h"
#include "sim/engine/simgrid/late/simgrid_star.h"

namespace plimsoll {

/// What can share or be slowed down is an activity of SimGrid's. What takes a known time, latencies included, is a date
/// in a tree of ours. Before the date at which SimGrid has the next end to tell, those dates need no SimGrid: the loop
/// runs ahead of SimGrid's clock until a step wants something of it, and has that wait for its date by a timer.
class SimgridLoop {
 public:
  SimgridLoop(const Program&, const SimgridStar&);

  Timeline run() &&;

  /// For the dispatcher: a step begins, a device's kernels have another speed.
  void begin(std::uint32_t step);
  void set_level(std::uint32_t device, std::uint32_t level);

  /// An activity of SimGrid's has ended.
  void end(const sg4::Activity&);

 private:
  using Model = simgrid::kernel::resource::Model;
  using Timer = simgrid::kernel::timer::Timer;

  bool all_are_told() const;
  void come_to(double date);
  void run_ahead();
  void take_known();
  void begin_flows();
  template <class Activity>
  void begin_activity(std::uint32_t stream, Activity&);
  double next_end_of_simgrid() const;
  double next_date() const;
  void arm();

  const Program& program_;
  const SimgridStar& star_;
  Dispatcher<SimgridLoop> dispatcher_;
  const std::vector<Model*> models_ = sg4::Engine::get_instance()->get_all_models();
  EventTree known_;                         ///< ends of steps and of latencies
  std::vector<std::uint32_t> running_;      ///< per stream: its step
  std::vector<std::uint32_t> due_;          ///< streams
  std::vector<std::uint32_t> flows_;        ///< steps whose bytes begin to flow at `now_`
  std::vector<sg4::ActivityPtr> activity_;  ///< per stream: SimGrid forgets an activity that nobody holds
  std::vector<sg4::ActivityPtr> ended_;     ///< last: they may not be destroyed inside their own callback
  Timer* timer_ = nullptr;
  double precise_until_ = 1e-12;  ///< its clock, by the precision that SimGrid has; no step is as short
  std::uint32_t activities_ = 0;  ///< of SimGrid's
  bool runs_ahead_ = true;        ///< not where SimGrid slows kernels down
  bool some_ended_ = false;       ///< at `now_`
  double now_ = 0;
};

}  // namespace plimsoll
