#include "sim/engine/event/event_engine.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/dispatcher.h"
#include "sim/engine/event/flow_network.h"
#include "sim/engine/event_tree.h"

namespace plimsoll {
namespace {

/// One event a stream: a stream runs one step at a time.
class EventLoop {
 public:
  explicit EventLoop(const Program& program)
      : program_(program),
        events_(program.streams.size()),
        network_(program),
        running_(program.streams.size()),
        speed_(program.devices.size()),
        kernels_(program.devices.size()) {
    for (std::uint32_t d = 0; d + 1 < program.devices.size(); ++d) speed_[d] = program.speeds_of(d).front();
    for (std::uint32_t s = 0; s < program.streams.size(); ++s) kernels_[program.streams[s].device].push_back(s);
  }

  Timeline run() && {
    Dispatcher<EventLoop> dispatcher(program_, *this);
    dispatcher.begin();
    share_links();
    while (!events_.empty()) {
      now_ = events_.earliest();
      due_.clear();
      events_.append_due(same_date * now_, due_);
      bool some_step_ended = false;
      for (const std::uint32_t stream : due_) {
        if (!ends_step(stream)) continue;
        dispatcher.finish(running_[stream].step);
        some_step_ended = true;
      }
      if (some_step_ended) dispatcher.flush(now_);
      share_links();
      for (const std::uint32_t stream : due_) {
        if (running_[stream].phase == Phase::idle) events_.remove(stream);
      }
    }
    return std::move(dispatcher).result();
  }

  void begin(std::uint32_t id) {
    const ProgramStep& step = program_.steps[id];
    Running& running = running_[step.stream];
    running.step = id;
    if (step.kind == StepClass::kernel) {
      running = {id, Phase::kernel, step.seconds, speed_[program_.streams[step.stream].device], now_};
      events_.set(step.stream, now_ + step.seconds / running.rate);
    } else if (step.seconds > 0) {
      running.phase = Phase::delay;
      events_.set(step.stream, now_ + step.seconds);
    } else {
      begin_flow(step, running);
    }
  }

  void set_level(std::uint32_t device, std::uint32_t level) {
    speed_[device] = program_.speeds_of(device)[level];
    for (const std::uint32_t stream : kernels_[device]) {
      if (running_[stream].phase == Phase::kernel) change_rate(stream, speed_[device]);
    }
  }

 private:
  enum class Phase : std::uint8_t { idle, kernel, delay, flow };

  /// What a stream is doing.
  struct Running {
    std::uint32_t step = none;
    Phase phase = Phase::idle;
    double left = 0;   ///< seconds or bytes, when the rate last changed
    double rate = 0;   ///< of them per second
    double since = 0;  ///< when that was
  };

  void begin_flow(const ProgramStep& step, Running& running) {
    running.phase = Phase::flow;
    running.left = step.bytes;
    running.rate = 0;
    running.since = now_;
    network_.add(step.stream, step.route);
  }

  /// The stream's event is due: whether its step is over, or its bytes now begin to flow.
  bool ends_step(std::uint32_t stream) {
    Running& running = running_[stream];
    if (running.phase == Phase::delay && program_.steps[running.step].bytes > 0) {
      begin_flow(program_.steps[running.step], running);
      return false;
    }
    if (running.phase == Phase::flow) network_.remove(stream);
    running.phase = Phase::idle;
    return true;
  }

  void share_links() {
    for (const FlowNetwork::Rate rate : network_.share()) change_rate(rate.stream, rate.bytes_per_second);
  }

  /// Leaves the date of the end alone where the rate is the same, so that it keeps its bits.
  void change_rate(std::uint32_t stream, double rate) {
    Running& running = running_[stream];
    if (running.rate == rate) return;
    running.left -= running.rate * (now_ - running.since);
    if (running.left < 0) running.left = 0;
    running.since = now_;
    running.rate = rate;
    events_.set(stream, now_ + running.left / rate);
  }

  const Program& program_;
  EventTree events_;
  FlowNetwork network_;
  std::vector<Running> running_;                     ///< per stream
  std::vector<double> speed_;                        ///< per device, of its kernels
  std::vector<std::vector<std::uint32_t>> kernels_;  ///< per device: its streams
  std::vector<std::uint32_t> due_;                   ///< streams with an event at this date
  double now_ = 0;
};

}  // namespace

Timeline simulate_event(const Program& program) {
  return EventLoop(program).run();
}

Timeline simulate_event(const Schedule& schedule, const Platform& platform) {
  return simulate_event(flatten(schedule, platform));
}

}  // namespace plimsoll
