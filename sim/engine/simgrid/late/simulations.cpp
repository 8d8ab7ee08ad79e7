// SimGrid in this process. Maestro only, no actors: activities are made when they start. Every figure and trap behind
// this code is in sim/engine/README.md.

#include <simgrid/s4u.hpp>  // before the others: they do not compile alone

#include <xbt/log.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/Model.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/engine/dispatcher.h"
#include "sim/engine/event_tree.h"
#include "sim/engine/program.h"
#include "sim/engine/simgrid/late/versions.h"
#include "sim/engine/simgrid/simgrid_run.h"

/// SimGrid's clock, simgrid::kernel::EngineImpl::now_, which it has no function to set back. Null in versions that call
/// it otherwise.
extern double simgrid_clock __asm__("_ZN7simgrid6kernel10EngineImpl4now_E") __attribute__((weak));

namespace plimsoll {
namespace {

// The platform as SimGrid sees it.

/// All that a flow needs is which links it crosses: each route is the way of a host at the rim of a star to itself,
/// which is the route that SimGrid finds fastest.
class SimgridStar {
 public:
  explicit SimgridStar(const Program&);

  /// Null where their speed never changes.
  sg4::Host* kernels(std::uint32_t device) const { return kernels_[device]; }
  sg4::Host* route(std::uint32_t route) const { return routes_[route]; }

  /// SimGrid takes whole bytes, and the bytes that an update moves need not be: all bytes and bandwidths are multiplied
  /// by the largest power of two that SimGrid's integers allow.
  double byte_scale() const { return byte_scale_; }

  /// Whether it is that of another program too.
  bool is_of(const Program&) const;

 private:
  void add_device(const Program&, std::uint32_t device);
  void add_route(const Program&, std::uint32_t route, const std::vector<sg4::Link*>& links);

  std::vector<double> shape_;
  double byte_scale_;
  sg4::NetZone* zone_;
  std::vector<sg4::Host*> kernels_;  ///< per device
  std::vector<sg4::Host*> routes_;   ///< null where no link of the route is limited
};

double byte_scale_of(const Program& program) {
  double most = 1;
  for (const ProgramStep& step : program.steps) most = std::max(most, step.bytes);
  return std::exp2(std::floor(62 - std::log2(most)));
}

/// Whether its kernels' speed ever changes.
bool is_slowed_down(const Program& program, std::uint32_t device) {
  const std::span<const double> speeds = program.speeds_of(device);
  return std::ranges::any_of(speeds, [&](double speed) { return speed != speeds.front(); });
}

/// All that a star is made of, one behind the other.
std::vector<double> shape_of(const Program& program) {
  std::vector<double> shape;
  const auto put = [&](const auto& list, auto value) {
    shape.push_back(static_cast<double>(list.size()));
    for (const auto& each : list) shape.push_back(static_cast<double>(value(each)));
  };
  const auto itself = [](auto value) { return value; };
  put(program.devices, [](const ProgramDevice& device) { return device.first_speed; });
  put(program.devices, [](const ProgramDevice& device) { return device.kernel_streams; });
  put(program.speeds, itself);
  put(program.links, itself);
  put(program.routes, [](const ProgramRoute& route) { return route.first_link; });
  put(program.route_links, itself);
  return shape;
}

SimgridStar::SimgridStar(const Program& program)
    : shape_(shape_of(program)), byte_scale_(byte_scale_of(program)), zone_(make_zone("platform")) {
  for (std::uint32_t d = 0; d + 1 < program.devices.size(); ++d) add_device(program, d);
  std::vector<sg4::Link*> links;
  for (const double bandwidth : program.links) {
    links.push_back(make_link(*zone_, "link" + std::to_string(links.size()), byte_scale_ * bandwidth)->seal());
  }
  for (std::uint32_t r = 0; r + 1 < program.routes.size(); ++r) add_route(program, r, links);
  zone_->seal();
  sg4::Engine::get_instance()->seal_platform();
}

bool SimgridStar::is_of(const Program& program) const {
  return byte_scale_ == byte_scale_of(program) && shape_ == shape_of(program);
}

/// Speed 1 means that flops are seconds; the other levels are pstates. One core a stream.
void SimgridStar::add_device(const Program& program, std::uint32_t device) {
  kernels_.push_back(nullptr);
  const std::uint32_t cores = program.devices[device].kernel_streams;
  if (cores == 0 || !is_slowed_down(program, device)) return;
  const std::span<const double> speeds = program.speeds_of(device);
  kernels_.back() = make_host(*zone_, "kernels" + std::to_string(device), {speeds.begin(), speeds.end()});
  kernels_.back()->set_core_count(static_cast<int>(cores));
  kernels_.back()->seal();
}

void SimgridStar::add_route(const Program& program, std::uint32_t route, const std::vector<sg4::Link*>& links) {
  std::vector<sg4::LinkInRoute> crossed;
  for (const std::uint32_t link : program.links_of(route)) crossed.emplace_back(links[link]);
  if (crossed.empty()) {
    routes_.push_back(nullptr);
    return;
  }
  routes_.push_back(make_host(*zone_, "route" + std::to_string(route), {1.0}));
  add_loop(*zone_, *routes_.back(), crossed);
}

// One simulation by SimGrid, in this process.

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

/// The precision of SimGrid's dates while its clock is at most `date`: a share of that date small enough for dates a
/// sixteenth as late, and large enough for `date`, whose neighbours among doubles are 2^-52 of it apart. With less
/// SimGrid misses the ends of its activities.
void set_precision_until(double date) {
  sg4::Engine::set_config(date_precision, 0x1p-46 * date);
}
constexpr double precision_lasts = 16;

void* data_of(const sg4::Activity& activity) {
  return activity.get_data<void>();
}

SimgridLoop::SimgridLoop(const Program& program, const SimgridStar& star)
    : program_(program),
      star_(star),
      dispatcher_(program, *this),
      known_(program.streams.size()),
      running_(program.streams.size()),
      activity_(program.streams.size()) {
  for (std::uint32_t d = 0; d + 1 < program.devices.size(); ++d) {
    runs_ahead_ &= star_.kernels(d) == nullptr;
    sg4::Host* const host = star_.kernels(d);
    if (host != nullptr && host->get_pstate() != 0) host->set_pstate(0);
  }
}

Timeline SimgridLoop::run() && {
  set_precision_until(precise_until_);
  dispatcher_.begin();
  begin_flows();
  arm();
  sg4::Engine::get_instance()->run();
  return std::move(dispatcher_).result();
}

/// Latencies are ours to wait for: a link latency known to SimGrid would weigh the sharing of bandwidth.
void SimgridLoop::begin(std::uint32_t id) {
  const ProgramStep& step = program_.steps[id];
  running_[step.stream] = id;
  if (step.kind != StepClass::kernel) {
    if (step.seconds > 0) known_.set(step.stream, now_ + step.seconds);
    if (step.seconds == 0) flows_.push_back(id);
  } else if (sg4::Host* host = star_.kernels(step.device)) {
    const sg4::ExecPtr exec = sg4::Exec::init();
    exec->set_flops_amount(step.seconds)->set_host(host);
    begin_activity(step.stream, *exec);
  } else {
    known_.set(step.stream, now_ + step.seconds / program_.speeds_of(step.device).front());
  }
}

void SimgridLoop::set_level(std::uint32_t device, std::uint32_t level) {
  if (sg4::Host* host = star_.kernels(device)) host->set_pstate(level);
}

void SimgridLoop::end(const sg4::Activity& activity) {
  const double date = sg4::Engine::get_clock();
  if (date < now_) throw EngineError("SimGrid has a step end at a date that it had said nothing would happen before");
  const auto stream = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data_of(activity)) - 1);
  if (!std::exchange(some_ended_, true)) ended_.clear();
  ended_.push_back(std::move(activity_[stream]));
  --activities_;
  dispatcher_.finish(running_[stream]);
  if (!all_are_told()) return;
  come_to(date);
  arm();
}

/// SimGrid fires the timers of a date first, then tells what has ended, one by one: the last is the one to go on
/// with.
bool SimgridLoop::all_are_told() const {
  return std::ranges::all_of(models_, [](Model* model) { return model->get_finished_action_set()->empty(); });
}

void SimgridLoop::come_to(double date) {
  now_ = date;
  take_known();
  if (std::exchange(some_ended_, false)) dispatcher_.flush(now_);
  begin_flows();
}

/// Through the dates before SimGrid has the next end to tell. Not where an end is being told: SimGrid has not yet
/// taken that flow off its links.
void SimgridLoop::run_ahead() {
  if (!runs_ahead_ || known_.empty()) return;
  const double next_end = next_end_of_simgrid();
  while (flows_.empty() && known_.earliest() + same_date * known_.earliest() < next_end) {
    now_ = known_.earliest();
    take_known();
    if (std::exchange(some_ended_, false)) dispatcher_.flush(now_);
  }
}

/// Steps that come to their known end, and transfers whose bytes now begin to flow.
void SimgridLoop::take_known() {
  if (known_.earliest() - now_ > same_date * now_) return;
  due_.clear();
  known_.append_due(same_date * now_, due_);
  for (const std::uint32_t stream : due_) {
    known_.remove(stream);
    const ProgramStep& step = program_.steps[running_[stream]];
    if (step.kind == StepClass::transfer && step.bytes > 0) {
      flows_.push_back(running_[stream]);
    } else {
      dispatcher_.finish(running_[stream]);
      some_ended_ = true;
    }
  }
}

/// Only at SimGrid's date.
void SimgridLoop::begin_flows() {
  for (const std::uint32_t id : flows_) {
    const ProgramStep& step = program_.steps[id];
    const sg4::CommPtr comm = sg4::Comm::sendto_init(star_.route(step.route), star_.route(step.route));
    comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::rint(star_.byte_scale() * step.bytes))));
    begin_activity(step.stream, *comm);
  }
  flows_.clear();
}

template <class Activity>
void SimgridLoop::begin_activity(std::uint32_t stream, Activity& activity) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the stream's number in SimGrid's pointer for its user; never followed
  activity.set_data(reinterpret_cast<void*>(std::uintptr_t{stream} + 1));
  activity_[stream] = &activity;
  ++activities_;
  start(activity);
}

/// What SimGrid's own loop asks its models before it lets time pass.
double SimgridLoop::next_end_of_simgrid() const {
  const double clock = sg4::Engine::get_clock();
  double next = std::numeric_limits<double>::infinity();
  for (Model* model : models_) {
    const double wait = model->next_occurring_event(clock);
    if (wait >= 0) next = std::min(next, clock + wait);
  }
  return next;
}

/// The date at which there is something to do here: flows that wait for SimGrid's clock, or the next known date.
double SimgridLoop::next_date() const {
  return flows_.empty() ? known_.earliest() : now_;
}

/// One timer at most, for that date; or before it, while SimGrid has activities, for the date up to which its
/// precision is set.
void SimgridLoop::arm() {
  const double clock = sg4::Engine::get_clock();
  if (clock >= precise_until_) {
    precise_until_ = precision_lasts * clock;
    set_precision_until(precise_until_);
  }
  const double date = activities_ > 0 ? std::min(next_date(), precise_until_) : next_date();
  if (timer_ != nullptr) {
    if (timer_->get_date() == date) return;
    std::exchange(timer_, nullptr)->remove();
  }
  if (!std::isfinite(date)) return;
  timer_ = Timer::set(date, [this] {
    timer_ = nullptr;
    if (!all_are_told()) return;
    if (const double reached = sg4::Engine::get_clock(); reached >= next_date()) {
      come_to(reached);
      run_ahead();
    }
    arm();
  });
}

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
