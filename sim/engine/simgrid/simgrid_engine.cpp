// The only file that includes SimGrid. Maestro only, no actors: activities are made when they start. Every figure and
// trap behind this code is in sim/engine/README.md. Works with 3.32 and, by the macros below, 3.34 to 4.x.

#include "sim/engine/simgrid/simgrid_run.h"

#include <simgrid/s4u.hpp>  // before the others: they do not compile alone

#include <simgrid/version.h>
#include <xbt/log.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/dispatcher.h"

#define SIMGRID_AT_LEAST(major, minor) \
  (SIMGRID_VERSION_MAJOR > (major) || (SIMGRID_VERSION_MAJOR == (major) && SIMGRID_VERSION_MINOR >= (minor)))

namespace plimsoll {
namespace {

namespace sg4 = simgrid::s4u;
using simgrid::kernel::timer::Timer;

// What changed its name between versions.
#if SIMGRID_AT_LEAST(3, 34)
constexpr const char* no_tcp_window = "network/TCP-gamma:0";
constexpr const char* date_precision = "precision/timing:1e-12";
constexpr const char* work_precision = "precision/work-amount:1e-9";
void start(sg4::Activity& activity) {
  activity.start();
}
template <class Callback>
void on_completion(Callback callback) {
  sg4::Exec::on_completion_cb(callback);
  sg4::Comm::on_completion_cb(callback);
}
#else
constexpr const char* no_tcp_window = "network/TCP-gamma:1e30";
constexpr const char* date_precision = "surf/precision:1e-12";
constexpr const char* work_precision = "maxmin/precision:1e-9";
void start(sg4::Activity& activity) {
  activity.vetoable_start();
}
template <class Callback>
void on_completion(Callback callback) {
  sg4::Activity::on_completion_cb(callback);
}
#endif

#if SIMGRID_AT_LEAST(4, 0)
sg4::NetZone* make_zone(const std::string& name) {
  return sg4::Engine::get_instance()->get_netzone_root()->add_netzone_star(name);
}
sg4::Host* make_host(sg4::NetZone& zone, const std::string& name, const std::vector<double>& speeds) {
  return zone.add_host(name, speeds);
}
sg4::Link* make_link(sg4::NetZone& zone, const std::string& name, double bandwidth) {
  return zone.add_link(name, bandwidth);
}
#else
sg4::NetZone* make_zone(const std::string& name) {
  return sg4::create_star_zone(name);
}
sg4::Host* make_host(sg4::NetZone& zone, const std::string& name, const std::vector<double>& speeds) {
  return zone.create_host(name, speeds);
}
sg4::Link* make_link(sg4::NetZone& zone, const std::string& name, double bandwidth) {
  return zone.create_link(name, std::vector<double>{bandwidth});
}
#endif

/// From the host to itself.
void add_loop(sg4::NetZone& zone, sg4::Host& host, const std::vector<sg4::LinkInRoute>& links) {
#if SIMGRID_AT_LEAST(3, 35)
  zone.add_route(&host, &host, links, false);
#else
  zone.add_route(host.get_netpoint(), host.get_netpoint(), nullptr, nullptr, links, false);
#endif
}

/// The platform as SimGrid sees it. All that a flow needs is which links it crosses: each route is the way of a host at
/// the rim of a star to itself, which is the route that SimGrid finds fastest.
class Star {
 public:
  explicit Star(const Program& program) : zone_(make_zone("platform")) {
    for (std::uint32_t d = 0; d + 1 < program.devices.size(); ++d) add_device(program, d);
    std::vector<sg4::Link*> links;
    for (const double bandwidth : program.links) {
      links.push_back(make_link(*zone_, "link" + std::to_string(links.size()), bandwidth)->seal());
    }
    for (std::uint32_t r = 0; r + 1 < program.routes.size(); ++r) add_route(program, r, links);
    zone_->seal();
    sg4::Engine::get_instance()->seal_platform();
  }

  sg4::Host* kernels(std::uint32_t device) const { return kernels_[device]; }
  sg4::Host* delays(std::uint32_t device) const { return delays_[device]; }
  sg4::Host* route(std::uint32_t route) const { return routes_[route]; }

 private:
  /// Speed 1 means that flops are seconds; the other levels are pstates. One core a stream.
  void add_device(const Program& program, std::uint32_t device) {
    const std::span<const double> speeds = program.speeds_of(device);
    const auto [first_speed, streams, kernel_streams] = program.devices[device];
    kernels_.push_back(add_host("kernels", device, {speeds.begin(), speeds.end()}, kernel_streams));
    delays_.push_back(add_host("delays", device, {1.0}, streams));
  }

  sg4::Host* add_host(const char* what, std::uint32_t device, const std::vector<double>& speeds, std::uint32_t cores) {
    if (cores == 0) return nullptr;
    sg4::Host* host = make_host(*zone_, what + std::to_string(device), speeds);
    host->set_core_count(static_cast<int>(cores));
    host->seal();
    return host;
  }

  void add_route(const Program& program, std::uint32_t route, const std::vector<sg4::Link*>& links) {
    std::vector<sg4::LinkInRoute> crossed;
    for (const std::uint32_t link : program.links_of(route)) crossed.emplace_back(links[link]);
    if (crossed.empty()) {
      routes_.push_back(nullptr);
      return;
    }
    routes_.push_back(make_host(*zone_, "route" + std::to_string(route), {1.0}));
    add_loop(*zone_, *routes_.back(), crossed);
  }

  sg4::NetZone* zone_;
  std::vector<sg4::Host*> kernels_, delays_;  ///< per device; null where nothing runs there
  std::vector<sg4::Host*> routes_;            ///< null where no link of the route is limited
};

class SimgridLoop {
 public:
  explicit SimgridLoop(const Program& program)
      : program_(program), star_(program), dispatcher_(program, *this), running_(program.streams.size()) {}

  Timeline run() && {
    on_completion([this](const sg4::Activity& activity) { end(activity); });
    // Where no timer fires at a date, SimGrid looks for the next one before it sees the timer of the flush: as dear as
    // a date of its own. A timer that does nothing spares that.
    sg4::Engine::on_time_advance_cb([](double) {
      const double date = sg4::Engine::get_clock();
      if (Timer::next() != date) Timer::set(date, [] {});
    });
    dispatcher_.begin();
    sg4::Engine::get_instance()->run();
    return std::move(dispatcher_).result();
  }

  /// Latencies are ours to wait for: a link latency known to SimGrid would weigh the sharing of bandwidth.
  void begin(std::uint32_t id) {
    const ProgramStep& step = program_.steps[id];
    if (step.kind == StepClass::kernel) {
      execute(id, star_.kernels(device_of(step)));
    } else if (step.bytes == 0) {
      // A step may not end in a timer: timers come before the other ends of the same date.
      execute(id, star_.delays(device_of(step)));
    } else if (step.seconds > 0) {
      Timer::set(sg4::Engine::get_clock() + step.seconds, [this, id] { begin_flow(id); });
    } else {
      begin_flow(id);
    }
  }

  void set_level(std::uint32_t device, std::uint32_t level) {
    if (sg4::Host* host = star_.kernels(device)) host->set_pstate(level);
  }

 private:
  std::uint32_t device_of(const ProgramStep& step) const { return program_.streams[step.stream].device; }

  void execute(std::uint32_t id, sg4::Host* host) {
    const sg4::ExecPtr exec = sg4::Exec::init();
    exec->set_flops_amount(program_.steps[id].seconds)->set_host(host);
    begin_activity(id, *exec);
  }

  void begin_flow(std::uint32_t id) {
    const ProgramStep& step = program_.steps[id];
    const sg4::CommPtr comm = sg4::Comm::sendto_init(star_.route(step.route), star_.route(step.route));
    comm->set_payload_size(static_cast<std::uint64_t>(step.bytes));
    begin_activity(id, *comm);
  }

  template <class Activity>
  void begin_activity(std::uint32_t id, Activity& activity) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the step's number in SimGrid's pointer for its user; never followed
    activity.set_data(reinterpret_cast<void*>(std::uintptr_t{id} + 1));
    running_[program_.steps[id].stream] = &activity;
    start(activity);
  }

  /// The first end of a date arms a timer for the same date; SimGrid fires it when it has told all ends.
  void end(const sg4::Activity& activity) {
    const auto id = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data_of(activity)) - 1);
    ended_.push_back(std::move(running_[program_.steps[id].stream]));
    if (ended_.size() == 1) {
      const double date = sg4::Engine::get_clock();
      Timer::set(date, [this, date] {
        dispatcher_.flush(date);
        ended_.clear();
      });
    }
    dispatcher_.finish(id);
  }

  static void* data_of(const sg4::Activity& activity) { return activity.get_data<void>(); }

  const Program& program_;
  Star star_;
  Dispatcher<SimgridLoop> dispatcher_;
  std::vector<sg4::ActivityPtr> running_;  ///< per stream: SimGrid forgets an activity that nobody holds
  std::vector<sg4::ActivityPtr> ended_;    ///< may not be destroyed inside their own callback
};

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

}  // namespace

void prepare_simgrid() {
  if (sg4::Engine::has_instance()) return;
  const SignalKept interrupt(SIGINT), fault(SIGSEGV);
  xbt_log_control_set("xbt_cfg.thres:warning");
  static char name[] = "plimsoll";
  char* arguments[] = {name, nullptr};
  int count = 1;
  // Lives as long as the process: SimGrid cannot make a second one.
  [[maybe_unused]] static const auto* const engine = new sg4::Engine(&count, arguments);
  for (const char* option :
       {"network/model:CM02", "network/crosstraffic:0", no_tcp_window, date_precision, work_precision}) {
    sg4::Engine::set_config(option);
  }
}

Timeline run_simgrid(const Program& program) {
  prepare_simgrid();
  return SimgridLoop(program).run();
}

}  // namespace plimsoll
