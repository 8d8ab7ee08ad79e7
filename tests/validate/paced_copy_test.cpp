// Copies on the CPU are links' and not threads': none pays for the waking of a thread, neither its own nor that of who
// waits.

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>

#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/cpu/machine_rates.h"
#include "validate/cpu/paced_copy.h"
#include "validate/cpu/stream_threads.h"
#include "validate/op_times.h"

namespace plimsoll {
namespace {

using namespace std::chrono_literals;

constexpr LinkPace ten_seconds{Seconds{10}, unlimited_bandwidth};

TEST_CASE("a paced copy counts from when its link began, not from when its thread was there", "[validate]") {
  std::vector<std::byte> from(64, std::byte{7}), to(64);
  const CopyClock::time_point called = CopyClock::now();
  paced_copy(to.data(), from.data(), Bytes{64}, ten_seconds, called - 10s, [](CopyClock::time_point) {});
  CHECK(CopyClock::now() - called < 9s);
  CHECK(to == from);
}

TEST_CASE("a paced copy says shortly before its end when that is", "[validate]") {
  std::vector<std::byte> from(64), to(64);
  const CopyClock::time_point began = CopyClock::now();
  std::vector<CopyClock::time_point> told, dues;
  paced_copy(to.data(), from.data(), Bytes{64}, {Seconds{0.03}, BytesPerSecond{64e2}}, began,
             [&](CopyClock::time_point due) {
               told.push_back(CopyClock::now());
               dues.push_back(due);
             });
  REQUIRE(told.size() == 1);
  CHECK(dues[0] == began + 40ms);
  CHECK(told[0] >= dues[0] - waking);
  CHECK(CopyClock::now() >= dues[0]);
}

/// How often the calling thread went to sleep of its own accord while it waited for a date on `threads`.
long sleeps_while_waiting(StreamThreads& threads, std::chrono::milliseconds released_after) {
  std::mutex mutex;
  bool released = false;
  std::unique_lock lock(mutex);
  const std::jthread releases([&] {
    std::this_thread::sleep_for(released_after);
    const std::lock_guard inner(mutex);
    released = true;
    threads.wake(StreamId{0});
  });
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  threads.wait(lock, StreamId{0}, [&] { return released; });
  getrusage(RUSAGE_THREAD, &after);
  lock.unlock();
  return after.ru_nvcsw - before.ru_nvcsw;
}

TEST_CASE("a stream's thread sleeps while it waits, but not where it is kept awake", "[validate]") {
  StreamThreads threads(1);
  CHECK(sleeps_while_waiting(threads, 20ms) > 0);
  threads.keep_awake(StreamId{0}, CopyClock::now() + 10s);
  CHECK(sleeps_while_waiting(threads, 20ms) == 0);
  threads.keep_awake(StreamId{0}, CopyClock::now() + 1ms);  // what was due is late
  CHECK(sleeps_while_waiting(threads, 20ms) > 0);
}

/// What it takes until a thread that sleeps is awake, the median of many.
double seconds_to_wake() {
  StreamThreads threads(1);
  std::vector<double> seconds;
  for (int i = 0; i < 40; ++i) {
    std::mutex mutex;
    std::optional<CopyClock::time_point> released;
    std::unique_lock lock(mutex);
    const std::jthread releases([&] {
      std::this_thread::sleep_for(1ms);
      const std::lock_guard inner(mutex);
      released = CopyClock::now();
      threads.wake(StreamId{0});
    });
    threads.wait(lock, StreamId{0}, [&] { return released.has_value(); });
    seconds.push_back(std::chrono::duration<double>(CopyClock::now() - *released).count());
    lock.unlock();
  }
  return median(std::move(seconds));
}

/// All that happened in a run, in its order: (date, round), and what.
struct Happened {
  std::pair<Seconds, std::uint32_t> when;
  std::uint32_t step;
  bool is_start;
};

std::vector<Happened> all_that_happened(const Timeline& timeline) {
  std::vector<Happened> all;
  for (std::uint32_t s = 0; s < timeline.steps.size(); ++s) {
    const Interval& ran = timeline.steps[s];
    all.push_back({{ran.start, ran.start_round}, s, true});
    all.push_back({{ran.finish, ran.finish_round}, s, false});
  }
  std::ranges::sort(all, {}, &Happened::when);
  return all;
}

TEST_CASE("nothing else happens between a kernel's end and the start of the copy that it releases", "[validate]") {
  const Training training =
      training_of("mlp:layers=6,width=64,batch=256,classes=4", gpus({.to_host = BytesPerSecond{20e9}}));
  const PlanOutcome outcome = planned(training.problem, "vdnn(mode=all)");  // the next kernel waits for no copy
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Replayed run = replayed(training, schedule);
  const std::vector<Happened> all = all_that_happened(run.timeline);
  std::size_t released = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Step& step = schedule.steps[all[i].step];
    if (!all[i].is_start || !step.work.is_transfer()) continue;
    // Backwards over what happens together with it: other copies' starts, and steps that only free.
    std::size_t before = i - 1;
    const auto together = [&](const Happened& h) {
      const Step& other = schedule.steps[h.step];
      return other.work.is_transfer() ? h.is_start : other.op == no_op;
    };
    while (before > 0 && together(all[before])) --before;
    std::set<std::uint32_t> needs;
    for (const StepId wait : schedule.waits_of(step)) needs.insert(wait.index);
    for (std::uint32_t s = 0; s < all[i].step; ++s) {
      if (schedule.steps[s].stream == step.stream) needs.insert(s);
    }
    CHECK_FALSE(all[before].is_start);
    released += needs.contains(all[before].step) ? 1 : 0;
  }
  CHECK(released > 4);
}

/// What lies between the end of a copy and the start of the kernel that waited for it, the median of a run.
double seconds_behind_copies(const Schedule& schedule, const Timeline& timeline) {
  std::vector<double> seconds;
  for (std::uint32_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op == no_op) continue;
    Seconds others, copy;
    for (std::uint32_t b = 0; b < s; ++b) {
      if (schedule.steps[b].stream == step.stream) others = std::max(others, timeline.steps[b].finish);
    }
    for (const StepId wait : schedule.waits_of(step)) {
      Seconds& last = schedule[wait].work.is_transfer() ? copy : others;
      last = std::max(last, timeline.steps[wait.index].finish);
    }
    if (copy > others + Seconds{1e-3}) seconds.push_back((timeline.steps[s].start - copy).value);
  }
  REQUIRE(seconds.size() > 3);
  return median(std::move(seconds));
}

/// Whether so many programs want the processors that dates tell nothing of this one: then a word is left instead.
bool is_crowded() {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load <= 1.5 * std::thread::hardware_concurrency()) return false;
  WARN("not judged: " << load << " programs want " << std::thread::hardware_concurrency() << " processors");
  return true;
}

TEST_CASE("a kernel starts behind the copy that it waits for sooner than a thread wakes up",
          "[validate][eleventh-10]") {
  const Training training =
      training_of("mlp:layers=8,width=64,batch=256,classes=4", gpus({.to_host = BytesPerSecond{20e6}}));
  const PlanOutcome outcome = planned(training.problem, "save_on_cpu");
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  double best = 1e9;  // machines have neighbours: of a few medians the best
  for (int attempt = 0; attempt < 20 && best > 0.45; ++attempt) {
    std::vector<double> shares;
    for (int run = 0; run < 9; ++run) {
      const double behind = seconds_behind_copies(schedule, replayed(training, schedule).timeline);
      shares.push_back(behind / seconds_to_wake());
    }
    best = std::min(best, median(std::move(shares)));
  }
  if (best > 0.45 && is_crowded()) return;
  CHECK(best <= 0.45);
}

TEST_CASE("calibration counts no waking of a thread as a copy's latency", "[validate]") {
  double best = 1e9;
  for (int attempt = 0; attempt < 20 && best > 0.5; ++attempt) {
    const std::optional<MachineRates> rates = measure_machine({}, {}, 1, [](const std::string&) { return true; });
    REQUIRE(rates);
    best = std::min(best, std::max(rates->to_host_latency.median, rates->to_device_latency.median) / seconds_to_wake());
  }
  if (best > 0.5 && is_crowded()) return;
  CHECK(best <= 0.5);
}

}  // namespace
}  // namespace plimsoll
