#include "sim/engine/simgrid/late/simgrid_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

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

}  // namespace

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
  const std::uint32_t device = program_.streams[step.stream].device;
  if (step.kind != StepClass::kernel) {
    if (step.seconds > 0) known_.set(step.stream, now_ + step.seconds);
    if (step.seconds == 0) flows_.push_back(id);
  } else if (sg4::Host* host = star_.kernels(device)) {
    const sg4::ExecPtr exec = sg4::Exec::init();
    exec->set_flops_amount(step.seconds)->set_host(host);
    begin_activity(step.stream, *exec);
  } else {
    known_.set(step.stream, now_ + step.seconds / program_.speeds_of(device).front());
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

}  // namespace plimsoll
