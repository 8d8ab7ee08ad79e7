// SimGrid in this process. Maestro only, no actors: activities are made when they start. Every figure and trap behind
// this code is in sim/engine/README.md.

#include <simgrid/s4u.hpp>  // before the others: they do not compile alone

#include <xbt/log.h>

#include <csignal>
#include <memory>
#include <utility>

#include "sim/core/expects.h"
#include "sim/engine/simgrid/late/simgrid_loop.h"
#include "sim/engine/simgrid/late/simgrid_star.h"
#include "sim/engine/simgrid/late/versions.h"
#include "sim/engine/simgrid/simgrid_run.h"

/// SimGrid's clock, simgrid::kernel::EngineImpl::now_, which it has no function to set back. Null in versions that call
/// it otherwise.
extern double simgrid_clock __asm__("_ZN7simgrid6kernel10EngineImpl4now_E") __attribute__((weak));

namespace plimsoll {
namespace {

/// Keeps what is done with a signal, whatever happens in between.
class SignalKept {
 public:
  explicit SignalKept(int signal) : signal_(signal) { sigaction(signal, nullptr, &before_); }
  ~SignalKept() { sigaction(signal_, &before_, nullptr); }
  SignalKept(const SignalKept&) = delete;
  SignalKept& operator=(const SignalKept&) = delete;

 private:
  int signal_;
  struct sigaction before_ = {};
};

void prepare_simgrid() {
  if (sg4::Engine::has_instance()) return;
  const SignalKept interrupt(SIGINT), fault(SIGSEGV);
  xbt_log_control_set("xbt_cfg.thres:warning");
  static char name[] = "plimsoll";
  char* arguments[] = {name, nullptr};
  int count = 1;
  // Lives as long as the process: SimGrid cannot make a second one.
  [[maybe_unused]] static const auto* const engine = new sg4::Engine(&count, arguments);
  for (const char* option : {"network/model:CM02", "network/crosstraffic:0", no_tcp_window, work_precision}) {
    sg4::Engine::set_config(option);
  }
}

/// What SimGrid has one of in a process: a platform, and who is told what ends.
struct Simulations {
  std::unique_ptr<SimgridStar> star;
  SimgridLoop* running = nullptr;  ///< null after one that threw
};
Simulations& simulations() {
  static Simulations of_this_process;
  return of_this_process;
}

bool can_run(const Program& program) {
  const Simulations& all = simulations();
  return all.star == nullptr || (all.running != nullptr && &simgrid_clock != nullptr && all.star->is_of(program));
}

Timeline run_simgrid(const Program& program) {
  EXPECTS(can_run(program));
  prepare_simgrid();
  Simulations& all = simulations();
  if (all.star == nullptr) {
    all.star = std::make_unique<SimgridStar>(program);
    on_completion([&all](const sg4::Activity& activity) { all.running->end(activity); });
  } else {
    simgrid_clock = 0;
  }
  SimgridLoop loop(program, *all.star);
  all.running = &loop;
  Timeline timeline;
  try {
    timeline = std::move(loop).run();
  } catch (...) {
    all.running = nullptr;
    throw;
  }
  return timeline;
}

}  // namespace
}  // namespace plimsoll

extern "C" {
extern const plimsoll::SimgridRun plimsoll_simgrid;
const plimsoll::SimgridRun plimsoll_simgrid{&plimsoll::prepare_simgrid, &plimsoll::can_run, &plimsoll::run_simgrid};
}
