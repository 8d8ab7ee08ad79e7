// In which order a host gives steps to a GPU, and what timeline the measured dates make.

#include "validate/device/issue_order.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/memory/replay.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/device/run_memory.h"

namespace plimsoll {
namespace {

/// Every strategy that moves data, on a network of tensors of different sizes.
std::vector<Schedule> schedules(const Training& training) {
  std::vector<Schedule> made;
  for (const char* spec :
       {"store_all", "full_recompute", "save_on_cpu", "vdnn(mode=all)", "zero_offload", "rotor|offload_greedy"}) {
    PlanOutcome outcome = planned(training.problem, spec);
    REQUIRE(std::holds_alternative<Plan>(outcome));
    made.push_back(std::move(std::get<Plan>(outcome).schedule));
  }
  return made;
}

Training some_training() {
  constexpr BytesPerSecond slow{200e6};
  return training_of("mlp:layers=6,width=48,batch=32,classes=4", gpus({.to_host = slow, .adam = slow}),
                     {.micro_batches = 2, .optimizer = Optimizer::adam});
}

/// Of each step: where it begins and ends in the order.
std::vector<std::pair<std::size_t, std::size_t>> positions(const Schedule& schedule,
                                                           const std::vector<IssueEvent>& order) {
  std::vector<std::pair<std::size_t, std::size_t>> places(schedule.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    (order[i].begins ? places[order[i].step.index].first : places[order[i].step.index].second) = i;
  }
  return places;
}

void check_legal(const Schedule& schedule, const std::vector<IssueEvent>& order) {
  REQUIRE(order.size() == 2 * schedule.steps.size());
  const auto places = positions(schedule, order);
  std::vector<std::size_t> last_end(schedule.streams.size(), 0);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    REQUIRE(places[s].first < places[s].second);
    for (const StepId wait : schedule.waits_of(step)) CHECK(places[wait.index].second < places[s].first);
    if (places[s].first > 0) CHECK(last_end[step.stream.index] <= places[s].first);
    last_end[step.stream.index] = places[s].second;
  }
}

TEST_CASE("without dates, steps begin and end one by one in the order of the schedule", "[device]") {
  const Training training = some_training();
  for (const Schedule& schedule : schedules(training)) {
    const std::vector<IssueEvent> order = issue_order(schedule, std::nullopt);
    check_legal(schedule, order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      CHECK(order[i] == IssueEvent{id_at<StepId>(i / 2), i % 2 == 0});
    }
  }
}

TEST_CASE("whatever dates are expected, the order keeps streams and waits", "[device]") {
  const Training training = some_training();
  for (const Schedule& schedule : schedules(training)) {
    Timeline expected = simulate_event(schedule, training.problem.platform);
    check_legal(schedule, issue_order(schedule, expected));
    for (Interval& ran : expected.steps) ran = {Seconds{1} - ran.start, Seconds{1} - ran.finish};  // nonsense
    check_legal(schedule, issue_order(schedule, expected));
  }
}

/// Pairs of steps of which the second begins while the first is expected to run.
std::size_t overlaps(const Schedule& schedule, const std::vector<IssueEvent>& order) {
  const auto places = positions(schedule, order);
  std::size_t count = 0;
  for (const auto& own : places) {
    count += static_cast<std::size_t>(std::ranges::count_if(
        places, [&](const auto& other) { return own.first < other.first && other.first < own.second; }));
  }
  return count;
}

TEST_CASE("a step of another stream is issued before what is expected to end later", "[device]") {
  const Training training = some_training();
  std::vector<std::size_t> found;
  for (const Schedule& schedule : schedules(training)) {
    found.push_back(overlaps(schedule, issue_order(schedule, simulate_event(schedule, training.problem.platform))));
  }
  CHECK(found[0] == 0);  // store_all has one stream
  CHECK(found[4] > 0);   // zero_offload updates on the host beside the backward
  CHECK(found[3] > 0);   // vdnn copies while layers run
}

TEST_CASE("dates that an engine made come back as they are, with its peaks", "[device]") {
  const Training training = some_training();
  const Platform& platform = training.problem.platform;
  for (const Schedule& schedule : schedules(training)) {
    const Timeline simulated = simulate_event(schedule, platform);
    const Timeline made = measured_timeline(schedule, platform, issue_order(schedule, simulated), simulated.steps);
    CHECK(made.makespan == simulated.makespan);
    const std::vector<Bytes> counted = recount(schedule, made, platform);
    for (std::size_t m = 0; m < counted.size(); ++m) {
      CHECK(made.peaks[m].bytes == simulated.peaks[m].bytes);
      CHECK(made.peaks[m].bytes == counted[m]);
    }
  }
}

TEST_CASE("dates that contradict a wait by a little are moved to what they wait for", "[device]") {
  const Training training = some_training();
  const Schedule schedule = schedules(training)[2];
  const Platform& platform = training.problem.platform;
  const Timeline simulated = simulate_event(schedule, platform);
  std::vector<Interval> dates = simulated.steps;
  for (std::size_t s = 0; s < dates.size(); ++s) {  // a clock that is off by 3 s, and noise of some microseconds
    const Seconds noise{1e-6 * static_cast<double>(s % 5)};
    dates[s] = {dates[s].start + Seconds{3} - noise, dates[s].finish + Seconds{3} + noise};
  }
  const Timeline made = measured_timeline(schedule, platform, issue_order(schedule, simulated), dates);
  CHECK(std::ranges::min(made.steps, {}, &Interval::start).start == Seconds{0});
  for (std::size_t s = 0; s < dates.size(); ++s) {
    CHECK(made.steps[s].start <= made.steps[s].finish);
    for (const StepId wait : schedule.waits_of(schedule.steps[s])) {
      CHECK(made.steps[wait.index].finish <= made.steps[s].start);
    }
  }
  const std::vector<Bytes> counted = recount(schedule, made, platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(made.peaks[m].bytes == counted[m]);
}

/// Memory without end.
class Endless : public SegmentSource {
 public:
  std::byte* take(Bytes bytes) override {
    next_ += static_cast<std::uintptr_t>(bytes.count);
    return std::bit_cast<std::byte*>(next_ - static_cast<std::uintptr_t>(bytes.count));
  }
  void give_back(std::byte*, Bytes) override {}

 private:
  std::uintptr_t next_ = 1 << 20;
};

TEST_CASE("what a run in the expected order reserves is what sim/memory predicts of that timeline", "[device]") {
  const Training training = some_training();
  const Platform& platform = training.problem.platform;
  for (Schedule schedule : schedules(training)) {
    schedule.budget.reset();
    const Timeline simulated = simulate_event(schedule, platform);
    Endless device;
    CachingMemory memory(device, std::nullopt);
    const MemoryId own = platform.devices[0].memory;
    std::map<BufferId, std::byte*> buffers;
    std::map<StepId, std::byte*> workspaces;
    const StreamId home{0};
    REQUIRE(schedule[home].way == way::compute);
    const auto open = [&](BufferId b, StreamId stream) {
      if (schedule[b].memory == own) buffers[b] = memory.take(schedule[b].bytes, stream)->address;
    };
    for (const BufferId b : schedule.resident) open(b, home);
    for (const IssueEvent event : issue_order(schedule, simulated)) {
      const Step& step = schedule[event.step];
      if (event.begins) {
        for (const BufferId b : schedule.buffers_in(step.allocates)) open(b, step.stream);
        workspaces[event.step] = memory.take(step.workspace, step.stream)->address;
        continue;
      }
      memory.give_back(workspaces[event.step], step.workspace, std::span(&event.step, 1));
      for (const BufferId b : schedule.buffers_in(step.frees)) {
        if (schedule[b].memory == own) memory.give_back(buffers[b], schedule[b].bytes, std::span(&event.step, 1));
      }
    }
    const ReservedPeak predicted = peak_reserved(schedule, simulated, platform, usual(AllocatorKind::cuda))[own.index];
    INFO(schedule.strategy);
    CHECK(memory.peaks()->reserved == predicted.reserved);
    CHECK(memory.peaks()->allocated == predicted.active);  // a run gives back what a copy frees when that is over
  }
}

}  // namespace
}  // namespace plimsoll
