#include "sim/engine/event/event_engine.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/dispatcher.h"
#include "sim/engine/event_tree.h"
#include "sim/engine/program.h"

namespace plimsoll {
namespace {

// Flows that share links max-min fairly: the rate of the flow that gets least is as large as can be, then the next, and
// so on. Only what is connected to a change is computed anew.
// Source: Bertsekas, Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2 (progressive filling).

class FlowNetwork {
 public:
  struct Rate {
    std::uint32_t stream;
    double bytes_per_second;
  };

  explicit FlowNetwork(const Program&);

  /// A flow of this stream (it has one at most) over the links of the route.
  void add(std::uint32_t stream, std::uint32_t route);
  void remove(std::uint32_t stream);

  /// The rates of all flows connected to those added and removed since the last call; they need not have changed.
  std::span<const Rate> share() { return changed_.empty() ? std::span<const Rate>{} : share_changed(); }

 private:
  /// A flow on a link, in the link's doubly linked list; node `stream * hops_ + hop`.
  struct Node {
    std::uint32_t next, previous, stream;
  };

  struct LinkState {
    double left = 0;  ///< bandwidth not yet given away
    std::uint32_t first = none;
    std::uint32_t flows = 0;
    std::uint32_t open = 0;   ///< flows without a rate
    std::uint32_t seen = 0;   ///< the search that found it
    std::uint32_t place = 0;  ///< in component_ and offers_
  };

  struct FlowState {
    std::uint32_t route = none;
    std::uint32_t seen = 0;
    std::uint32_t rate = 0;  ///< index into rates_
  };

  std::span<const Rate> share_changed();
  void mark(std::uint32_t link);
  bool share_one(std::uint32_t link);
  void collect(std::uint32_t start);
  void fill();
  void give(std::uint32_t link, double rate);

  const Program& program_;
  std::uint32_t hops_;
  std::uint32_t search_ = 1;
  std::vector<Node> nodes_;
  std::vector<LinkState> links_;
  std::vector<FlowState> flows_;
  std::vector<std::uint32_t> changed_;    ///< links
  std::vector<std::uint8_t> is_changed_;  ///< per link: is it among changed_
  std::vector<std::uint32_t> component_;  ///< links
  std::vector<double> offers_;            ///< by place: what each has left for each of its open flows
  std::vector<Rate> rates_;
};

constexpr double no_rate = -1;
constexpr double nothing = std::numeric_limits<double>::infinity();  // offered by a link without open flows

std::uint32_t longest_route(const Program& program) {
  std::size_t hops = 1;
  for (std::uint32_t r = 0; r + 1 < program.routes.size(); ++r) hops = std::max(hops, program.links_of(r).size());
  return static_cast<std::uint32_t>(hops);
}

FlowNetwork::FlowNetwork(const Program& program)
    : program_(program),
      hops_(longest_route(program)),
      nodes_(program.streams.size() * hops_),
      links_(program.links.size()),
      flows_(program.streams.size()),
      is_changed_(program.links.size()) {
  changed_.reserve(links_.size());
  component_.reserve(links_.size());
  rates_.reserve(flows_.size());
}

void FlowNetwork::mark(std::uint32_t link) {
  if (is_changed_[link]) return;
  is_changed_[link] = true;
  changed_.push_back(link);
}

void FlowNetwork::add(std::uint32_t stream, std::uint32_t route) {
  flows_[stream].route = route;
  std::uint32_t node = stream * hops_;
  for (const std::uint32_t link : program_.links_of(route)) {
    LinkState& state = links_[link];
    nodes_[node] = {state.first, none, stream};
    if (state.first != none) nodes_[state.first].previous = node;
    state.first = node++;
    ++state.flows;
    mark(link);
  }
}

void FlowNetwork::remove(std::uint32_t stream) {
  std::uint32_t node = stream * hops_;
  for (const std::uint32_t link : program_.links_of(flows_[stream].route)) {
    LinkState& state = links_[link];
    const auto [next, previous, ignored] = nodes_[node++];
    if (next != none) nodes_[next].previous = previous;
    (previous == none ? state.first : nodes_[previous].next) = next;
    --state.flows;
    mark(link);
  }
}

std::span<const FlowNetwork::Rate> FlowNetwork::share_changed() {
  ++search_;
  rates_.clear();
  for (const std::uint32_t link : changed_) {
    is_changed_[link] = false;
    if (links_[link].flows == 0 || links_[link].seen == search_) continue;
    if (share_one(link)) continue;
    collect(link);
    fill();
  }
  changed_.clear();
  return rates_;
}

/// The usual case: flows that meet on one link and cross no other share it alike. Whether it is that.
bool FlowNetwork::share_one(std::uint32_t link) {
  const std::size_t others = rates_.size();
  const LinkState& state = links_[link];
  const double rate = program_.links[link] / state.flows;
  for (std::uint32_t node = state.first; node != none; node = nodes_[node].next) {
    const std::uint32_t stream = nodes_[node].stream;
    if (program_.links_of(flows_[stream].route).size() > 1) {
      rates_.resize(others);
      return false;
    }
    rates_.push_back({stream, rate});
  }
  return true;
}

/// The links and flows connected to the link, the flows at the end of rates_.
void FlowNetwork::collect(std::uint32_t start) {
  component_.assign(1, start);
  links_[start].seen = search_;
  for (std::size_t next = 0; next < component_.size(); ++next) {
    LinkState& state = links_[component_[next]];
    state.left = program_.links[component_[next]];
    state.open = state.flows;
    for (std::uint32_t node = state.first; node != none; node = nodes_[node].next) {
      FlowState& flow = flows_[nodes_[node].stream];
      if (flow.seen == search_) continue;
      flow.seen = search_;
      flow.rate = static_cast<std::uint32_t>(rates_.size());
      rates_.push_back({nodes_[node].stream, no_rate});
      for (const std::uint32_t link : program_.links_of(flow.route)) {
        if (links_[link].seen == search_) continue;
        links_[link].seen = search_;
        component_.push_back(link);
      }
    }
  }
}

/// Gives the least share of any link to all flows of all links that offer no more, until every flow has its rate.
void FlowNetwork::fill() {
  offers_.clear();
  for (const std::uint32_t link : component_) {
    links_[link].place = static_cast<std::uint32_t>(offers_.size());
    offers_.push_back(links_[link].left / links_[link].open);
  }
  while (true) {
    double least = nothing;
    for (const double offer : offers_) least = offer < least ? offer : least;
    if (least == nothing) break;
    for (std::size_t i = 0; i < offers_.size(); ++i) {
      if (offers_[i] <= least) give(component_[i], least);
    }
  }
}

void FlowNetwork::give(std::uint32_t link, double rate) {
  for (std::uint32_t node = links_[link].first; node != none; node = nodes_[node].next) {
    const FlowState& flow = flows_[nodes_[node].stream];
    double& own = rates_[flow.rate].bytes_per_second;
    if (own != no_rate) continue;
    own = rate;
    for (const std::uint32_t crossed : program_.links_of(flow.route)) {
      LinkState& state = links_[crossed];
      state.left -= rate;
      --state.open;
      offers_[state.place] = state.open > 0 ? state.left / state.open : nothing;
    }
  }
}

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
    for (std::uint32_t s = 0; s < program.streams.size(); ++s) add_stream(s);
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
      running = {id, Phase::kernel, step.seconds, speed_[step.device], now_};
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
      const Running& running = running_[stream];
      if (running.phase != Phase::kernel || program_.steps[running.step].device != device) continue;
      change_rate(stream, speed_[device]);
    }
  }

 private:
  enum class Phase : std::uint8_t { idle, kernel, delay, flow };

  /// To all devices whose kernels it runs.
  void add_stream(std::uint32_t stream) {
    kernels_[program_.streams[stream].device].push_back(stream);
    const std::uint32_t other = program_.streams[stream].memory_bound;
    if (other != none) kernels_[other].push_back(stream);
  }

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
