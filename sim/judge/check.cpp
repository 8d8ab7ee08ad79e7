#include "sim/judge/check.h"

#include <memory>
#include <string_view>
#include <utility>

#include "sim/judge/approximations.h"
#include "sim/judge/judges.h"
#include "sim/judge/residency.h"
#include "sim/judge/versions.h"

namespace plimsoll {
namespace {

/// The judges, who hears what, and the walk itself. Where several hear the same, they speak in this order.
class Court {
 public:
  explicit Court(Walk& walk) : walk_(walk) {}

  void sit();

 private:
  using Listeners = std::vector<Judge*>;

  void judge(StepId s);
  void uses(StepId s, BufferId b, std::string_view verb);
  void judge_what_it_does(StepId s);

  template <class... Event, class... Values>
  static void tell(const Listeners& judges, void (Judge::*event)(Event...), Values... values) {
    for (Judge* each : judges) (each->*event)(values...);
  }

  Walk& walk_;
  ResidencyJudge residency_{walk_};
  VersionJudge versions_{walk_};
  ApproximationJudge approximations_{walk_};
  std::unique_ptr<Judge> costs_ = cost_judge(walk_);
  std::unique_ptr<Judge> inputs_ = input_judge(walk_, versions_);
  std::unique_ptr<Judge> outputs_ = output_judge(walk_, versions_);
  std::unique_ptr<Judge> runs_ = run_judge(walk_);
  std::unique_ptr<Judge> copies_ = copy_judge(walk_, approximations_);
  std::unique_ptr<Judge> flows_ = flow_judge(walk_, residency_);
  std::unique_ptr<Judge> exchanges_ = exchange_judge(walk_, approximations_);
  std::unique_ptr<Judge> clipping_ = clipping_judge(walk_);
  std::unique_ptr<Judge> evaluations_ = evaluation_judge(walk_);
  std::unique_ptr<Judge> places_ = place_judge(walk_);
  std::unique_ptr<Judge> iteration_ = iteration_judge(walk_);

  const Listeners op_{inputs_.get(), clipping_.get(), outputs_.get(), &approximations_, runs_.get()};
  const Listeners exchange_{flows_.get(), exchanges_.get()};
  const Listeners end_{evaluations_.get(), runs_.get(), places_.get(), iteration_.get(), &approximations_, &versions_};
};

void Court::sit() {
  const Schedule& schedule = walk_.schedule;
  flows_->prepare();
  for (const BufferId b : schedule.resident) {
    residency_.is_resident(b);
    if (walk_.holdings.life_of(b) != Life::unborn) continue;
    walk_.holdings.allocate(b);
    walk_.holdings[b].tensors = {schedule[b].tensor};
  }
  iteration_->begin();
  for (std::size_t s = 0; s < schedule.steps.size() && !walk_.findings.are_enough(); ++s) {
    if (!walk_.before.next()) {
      return walk_.findings.report(Rule::malformed, id_at<StepId>(s),
                                   "the order of the steps takes more than " + std::to_string(most_clock_entries) +
                                       " clock entries to follow: too many streams wait for one another");
    }
    judge(id_at<StepId>(s));
  }
  if (!walk_.findings.are_enough()) tell(end_, &Judge::end);
}

void Court::judge(StepId s) {
  const Schedule& schedule = walk_.schedule;
  const Step& step = schedule[s];
  for (const BufferId b : schedule.buffers_in(step.reads)) uses(s, b, "reads");
  for (const BufferId b : schedule.buffers_in(step.writes)) {
    uses(s, b, "writes");
    residency_.overwrites(s, b);
  }
  for (const BufferId b : schedule.buffers_in(step.allocates)) {
    residency_.allocates(s, b);
    walk_.holdings.allocate(b);
  }
  costs_->states(s);
  evaluations_->states(s);
  judge_what_it_does(s);
  for (const BufferId b : schedule.buffers_in(step.reads)) walk_.holdings[b].readers.push_back(s);
  for (const BufferId b : schedule.buffers_in(step.frees)) {
    residency_.frees(s, b);
    walk_.holdings.free(b);
  }
}

void Court::uses(StepId s, BufferId b, std::string_view verb) {
  residency_.uses(s, b, verb);
  if (!walk_.exchanges.empty()) flows_->uses(s, b, verb);
}

void Court::judge_what_it_does(StepId s) {
  const Step& step = walk_.schedule[s];
  if (walk_.evaluates(step)) {
    evaluations_->converts(s);
  } else if (step.collective != no_collective) {
    tell(exchange_, &Judge::exchanges, s);
  } else if (step.work.is_transfer()) {
    copies_->copies(s);
  } else if (step.op != no_op) {
    tell(op_, &Judge::runs_op, s);
  } else if (step.reads.count + step.writes.count + step.allocates.count > 0) {  // else it only frees
    (walk_.clips(step) ? clipping_ : copies_)->converts(s);
  }
}

}  // namespace

std::vector<Violation> check(const Schedule& schedule, const Graph& graph, const Platform& platform,
                             std::size_t limit) {
  Findings findings(schedule, graph, limit);
  if (is_well_formed(schedule, graph, platform, findings)) {
    Walk walk(schedule, graph, platform, findings);
    Court(walk).sit();
  }
  return findings.take();
}

}  // namespace plimsoll
