#include "tests/engine/naive_simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace plimsoll::test {
namespace {

/// What flows share: a direction of a link, or the whole link where it is half duplex; a host's memory; its processor.
struct Lane {
  enum { link, memory, processor } is = link;
  std::uint32_t index = 0;
  bool down = false;
  double bandwidth = 0;
  friend auto operator<=>(const Lane&, const Lane&) = default;
};

struct State {
  enum { waiting, running, finished } is = waiting;
  bool is_transfer = false, is_kernel = false;
  double seconds = 0;  ///< left before bytes flow
  double bytes = 0;    ///< left to flow
  std::set<Lane> lanes;
  std::set<std::uint32_t> devices;  ///< at the ends of the route
  double rate = 0;

  bool is_over() const { return seconds == 0 && bytes == 0; }
};

class Naive {
 public:
  Naive(const Schedule& schedule, const Platform& platform)
      : schedule_(schedule), platform_(platform), live_(platform.memories.size()) {
    for (const Step& step : schedule.steps) states_.push_back(initial(step));
    timeline_.steps.resize(states_.size());
    for (const BufferId id : schedule.resident) live_[schedule[id].memory.index] += schedule[id].bytes.count;
    for (const std::int64_t bytes : live_) timeline_.peaks.push_back({Bytes{bytes}, {}, true});
  }

  Timeline run() {
    while (true) {
      for (std::uint32_t round = 0; one_round(round); ++round) continue;
      if (std::ranges::none_of(states_, [](const State& s) { return s.is == State::running; })) return timeline_;
      set_rates();
      advance();
    }
  }

 private:
  State initial(const Step& step) const {
    State state;
    state.seconds = step.work.seconds.value;
    state.is_transfer = step.work.route != no_route;
    state.is_kernel = !state.is_transfer && schedule_[step.stream].way == way::compute;
    if (schedule_[step.stream].way.computes_elsewhere() && !state.is_transfer) return update(step, std::move(state));
    if (!state.is_transfer) return state;
    const Endpoints ends = schedule_.routes[step.work.route.index];
    const Route route = route_between(platform_, ends.from, ends.to).value();
    for (const LinkUse use : route.links) {
      const Link& link = platform_[use.link];
      state.seconds += link.latency.value;
      const double bandwidth = use.down && link.back ? link.back->value : link.bandwidth.value;
      if (!std::isfinite(bandwidth)) continue;
      state.lanes.insert({Lane::link, use.link.index, link.full_duplex && use.down, bandwidth});
    }
    for (const MemoryId end : {ends.from, ends.to}) {
      if (platform_[end].device) state.devices.insert(platform_[end].device->index);
      add_memory(end, state);
    }
    if (!state.lanes.empty()) state.bytes = static_cast<double>(step.work.bytes.count);
    return state;
  }

  void add_memory(MemoryId memory, State& state) const {
    const std::optional<BytesPerSecond> bandwidth = platform_[memory].bandwidth;
    if (platform_[memory].device || !bandwidth || !std::isfinite(bandwidth->value)) return;
    state.lanes.insert({Lane::memory, memory.index, false, bandwidth->value});
  }

  /// Alone it takes its seconds, in which the processor moves 7 bytes for each byte that Adam updates, or all that the
  /// memory can.
  State update(const Step& step, State state) const {
    const std::optional<MemoryId> host =
        memory_at(platform_, schedule_[step.stream].device, schedule_[step.stream].way.from);
    if (!host) return state;
    const Memory& memory = platform_[*host];
    double traffic = 1e9;
    if (memory.adam) {
      traffic = 7 * memory.adam->value;
      if (memory.bandwidth && memory.bandwidth->value < traffic) traffic = memory.bandwidth->value;
      add_memory(*host, state);
    }
    state.lanes.insert({Lane::processor, host->index, false, traffic});
    state.bytes = std::exchange(state.seconds, 0) * traffic;
    return state;
  }

  bool one_round(std::uint32_t round) {
    bool something = false;
    for (std::uint32_t s = 0; s < states_.size(); ++s) {
      if (states_[s].is != State::running || !states_[s].is_over()) continue;
      states_[s].is = State::finished;
      timeline_.steps[s].finish = {date_};
      timeline_.steps[s].finish_round = round;
      timeline_.makespan = {date_};
      change_memory(s, schedule_.steps[s].frees, -1);
      something = true;
    }
    std::vector<std::uint32_t> starts;
    for (std::uint32_t stream = 0; stream < schedule_.streams.size(); ++stream) {
      for (std::uint32_t s = 0; s < states_.size(); ++s) {
        if (schedule_.steps[s].stream.index != stream || states_[s].is == State::finished) continue;
        if (states_[s].is == State::waiting && may_start(s)) starts.push_back(s);
        break;
      }
    }
    for (const std::uint32_t s : starts) {
      states_[s].is = State::running;
      timeline_.steps[s].start = {date_};
      timeline_.steps[s].start_round = round;
      change_memory(s, schedule_.steps[s].allocates, 1);
      something = true;
    }
    return something;
  }

  bool may_start(std::uint32_t s) const {
    return std::ranges::all_of(schedule_.waits_of(schedule_.steps[s]),
                               [&](StepId wait) { return states_[wait.index].is == State::finished; });
  }

  void change_memory(std::uint32_t s, Slice buffers, int sign) {
    const Step& step = schedule_.steps[s];
    const Stream& stream = schedule_[step.stream];
    const MemoryId works_at = stream.way.computes() ? stream.way.from : place::device;
    const MemoryId own = platform_[stream.device].memory;
    live_[memory_at(platform_, stream.device, works_at).value_or(own).index] += sign * step.workspace.count;
    for (const BufferId id : schedule_.buffers_in(buffers)) {
      live_[schedule_[id].memory.index] += sign * schedule_[id].bytes.count;
    }
    for (std::size_t m = 0; m < live_.size() && sign > 0; ++m) {
      if (live_[m] > timeline_.peaks[m].bytes.count) timeline_.peaks[m] = {Bytes{live_[m]}, {s}, false};
    }
  }

  void set_rates() {
    std::vector<State*> flows;
    for (std::uint32_t s = 0; s < states_.size(); ++s) {
      State& state = states_[s];
      if (state.is != State::running) continue;
      state.rate = state.is_kernel ? 1 / slowdown(schedule_.steps[s]) : 1;
      if (!state.lanes.empty() && state.seconds == 0) flows.push_back(&state);
    }
    fill(flows);
  }

  double slowdown(const Step& step) const {
    const DeviceId device = schedule_[step.stream].device;
    const auto in_flight = static_cast<std::size_t>(std::ranges::count_if(states_, [&](const State& state) {
      return state.is == State::running && state.is_transfer && state.devices.contains(device.index);
    }));
    const Device& of = platform_[device];
    const bool has_own = step.memory_bound && !of.memory_overlap_slowdown.empty();
    const std::vector<double>& table = has_own ? of.memory_overlap_slowdown : of.overlap_slowdown;
    return table[std::min(in_flight, table.size() - 1)];
  }

  /// All rates rise together; the flows over the lane that is full first keep theirs.
  void fill(std::vector<State*> flows) const {
    std::map<Lane, double> left;
    for (const State* flow : flows) {
      for (const Lane& lane : flow->lanes) left[lane] = lane.bandwidth;
    }
    while (!flows.empty()) {
      Lane fullest;
      double least = std::numeric_limits<double>::infinity();
      for (const auto& entry : left) {  // no structured binding: clang 14 cannot capture one
        const Lane& lane = entry.first;
        const double bandwidth = entry.second;
        const auto users = std::ranges::count_if(flows, [&](const State* flow) { return flow->lanes.contains(lane); });
        if (users == 0 || bandwidth / static_cast<double>(users) >= least) continue;
        least = bandwidth / static_cast<double>(users);
        fullest = lane;
      }
      for (State* flow : flows) {
        if (!flow->lanes.contains(fullest)) continue;
        flow->rate = least;
        for (const Lane& lane : flow->lanes) left[lane] -= least;
      }
      std::erase_if(flows, [&](const State* flow) { return flow->lanes.contains(fullest); });
    }
  }

  void advance() {
    double step = std::numeric_limits<double>::infinity();
    for (const State& state : states_) {
      if (state.is == State::running) step = std::min(step, left_of(state) / state.rate);
    }
    date_ += step;
    for (State& state : states_) {
      if (state.is != State::running) continue;
      double& left = state.seconds > 0 ? state.seconds : state.bytes;
      left = left / state.rate - step < 1e-13 * date_ ? 0 : left - step * state.rate;
    }
  }

  static double left_of(const State& state) { return state.seconds > 0 ? state.seconds : state.bytes; }

  const Schedule& schedule_;
  const Platform& platform_;
  std::vector<State> states_;
  std::vector<std::int64_t> live_;
  Timeline timeline_;
  double date_ = 0;
};

}  // namespace

Timeline simulate_naively(const Schedule& schedule, const Platform& platform) {
  return Naive(schedule, platform).run();
}

}  // namespace plimsoll::test
