#include "sim/measure/host_issue.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "sim/model/op_times.h"

namespace plimsoll {
namespace {

/// Of a step on its device's host; 0 for what is issued at once.
Seconds issue_of(const Schedule& schedule, const Problem& problem, const Step& step) {
  const Stream& stream = schedule[step.stream];
  const bool is_kernel = step.op != no_op && (stream.way == way::compute || stream.way == way::network);
  return is_kernel ? issue_on(problem, step.op, stream.device) : Seconds{};
}

class Issuing {
 public:
  Issuing(const Schedule& from, const Problem& problem)
      : from_(from), problem_(problem), host_(problem.platform.devices.size()) {
    made_.schedule = from;
    made_.schedule.steps.clear();
    made_.schedule.wait_list.clear();
    made_.steps.reserve(from.steps.size());
    const bool blocks = sends_block();
    for (const Step& step : from.steps) {
      const Seconds takes = issue_of(from_, problem_, step);
      std::vector<StepId> waits;
      for (const StepId wait : from_.waits_of(step)) waits.push_back(made_.steps[wait.index]);
      if (takes > Seconds{0}) {
        std::vector<StepId> blocking = evaluations_;
        for (const StepId wait : from_.waits_of(step)) {
          if (blocks && from_[wait].kind == StepKind::send) blocking.push_back(made_.steps[wait.index]);
        }
        waits.push_back(made_.add(issue(from_[step.stream].device, takes), blocking));
      }
      made_.steps.push_back(made_.add(step, waits));
      if (step.kind == StepKind::evaluation) evaluations_.push_back(made_.steps.back());
    }
  }

  Retimed take() { return std::move(made_); }

 private:
  /// Whether each value that is sent is waited for by what its device computes next.
  bool sends_block() const {
    std::vector<std::vector<StepId>> sent(host_.size());  // by device: since it computed
    bool is_any = false;
    for (std::size_t s = 0; s < from_.steps.size(); ++s) {
      const Step& step = from_.steps[s];
      std::vector<StepId>& own = sent[from_[step.stream].device.index];
      if (step.kind == StepKind::send && step.work.is_transfer()) {
        own.push_back(id_at<StepId>(s));
        is_any = true;
      } else if (step.op != no_op && from_[step.stream].way == way::compute) {
        const std::span<const StepId> waits = from_.waits_of(step);
        const auto is_awaited = [&](StepId each) { return std::ranges::find(waits, each) != waits.end(); };
        if (!std::ranges::all_of(own, is_awaited)) return false;
        own.clear();
      }
    }
    return is_any;
  }

  Step issue(DeviceId device, Seconds takes) {
    std::optional<StreamId>& stream = host_[device.index];
    if (!stream) {
      stream = id_at<StreamId>(made_.schedule.streams.size());
      made_.schedule.streams.push_back({device, way::network});  // its steps are delays
    }
    Step step;
    step.stream = *stream;
    step.work.seconds = takes;
    return step;
  }

  const Schedule& from_;
  const Problem& problem_;
  std::vector<std::optional<StreamId>> host_;  ///< by device
  std::vector<StepId> evaluations_;            ///< whose time has their issue; hosts go on to the iteration behind them
  Retimed made_;
};

}  // namespace

bool have_issuing_hosts(const Platform& platform) {
  return std::ranges::any_of(platform.devices, [](const Device& device) { return device.host_launch > Seconds{0}; });
}

Retimed issued_by_hosts(const Schedule& schedule, const Problem& problem) {
  return Issuing(schedule, problem).take();
}

Seconds longest_issue(const Schedule& schedule, const Problem& problem) {
  std::vector<Seconds> of(problem.platform.devices.size());
  for (const Step& step : schedule.steps) of[schedule[step.stream].device.index] += issue_of(schedule, problem, step);
  return *std::ranges::max_element(of);
}

}  // namespace plimsoll
