#pragma once
// One question and its answer: a trace, a platform, a strategy and a budget become a schedule, a simulation and
// metrics.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "experiments/study/share.h"
#include "sim/codec/predicted_error.h"
#include "sim/core/names.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/measure/metrics.h"
#include "sim/measure/time_interval.h"
#include "sim/measure/time_parts.h"
#include "sim/measure/transfers.h"
#include "sim/memory/replay.h"
#include "sim/model/problem.h"
#include "strategies/compose/spec.h"
#include "traces/trace_file.h"

namespace plimsoll {

enum class Engine { simgrid, event };

/// What became of a question. `stopped` by the limits of a sweep, `refused` since nothing can be planned for it.
enum class Outcome { feasible, infeasible, out_of_memory, refused, stopped };

/// What --memory states; unset: the device's capacity.
using StatedBudget = std::optional<std::variant<Bytes, Share>>;

/// What is to fit the budget of each device: the live bytes of the simulation; the most live bytes by any timing that
/// the schedule's waits allow; what the allocator reserves.
enum class Within { live, guaranteed, reserved };

/// A question as it was asked, its words understood. Trace and platform are names or paths: problem_of reads them, and
/// after that they are only what outputs call the problem's two halves.
struct Question {
  std::string trace, platform;
  Pipeline strategy;
  StatedBudget memory = {};
  std::uint32_t micro_batches = 1;
  Optimizer optimizer = Optimizer::none;
  std::vector<ParameterGroup> parameter_groups = {};  ///< which other optimizers update
  States states = States::by_dtype;
  UpdateKernels update_kernels = UpdateKernels::fused;
  bool ema = false;                           ///< updates keep averages of parameters
  bool clip_norm = false;                     ///< gradients are scaled by the norm of all
  std::optional<Evaluation> evaluation = {};  ///< between iterations; its size follows from samples
  Gradients gradients = Gradients::fresh;
  Engine engine = Engine::simgrid;
  AllocatorChoice allocator{};
  Within within = Within::live;
  Transfers transfers = Transfers::link;  ///< of what is simulated; plans are made for `link`

  friend bool operator==(const Question&, const Question&) = default;
};

/// How a framework is told to run what the answer chooses: arguments or a file, in lines.
struct FrameworkConfiguration {
  std::string framework, text;
};

/// What would be chosen if one thing were otherwise.
struct ChangedChoice {
  std::string change;    ///< in words
  std::string strategy;  ///< empty: nothing fits, or nothing is left to choose
  std::uint32_t samples = 1;
  Seconds makespan;
  bool is_proven = false;  ///< the best of its space
};

struct Answer {
  std::optional<Bytes> budget;
  Outcome outcome = Outcome::infeasible;   ///< out_of_memory: live bytes fit, what the allocator takes does not
  std::string reason;                      ///< why it is not feasible
  std::optional<Bytes> smallest_feasible;  ///< of this strategy, where it is not feasible
  bool smallest_is_proven = true;          ///< else the least feasible budget is at most that
  std::string smallest_by;                 ///< the op at which a strategy that packs needs that much; empty: unknown
  std::optional<Schedule> schedule;        ///< if feasible
  std::optional<Timeline> timeline;
  std::optional<Metrics> metrics;      ///< with the issue of hosts, of which planners know nothing
  std::vector<Bytes> guaranteed;       ///< by device: the most by any timing; empty: not asked, and it takes long
  std::vector<ReservedPeak> reserved;  ///< by device, by the chosen allocator
  std::optional<Bytes> promised_peak;  ///< the planner's; unset for a schedule from a file
  std::optional<Seconds> promised_makespan;
  std::optional<double> gap;               ///< proven distance from the method's optimum, relative
  std::string note;                        ///< the planner's: which limit ended its search, if one did
  std::vector<Candidate> candidates;       ///< of a strategy that chooses among others
  PredictedErrors errors = {};             ///< of gradients, where codecs are lossy
  std::vector<ChangedChoice> prices = {};  ///< where the question asks for them
  std::optional<FrameworkConfiguration> configuration = {};  ///< where the question is for a framework
  std::optional<Seconds> cutting;             ///< by which its stages, each run alone, lengthen it; unset: not measured
  std::optional<Seconds> issue;               ///< of the busiest host; unset: hosts hold nothing up
  std::optional<TimeInterval> interval = {};  ///< in which the iteration lies; unset: `no_interval` says why
  std::string no_interval = {};
  std::vector<TimePart> time_parts = {};  ///< of the iteration, whose sum is its makespan; empty: no schedule
  Seconds contention;  ///< by which copies and updates that share links and hosts, or slow kernels, lengthen it
  std::optional<LowerBounds> bounds;  ///< unset: nothing holds for all schedules of a strategy that packs
  Stays stays = Stays::all;           ///< of the schedules that they hold for
  double solve_s = 0, simulate_s = 0;

  bool feasible() const { return outcome == Outcome::feasible; }
};

/// A problem, or in one sentence why a trace and a platform do not go together.
using ProblemOutcome = std::variant<Problem, std::string>;

/// The problem behind a question whose trace and platform have been read, as the transforms of its strategy change it;
/// throws InputError where they cannot.
ProblemOutcome problem_of(const Question&, Trace, Platform);

/// The problem behind a question, as the transforms of its strategy change it; throws InputError where names, files or
/// their combination are wrong.
Problem problem_of(const Question&);

/// Throws InputError where the problem is that of a rank of several, whose exchanges `validate` has no times of.
void refuse_ranks(const Problem&);

/// The same with the question's memory in bytes (unset: the device's capacity). A share is of the peak of store_all, on
/// the model as it is without the strategy's transforms. Every file is read once: it may be a pipe.
struct BudgetedProblem {
  Problem problem;
  std::optional<Bytes> budget;
  double transform_s = 0;  ///< wall time of its transforms, among them the searches of hybrid passes
};
BudgetedProblem budgeted_problem_of(const Question&);

/// The same of a trace and a platform that have been read.
BudgetedProblem budgeted_problem_of(const Question&, Trace, Platform);

/// The question that a schedule, read from `file`, answers; of its strategy the transforms. A trace or platform that is
/// not given is the one that the file names; throws InputError where it names none.
Question question_of(const Schedule&, const std::string& file, const std::string& trace, const std::string& platform);

/// The problem that a schedule, read from `file`, was made for, built from its decisions; where it has none, of before
/// files had them, its strategy decides again. Throws InputError where trace or platform are others, and where the
/// decisions are not for them.
Problem problem_of(const Schedule&, const std::string& file, const Question&);

/// What every device has, the budget where none is given; unset: unlimited, or not the same for all.
std::optional<Bytes> capacity_of(const Platform&);

/// In one sentence which host or disk it does not fit, by the event engine; planners answer for devices.
std::optional<std::string> beyond_host_or_disk(const Problem&, const Schedule&);

/// What is simulated of a schedule: with transfers as the question has them, and hosts that issue kernels.
Retimed as_run(const Question&, const Problem&, const Schedule&);

/// The engine's timeline of a schedule.
Timeline simulate(const Schedule&, const Platform&, Engine);

/// How a question's enumerations are written on the command line and in files.
template <>
struct Names<Engine> {
  static constexpr std::array all{std::pair{Engine::simgrid, "simgrid"}, std::pair{Engine::event, "event"}};
};
template <>
struct Names<Within> {
  static constexpr std::array all{std::pair{Within::live, "live"}, std::pair{Within::guaranteed, "guaranteed"},
                                  std::pair{Within::reserved, "reserved"}};
};
template <>
struct Names<Outcome> {
  static constexpr std::array all{std::pair{Outcome::feasible, "feasible"},
                                  std::pair{Outcome::infeasible, "infeasible"},
                                  std::pair{Outcome::out_of_memory, "out_of_memory"},
                                  std::pair{Outcome::refused, "refused"}, std::pair{Outcome::stopped, "stopped"}};
};
template <>
struct Names<Stays> {
  static constexpr std::array all{std::pair{Stays::all, "all"}, std::pair{Stays::parameters, "parameters"},
                                  std::pair{Stays::nothing, "nothing"}};
};
template <>
struct Names<Transfers> {
  static constexpr std::array all{std::pair{Transfers::link, "link"}, std::pair{Transfers::delay, "delay"},
                                  std::pair{Transfers::blocking, "blocking"}, std::pair{Transfers::added, "added"},
                                  std::pair{Transfers::none, "none"}};
};

/// The least budget of a strategy: what it answers to one that is surely too small. Nothing where it cannot tell.
std::optional<Bytes> smallest_feasible(const Problem&, std::span<const Pass>);

/// Is told the answer for the budget at a place. It may be changed into the next one afterwards.
using TakeAnswer = std::function<void(std::size_t place, const Answer&)>;

/// Answers for every budget (unset: the device's capacity), in some order; all are solved together (one table for all).
/// A schedule that answers several budgets is lowered, judged and simulated once, and one schedule is in memory at a
/// time. `transform_s`, which the problem's transforms took, is part of solving. Throws InputError for wrong input,
/// BrokenPromise where check() or the engine contradicts the planner.
void answer(const Question&, const Problem&, std::span<const std::optional<Bytes>> budgets, const TakeAnswer&,
            double transform_s = 0);

/// The same as a list, in the order of the budgets.
std::vector<Answer> answer(const Question&, const Problem&, std::span<const std::optional<Bytes>> budgets,
                           double transform_s = 0);

/// A legal schedule simulated and measured, wherever it is from: feasible where it fits, by the question's allocator
/// too, with nothing promised, and with transfers as the question has them. Throws BrokenPromise where memory counted a
/// second time is not the engine's.
Answer answer(const Question&, const Problem&, Schedule);

}  // namespace plimsoll
