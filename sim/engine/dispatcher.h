#pragma once
// Runs a program over a backend that only knows how long things take: in-order streams, waits, and the memory ledger.
//
// Order within one date. Round r: first everything that finishes, with its frees; then, in queue order (ascending
// stream, on a stream in order of issue), the starts that this releases, with their allocations. A step without any
// duration that starts in round r finishes in round r + 1 of the same date and never reaches the backend. A memory's
// peak is looked at after each start. Nothing is ever held back for want of memory.
//
// A transfer is in flight from the start of its step to its finish, its latency included, for every device whose memory
// is at an end of its route; a device's kernels run at the speed that this number says. The backend is told once a
// date, after the last round.

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/timeline.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/program.h"

namespace plimsoll {

/// The backend begins steps at the date of the flush in progress and, at their ends, calls `finish` for each and then
/// `flush` once.
template <class B>
concept Backend = requires(B& backend, std::uint32_t step, std::uint32_t device, std::uint32_t level) {
  backend.begin(step);
  backend.set_level(device, level);  ///< an index into the device's speeds
};

/// A set of streams that is read in ascending order and emptied by that, each with the step it is about to start.
class ReadyStreams {
 public:
  explicit ReadyStreams(std::size_t streams)
      : step_(streams), words_(streams / 64 + 1), summary_(words_.size() / 64 + 1) {}

  bool empty() const { return count_ == 0; }

  void insert(std::uint32_t stream, std::uint32_t step) {
    step_[stream] = step;
    words_[stream / 64] |= std::uint64_t{1} << (stream % 64);
    summary_[stream / 4096] |= std::uint64_t{1} << (stream / 64 % 64);
    ++count_;
  }

  template <std::invocable<std::uint32_t> Visit>
  void take_all(Visit visit) {
    count_ = 0;
    for (std::size_t s = 0; s < summary_.size(); ++s) {
      for (std::uint64_t some = std::exchange(summary_[s], 0); some != 0; some &= some - 1) {
        const std::size_t w = s * 64 + static_cast<std::size_t>(std::countr_zero(some));
        for (std::uint64_t word = std::exchange(words_[w], 0); word != 0; word &= word - 1) {
          visit(step_[w * 64 + static_cast<std::size_t>(std::countr_zero(word))]);
        }
      }
    }
  }

 private:
  std::vector<std::uint32_t> step_;
  std::vector<std::uint64_t> words_, summary_;  ///< one bit a stream; one bit a word that is not 0
  std::size_t count_ = 0;
};

template <class B>
class Dispatcher {
 public:
  Dispatcher(const Program& program, B& backend)
      : program_(program),
        backend_(backend),
        pending_(program.predecessors),
        ready_(program.streams.size()),
        live_(program.resident),
        in_flight_(program.devices.size()),
        is_touched_(program.devices.size()),
        level_(program.devices.size()) {
    timeline_.steps.resize(program.step_count());
    timeline_.peaks.reserve(live_.size());
    for (const std::int64_t bytes : live_) timeline_.peaks.push_back({.bytes = {bytes}, .step = {}});
    finished_.reserve(program.streams.size());
    begun_.reserve(program.streams.size());
    instant_.reserve(program.streams.size());
  }

  /// Starts what waits for nothing, at date 0.
  void begin() {
    for (const ProgramStream& stream : program_.streams) {
      if (stream.first_step != none && pending_[stream.first_step] == 0) make_ready(stream.first_step);
    }
    start_ready();
    run_rounds();
  }

  /// The step has come to its end; told before the flush of that date.
  void finish(std::uint32_t step) { finished_.push_back(step); }

  /// All ends of this date are known; starts what they release.
  void flush(double date) {
    round_ = date == date_ ? round_ + 1 : 0;
    date_ = date;
    finish_all(finished_);
    start_ready();
    run_rounds();
  }

  /// The result; throws where steps are left over.
  Timeline result() && {
    if (completed_ != program_.step_count()) {
      throw EngineError("the simulation stopped at " + std::to_string(date_) + " s after " +
                        std::to_string(completed_) + " of " + std::to_string(program_.step_count()) + " steps");
    }
    timeline_.makespan = {completed_ == 0 ? 0 : date_};
    return std::move(timeline_);
  }

 private:
  void make_ready(std::uint32_t step) { ready_.insert(program_.steps[step].stream, step); }

  void release(std::uint32_t step) {
    if (--pending_[step] == 0) make_ready(step);
  }

  void run_rounds() {
    while (!instant_.empty()) {
      ++round_;
      std::swap(finished_, instant_);
      finish_all(finished_);
      start_ready();
    }
    for (const std::uint32_t device : touched_) apply_level(device);
    touched_.clear();
    for (const std::uint32_t step : begun_) backend_.begin(step);
    begun_.clear();
  }

  void finish_all(std::vector<std::uint32_t>& steps) {
    for (const std::uint32_t id : steps) {
      Interval& interval = timeline_.steps[id];
      interval.finish = {date_};
      interval.finish_round = round_;
      const ProgramStep& step = program_.steps[id];
      for (const MemoryChange change : program_.frees_of(id)) live_[change.memory] -= change.bytes;
      if (step.kind == StepClass::transfer) count_transfer(step.route, -1);
      for (const std::uint32_t successor : program_.successors_of(id)) release(successor);
      if (step.next != none) release(step.next);
    }
    completed_ += static_cast<std::uint32_t>(steps.size());
    steps.clear();
  }

  void start_ready() {
    if (!ready_.empty()) ready_.take_all([this](std::uint32_t step) { start(step); });
  }

  void start(std::uint32_t id) {
    Interval& interval = timeline_.steps[id];
    interval.start = {date_};
    interval.start_round = round_;
    const ProgramStep& step = program_.steps[id];
    for (const MemoryChange change : program_.allocations_of(id)) {
      const std::int64_t bytes = live_[change.memory] += change.bytes;
      MemoryPeak& peak = timeline_.peaks[change.memory];
      if (bytes > peak.bytes.count) peak = {.bytes = {bytes}, .step = {id}, .at_start = false};
    }
    if (step.kind == StepClass::transfer) count_transfer(step.route, 1);
    (step.is_instant() ? instant_ : begun_).push_back(id);
  }

  void count_transfer(std::uint32_t route, int change) {
    for (const std::uint32_t device : program_.slowed_devices_of(route)) {
      in_flight_[device] += static_cast<std::uint32_t>(change);
      if (is_touched_[device]) continue;
      is_touched_[device] = true;
      touched_.push_back(device);
    }
  }

  void apply_level(std::uint32_t device) {
    is_touched_[device] = false;
    const auto last = static_cast<std::uint32_t>(program_.speeds_of(device).size() - 1);
    const std::uint32_t level = in_flight_[device] < last ? in_flight_[device] : last;
    if (level == level_[device]) return;
    level_[device] = level;
    backend_.set_level(device, level);
  }

  const Program& program_;
  B& backend_;
  std::vector<std::uint32_t> pending_;  ///< per step: predecessors that have not finished
  ReadyStreams ready_;
  std::vector<std::int64_t> live_;        ///< per memory
  std::vector<std::uint32_t> in_flight_;  ///< per device: transfers
  std::vector<std::uint8_t> is_touched_;
  std::vector<std::uint32_t> level_;  ///< what the backend was told
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint32_t> finished_, begun_, instant_;
  Timeline timeline_;
  double date_ = 0;
  std::uint32_t round_ = 0, completed_ = 0;
};

}  // namespace plimsoll
