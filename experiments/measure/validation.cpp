#include "experiments/measure/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "experiments/measure/calibration.h"
#include "experiments/measure/legal_peaks.h"
#include "experiments/study/build_name.h"
#include "experiments/study/exit_code.h"
#include "experiments/study/percent.h"
#include "experiments/study/progress.h"
#include "experiments/study/run.h"
#include "experiments/sweep/worker_pool.h"
#include "platforms/platform_file.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/output_error.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "sim/memory/replay.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "validate/compare.h"
#include "validate/network_model.h"
#include "validate/replay.h"

namespace plimsoll {
namespace {

// What one schedule came to, predicted and measured, and all of them together.

struct PredictedAndMeasured {
  Bytes predicted, measured;
  bool as_issued = true;  ///< the allocator is simulated on all that the run asks of its own, in its order

  double error() const { return static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1; }
};

/// What is asked for. Live peaks are those of an order that the schedule allows, and reserved memory is exact where the
/// replay's own allocator is simulated.
inline constexpr double time_mean_bar = 0.02, time_worst_bar = 0.08, tau_bar = 0.9;

/// Times are relative to store_all of the same run.
struct ValidationRow {
  std::string network, strategy;
  Bytes budget;
  double predicted = 0;
  WithSpread measured;
  Seconds predicted_time, measured_time;
  Bytes predicted_peak, measured_peak;           ///< live; the measured one of the round that is furthest off
  LegalPeaks legal;                              ///< what the schedule's own order allows
  std::optional<PredictedAndMeasured> reserved;  ///< where an allocator was measured; the one that differs most
  std::map<StepKind, Seconds> predicted_kinds, measured_kinds;

  double error() const { return predicted / measured.value - 1; }
  /// Of always guessing that a schedule is as fast as store_all.
  double error_of_guess() const { return 1 / measured.value - 1; }
};

Json kinds_json(const std::map<StepKind, Seconds>& kinds) {
  Json object = Json::object();
  for (const auto& [kind, seconds] : kinds) object[std::string(written(kind)) + "_s"] = seconds.value;
  return object;
}

std::vector<std::string> networks_of(const std::vector<ValidationRow>& rows) {
  std::vector<std::string> names;
  for (const ValidationRow& row : rows) {
    if (std::ranges::find(names, row.network) == names.end()) names.push_back(row.network);
  }
  return names;
}

std::vector<ValidationRow> of_network(const std::vector<ValidationRow>& rows, const std::string& network) {
  std::vector<ValidationRow> own;
  std::ranges::copy_if(rows, std::back_inserter(own), [&](const ValidationRow& r) { return r.network == network; });
  return own;
}

Ranking ranking_of(const std::vector<ValidationRow>& rows) {
  std::vector<double> predicted;
  std::vector<WithSpread> measured;
  predicted.reserve(rows.size());
  measured.reserve(rows.size());
  for (const ValidationRow& row : rows) {
    predicted.push_back(row.predicted);
    measured.push_back(row.measured);
  }
  return ranking_of(predicted, measured);
}

template <class Error>
ErrorSummary errors_of(const std::vector<ValidationRow>& rows, Error error) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ValidationRow& row : rows) errors.push_back((row.*error)());
  return summary_of(errors);
}

ErrorSummary errors_of(const std::vector<ValidationRow>& rows) {
  return errors_of(rows, &ValidationRow::error);
}
ErrorSummary errors_of_guess(const std::vector<ValidationRow>& rows) {
  return errors_of(rows, &ValidationRow::error_of_guess);
}

std::int64_t worst_peak_error(const std::vector<ValidationRow>& rows) {
  std::int64_t worst = 0;
  for (const ValidationRow& row : rows) {
    const std::int64_t error = (row.predicted_peak - row.measured_peak).count;
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  return worst;
}

/// How far a peak lies beyond what is legal; 0 within.
Bytes outside(Bytes peak, const LegalPeaks& legal) {
  return std::max({Bytes{0}, legal.least - peak, peak - legal.most});
}

/// Beyond what is legal.
Bytes worst_outside(const std::vector<ValidationRow>& rows) {
  Bytes worst;
  for (const ValidationRow& row : rows) worst = std::max(worst, outside(row.measured_peak, row.legal));
  return worst;
}

/// Unset where no allocator was measured that is simulated.
std::optional<double> worst_reserved_error(const std::vector<ValidationRow>& rows) {
  std::optional<double> worst;
  for (const ValidationRow& row : rows) {
    if (!row.reserved || !row.reserved->as_issued) continue;
    if (std::abs(row.reserved->error()) >= std::abs(worst.value_or(0))) worst = row.reserved->error();
  }
  return worst;
}

std::string pairs_text(std::size_t pairs, std::size_t outside_noise, std::size_t ranked_right) {
  return fmt::format("{} of {} pairs differ by more than the noise, {} of them as predicted", outside_noise, pairs,
                     ranked_right);
}

Json errors_json(const std::vector<ValidationRow>& rows) {
  const ErrorSummary errors = errors_of(rows);
  Json object{{"schedules", rows.size()},
              {"time_error_mean", errors.mean},
              {"time_error_median", errors.median},
              {"time_error_worst", errors.worst},
              {"peak_error_worst_bytes", worst_peak_error(rows)},
              {"peak_outside_worst_bytes", worst_outside(rows).count},
              {"guess_error_mean", errors_of_guess(rows).mean}};
  const Ranking ranking = ranking_of(rows);
  object["tau_b"] = ranking.tau_b;
  object["pairs"] = ranking.pairs;
  object["pairs_outside_noise"] = ranking.outside_noise;
  object["pairs_ranked_right"] = ranking.ranked_right;
  if (const std::optional<double> reserved = worst_reserved_error(rows)) object["reserved_error_worst"] = *reserved;
  return object;
}

Json to_json(const ValidationRow& row) {
  Json object{{"network", row.network},
              {"strategy", row.strategy},
              {"budget_bytes", row.budget.count},
              {"predicted_relative", row.predicted},
              {"measured_relative", row.measured.value},
              {"measured_spread", row.measured.spread},
              {"time_error", row.error()},
              {"predicted_s", row.predicted_time.value},
              {"measured_s", row.measured_time.value},
              {"predicted_peak_bytes", row.predicted_peak.count},
              {"measured_peak_bytes", row.measured_peak.count},
              {"legal_peaks_bytes", {row.legal.least.count, row.legal.most.count}},
              {"predicted_by_kind", kinds_json(row.predicted_kinds)},
              {"measured_by_kind", kinds_json(row.measured_kinds)}};
  if (row.reserved) {
    object["predicted_reserved_bytes"] = row.reserved->predicted.count;
    object["measured_reserved_bytes"] = row.reserved->measured.count;
    object["reserved_as_issued"] = row.reserved->as_issued;
  }
  return object;
}

/// Errors of all rows, tau-b network by network and its mean, and whether the bars hold.
Json summary_json(const std::vector<ValidationRow>& rows) {
  Json all = errors_json(rows);
  double tau = 0;
  std::size_t pairs = 0, outside_noise = 0, ranked_right = 0;  // of schedules of one network
  Json networks = Json::array();
  const std::vector<std::string> names = networks_of(rows);
  for (const std::string& name : names) {
    Json own = errors_json(of_network(rows, name));
    tau += own["tau_b"].get<double>() / static_cast<double>(names.size());
    pairs += own["pairs"].get<std::size_t>();
    outside_noise += own["pairs_outside_noise"].get<std::size_t>();
    ranked_right += own["pairs_ranked_right"].get<std::size_t>();
    networks.push_back({{"network", name}, {"errors", std::move(own)}});
  }
  all["tau_b"] = tau;
  all["pairs"] = pairs;
  all["pairs_outside_noise"] = outside_noise;
  all["pairs_ranked_right"] = ranked_right;
  const ErrorSummary errors = errors_of(rows);
  Json bars{{"time_error_mean", errors.mean <= time_mean_bar},
            {"time_error_worst", std::abs(errors.worst) <= time_worst_bar},
            {"peak_error", worst_outside(rows) == Bytes{0}},
            {"tau_b", tau >= tau_bar}};
  if (const std::optional<double> reserved = worst_reserved_error(rows)) bars["reserved_error"] = *reserved == 0;
  return {{"all", std::move(all)}, {"networks", std::move(networks)}, {"bars_held", std::move(bars)}};
}

/// Everything as a table for people.
std::string validation_table(const std::vector<ValidationRow>& rows) {
  std::string text;
  for (const std::string& network : networks_of(rows)) {
    const std::vector<ValidationRow> own = of_network(rows, network);
    text += fmt::format("{}\n  {:<32}{:>10}{:>10}{:>9}{:>9}{:>14}{:>12}\n", network,
                        "times of store_all's:", "predicted", "measured", "spread", "error", "live peak B", "error B");
    for (const ValidationRow& row : own) {
      text += fmt::format("  {:<32}{:>10.4f}{:>10.4f}{:>9.4f}{:>+8.1f}%{:>14}{:>12}\n", row.strategy, row.predicted,
                          row.measured.value, row.measured.spread, in_percent(row.error(), 1), row.measured_peak.count,
                          (row.predicted_peak - row.measured_peak).count);
      if (row.legal.least != row.legal.most) {
        const Bytes beyond = outside(row.measured_peak, row.legal);
        text += fmt::format("  {:<32}its order allows live peaks of {} to {} B{}\n", "", row.legal.least.count,
                            row.legal.most.count,
                            beyond > Bytes{0} ? fmt::format(": {} B beyond", beyond.count) : std::string());
      }
      if (!row.reserved) continue;
      text += fmt::format("  {:<32}reserved {} B, predicted {} B ({:+.2f} %)\n", "", row.reserved->measured.count,
                          row.reserved->predicted.count, in_percent(row.reserved->error(), 2));
    }
    const ErrorSummary errors = errors_of(own);
    const Ranking ranking = ranking_of(own);
    text += fmt::format(
        "  time: mean {:.1f} %, median {:.1f} %, worst {:+.1f} %; guessing store_all's: mean {:.1f} %\n",
        100 * errors.mean, 100 * errors.median, in_percent(errors.worst, 1), 100 * errors_of_guess(own).mean);
    text += fmt::format("  ranking: tau-b {:.3f}; {}\n", ranking.tau_b,
                        pairs_text(ranking.pairs, ranking.outside_noise, ranking.ranked_right));
  }
  const Json summary = summary_json(rows);
  const Json& all = summary["all"];
  const auto held = [&](const char* bar) { return summary["bars_held"][bar].get<bool>() ? "held" : "missed"; };
  text += fmt::format(
      "all {} schedules\n  time error: mean {:.1f} % (bar {:g} %: {}), median {:.1f} %, worst {:+.1f} % (bar {:g} %: "
      "{})\n"
      "  always guessing store_all's time: mean {:.1f} %\n"
      "  live peak: worst error {} B, beyond what the schedule's order allows {} B (bar 0 B: {})\n"
      "  ranking: tau-b {:.3f}, mean of the networks (bar {:g}: {}); {}\n",
      rows.size(), 100 * all["time_error_mean"].get<double>(), 100 * time_mean_bar, held("time_error_mean"),
      100 * all["time_error_median"].get<double>(), in_percent(all["time_error_worst"].get<double>(), 1),
      100 * time_worst_bar, held("time_error_worst"), 100 * all["guess_error_mean"].get<double>(),
      all["peak_error_worst_bytes"].get<std::int64_t>(), all["peak_outside_worst_bytes"].get<std::int64_t>(),
      held("peak_error"), all["tau_b"].get<double>(), tau_bar, held("tau_b"),
      pairs_text(all["pairs"].get<std::size_t>(), all["pairs_outside_noise"].get<std::size_t>(),
                 all["pairs_ranked_right"].get<std::size_t>()));
  if (const std::optional<double> reserved = worst_reserved_error(rows)) {
    text += fmt::format("  reserved: worst error {:+.2f} % where the allocator is simulated (bar 0 %: {})\n",
                        in_percent(*reserved, 2), held("reserved_error"));
  }
  return text;
}

struct Interrupted {};

/// So many schedules run between two runs of store_all, whose mean is their unit of time: machines change their speed.
constexpr std::size_t runs_a_unit = 3;

/// A schedule to be validated, and what its replays measured.
struct ScheduleToRun {
  std::string strategy;
  Bytes budget;
  Backward backward = Backward::whole;
  Inner inner = Inner::together;
  Schedule schedule;
  std::vector<Timeline> runs;                                ///< one a round
  std::vector<Seconds> units = {};                           ///< what store_all took around each run
  std::vector<std::optional<AllocatorPeaks>> reserved = {};  ///< of the device, one a round where it is measured
};

/// A network on the machine, with the times that a first calibration gave.
struct Subject {
  std::string reference;
  Trace plain;  ///< before anything was measured
  Problem problem;
  Problem apart = {};  ///< with what stages save as tensors of their own, for what packs; of a graph the same
  std::optional<SplitBackwards> split;
  std::unique_ptr<RunnableNetwork> network;

  /// Throws where the network's backwards are not split.
  const Problem& with(Backward backward, Inner inner) const {
    if (backward == Backward::whole) return inner == Inner::apart ? apart : problem;
    if (!split) throw InputError("a graph's backwards cannot be split");
    return split->problem;
  }
};

Problem made_problem(Trace trace, const Platform& platform, Optimizer optimizer, Inner inner = Inner::together) {
  const bool is_chain = std::holds_alternative<Chain>(trace.model);
  std::variant<Problem, std::string> made =
      make_problem(std::move(trace.model), platform,
                   {.optimizer = is_chain ? optimizer : Optimizer::none,
                    .update_kernels = UpdateKernels::single,  // as the backends launch them
                    .inner = inner});
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  return std::move(std::get<Problem>(made));
}

PlanOutcome plan_one(const Problem& problem, std::span<const Pass> passes, std::optional<Bytes> budget) {
  const Problem changed = transformed(problem, passes);
  refuse_ranks(changed);
  return plan(changed, passes, budget);
}

class Validator {
 public:
  explicit Validator(const ValidationRequest& request)
      : request_(request), asked_(request.validation), backend_(backend_of(request)) {}

  int run() {
    std::error_code error;
    std::filesystem::create_directories(request_.folder, error);
    if (error) throw OutputError(located(request_.folder, {}, "", "cannot make the folder: " + error.message()));
    write_text_file(rows_file(), "");
    int exit_code = exit_fine;
    try {
      calibrate();
      for (const std::string& network : asked_.networks) validate(network);
    } catch (const Interrupted&) {
      std::cerr << "interrupted: finished results are kept\n";
      exit_code = exit_interrupted;
    }
    if (!rows_.empty()) sum_up();
    return exit_code;
  }

 private:
  /// One for all networks: their kernels must be alike.
  static std::unique_ptr<Backend> backend_of(const ValidationRequest& request) {
    const std::vector<std::string>& networks = request.validation.networks;
    for (const std::string& network : networks) {
      if (kernels_of(network) == kernels_of(networks.front())) continue;
      throw InputError(fmt::format("networks '{}' and '{}' have different kernels", networks.front(), network));
    }
    return networks.empty() ? make_backend(request.backend) : make_backend(networks.front(), request.backend);
  }

  bool on_gpu() const { return request_.backend.backend != "cpu"; }
  bool allocates_in_stream_order() const { return request_.backend.allocation == "stream-ordered"; }

  std::filesystem::path rows_file() const { return std::filesystem::path(request_.folder) / "rows.jsonl"; }

  void stop_if_asked() const {
    if (interruption_.asked()) throw Interrupted{};
  }

  void calibrate() {
    shape_ = load_platform(asked_.platform);
    const auto proceed = [this](const std::string& next) {
      stop_if_asked();
      std::cerr << "measuring " << next << '\n';
      return true;
    };
    constexpr std::uint32_t enough = 15;  // and no more often than the networks are measured
    const std::optional<MachineRates> rates =
        backend_->measure(pace_to_host(shape_), pace_to_device(shape_), std::min(enough, asked_.rounds), proceed);
    EXPECTS(rates);
    by_ = {made_by(request_.command_line), today(), backend_->device(), backend_->library()};
    const std::string text = calibrated_platform(shape_, shape_.name, *rates, by_);
    write_text_file(std::filesystem::path(request_.folder) / "platform.yaml", text);
    platform_ = parse_platform(text, "platform.yaml");
  }

  Replayed run_once(const Subject& subject, const Schedule& schedule) {
    return run_once(subject, subject.problem, schedule);
  }

  Replayed run_once(const Subject& subject, const Problem& problem, const Schedule& schedule) {
    stop_if_asked();
    ReplayOptions options{.links = &shape_};
    if (on_gpu()) options.expected = simulate_event(schedule, platform_);
    std::variant<Replayed, ReplayFailure> outcome = replay(problem, schedule, *subject.network, options);
    if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) {
      throw InputError(fmt::format("{}, {}: {}", subject.reference, schedule.strategy, failure->what));
    }
    return std::move(std::get<Replayed>(outcome));
  }

  /// The network with times from a few replays, good enough to plan with.
  Subject subject_of(const std::string& reference) {
    NamedNetwork named = named_network(reference);
    const std::optional<Optimizer> updates = named.view == View::chain ? std::optional(asked_.optimizer) : std::nullopt;
    const Trace plain{model_of(backend_->prepared(std::move(named.network))->network(), named.view)};
    Subject subject{.reference = reference,
                    .plain = plain,
                    .problem = made_problem(plain, platform_, asked_.optimizer),
                    .split = split_backwards(plain, platform_, asked_.optimizer),
                    .network = backend_->prepared(named_network(reference, updates).network)};
    const Schedule sweeps = calibration_schedule(subject.problem);
    OpTimes times;
    constexpr int repetitions = 4;
    for (int r = 0; r < repetitions; ++r) {
      const Timeline ran = run_once(subject, sweeps).timeline;
      if (r > 0) times.add(subject.problem.graph, sweeps, ran);
      sweep_parts(subject, r > 0);
    }
    Trace timed = calibrated_trace(plain, subject.problem, times, subject.split, by_);
    subject.split = split_backwards(timed, platform_, asked_.optimizer);
    subject.apart = made_problem(timed, platform_, asked_.optimizer, Inner::apart);
    subject.problem = made_problem(std::move(timed), platform_, asked_.optimizer);
    return subject;
  }

  /// Runs the parts of split backwards, where the network has them.
  void sweep_parts(Subject& subject, bool counts) {
    if (!subject.split) return;
    auto& [problem, sweeps, times] = *subject.split;
    const Timeline ran = run_once(subject, problem, sweeps).timeline;
    if (counts) times.add(problem.graph, sweeps, ran);
  }

  /// A schedule on a budget between the strategy's least and store_all's peak, or why there is none.
  std::variant<ScheduleToRun, std::string> candidate_of(const Subject& subject, const Pipeline& strategy,
                                                        Bytes most) const {
    try {
      const auto& [spec, passes] = strategy;
      const Backward backward = backward_for(passes);
      const Inner inner = inner_for(passes);
      const Problem& problem = subject.with(backward, inner);
      const PlanOutcome nothing = plan_one(problem, passes, Bytes{0});
      const Infeasible* none = std::get_if<Infeasible>(&nothing);
      const Bytes least = none != nullptr && none->smallest ? *none->smallest : Bytes{0};
      const double range = static_cast<double>(std::max(Bytes{0}, most - least).count);
      const Bytes budget = least + Bytes{std::llround(asked_.between * range)};
      PlanOutcome outcome = plan_one(problem, passes, budget);
      Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) return std::get<Infeasible>(outcome).reason;
      made->schedule.strategy = spec;
      return ScheduleToRun{spec, budget, backward, inner, std::move(made->schedule), {}, {}};
    } catch (const InputError& error) {
      return error.what();
    }
  }

  /// Of every strategy that can treat the network. All processors plan: a lent GPU waits for it.
  std::vector<ScheduleToRun> candidates_of(const Subject& subject, Bytes most) const {
    const auto& strategies = subject.problem.index ? asked_.chain_strategies : asked_.graph_strategies;
    std::vector<std::variant<ScheduleToRun, std::string>> made(strategies.size());
    std::vector<std::exception_ptr> defects(strategies.size());
    std::atomic<std::size_t> next{0};
    const auto plan_all = [&] {
      for (std::size_t s = next++; s < strategies.size(); s = next++) {
        try {
          made[s] = candidate_of(subject, strategies[s], most);
        } catch (...) {
          defects[s] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> threads;
      const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
      for (std::size_t t = 0; t < std::min(processors, strategies.size()); ++t) threads.emplace_back(plan_all);
    }
    std::vector<ScheduleToRun> candidates;
    for (std::size_t s = 0; s < strategies.size(); ++s) {
      if (defects[s]) std::rethrow_exception(defects[s]);
      if (ScheduleToRun* candidate = std::get_if<ScheduleToRun>(&made[s])) {
        candidates.push_back(std::move(*candidate));
      } else {
        std::cerr << fmt::format("{}: left out: {}\n", strategies[s].text, std::get<std::string>(made[s]));
      }
    }
    return candidates;
  }

  void validate(const std::string& reference) {
    std::cerr << reference << '\n';
    Subject subject = subject_of(reference);
    const Pass store_all = pass_of(store_all_strategy);
    const Schedule plain = std::get<Plan>(plan_one(subject.problem, std::span(&store_all, 1), std::nullopt)).schedule;
    const Bytes most = simulate_event(plain, platform_).peaks[0].bytes;
    std::vector<ScheduleToRun> candidates = candidates_of(subject, most);
    const Schedule sweeps = calibration_schedule(subject.problem);
    OpTimes times;
    Progress progress(std::size_t{asked_.rounds + 1} *
                      (candidates.size() + (candidates.size() + runs_a_unit - 1) / runs_a_unit + 2));
    for (std::uint32_t round = 0; round <= asked_.rounds; ++round) {  // the first one warms up
      const auto shown = [&](Replayed ran) {
        progress.add(true);
        progress.show();
        return ran;
      };
      const Timeline swept = shown(run_once(subject, sweeps)).timeline;
      sweep_parts(subject, round > 0);
      std::vector<Timeline> stored;
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        if (c % runs_a_unit == 0) stored.push_back(shown(run_once(subject, plain)).timeline);
        const Problem& problem = subject.with(candidates[c].backward, candidates[c].inner);
        Replayed ran = shown(run_once(subject, problem, candidates[c].schedule));
        if (round == 0) continue;
        candidates[c].runs.push_back(std::move(ran.timeline));
        candidates[c].reserved.push_back(device_allocator(ran));
      }
      stored.push_back(shown(run_once(subject, plain)).timeline);
      if (round == 0) continue;
      times.add(subject.problem.graph, sweeps, swept);
      for (const Timeline& run : stored) times.add(subject.problem.graph, plain, run);
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        const std::size_t before = c / runs_a_unit;
        candidates[c].units.push_back(0.5 * (stored[before].makespan + stored[before + 1].makespan));
      }
    }
    progress.clear_line();
    std::ofstream rows(rows_file(), std::ios::app);
    for (const ScheduleToRun& candidate : candidates) {
      rows_.push_back(row_of(subject, times, plain, candidate));
      rows << json_text(to_json(rows_.back())) << '\n';
    }
    if (!rows.flush()) throw OutputError(located(rows_file().string(), {}, "", "cannot write"));
    const Trace trace = calibrated_trace(subject.plain, subject.problem, times, subject.split, by_);
    const std::string file = fmt::format("trace_{}.json", ++networks_done_);
    write_trace(std::filesystem::path(request_.folder) / file, trace);
  }

  std::optional<AllocatorPeaks> device_allocator(const Replayed& run) const {
    return run.allocators.empty() ? std::nullopt : run.allocators[platform_.devices[0].memory.index];
  }

  /// PyTorch's rules on the timeline in whose order the host issues (run_once), beside what the run that differs most
  /// from them took; nothing where the run used no such allocator. A budget is no limit there: the machine's memory is.
  std::optional<PredictedAndMeasured> reserved_of(const Problem& problem, const ScheduleToRun& candidate) const {
    if (candidate.reserved.empty() || !candidate.reserved.front() || allocates_in_stream_order()) return std::nullopt;
    Schedule schedule = candidate.schedule;
    const Timeline issued = simulate_event(schedule, platform_);
    schedule.budget.reset();
    PredictedAndMeasured reserved;
    reserved.predicted =
        peak_reserved(schedule, issued, platform_, usual(AllocatorKind::cuda))[platform_.devices[0].memory.index]
            .reserved;
    reserved.as_issued = std::ranges::all_of(schedule.buffers, [&](const Buffer& each) {
      return each.range_length == problem.graph[each.tensor].bytes;  // chunks share the room of their tensor
    });
    const auto error = [&](const std::optional<AllocatorPeaks>& run) {
      return std::abs((run->reserved - reserved.predicted).count);
    };
    reserved.measured = (*std::ranges::max_element(candidate.reserved, {}, error))->reserved;
    return reserved;
  }

  ValidationRow row_of(const Subject& subject, const OpTimes& times, const Schedule& plain,
                       const ScheduleToRun& candidate) const {
    const Timeline stored = simulate_event(retimed(plain, subject.problem.graph, times), platform_);
    const bool is_whole = candidate.backward == Backward::whole;
    const Graph& graph = subject.with(candidate.backward, candidate.inner).graph;
    const Schedule schedule = retimed(candidate.schedule, graph, is_whole ? times : subject.split->times);
    const Timeline simulated = simulate_event(schedule, platform_);
    ValidationRow row;
    row.network = subject.reference;
    row.strategy = candidate.strategy;
    row.budget = candidate.budget;
    row.predicted = simulated.makespan / stored.makespan;
    row.predicted_time = simulated.makespan;
    row.predicted_peak = row.measured_peak = simulated.peaks[0].bytes;
    row.legal = legal_peaks(schedule, platform_, platform_.devices[0].memory);
    row.predicted_kinds = seconds_by_kind(schedule, simulated);
    std::vector<double> relative, seconds, distances;
    for (std::size_t r = 0; r < candidate.runs.size(); ++r) {
      const Timeline& run = candidate.runs[r];
      relative.push_back(run.makespan / candidate.units[r]);
      seconds.push_back(run.makespan.value);
      const auto error = [&](Bytes peak) {
        return std::pair(outside(peak, row.legal), std::abs((peak - row.predicted_peak).count));
      };
      if (error(run.peaks[0].bytes) > error(row.measured_peak)) row.measured_peak = run.peaks[0].bytes;
    }
    row.measured.value = median(relative);
    for (const double each : relative) distances.push_back(std::abs(each - row.measured.value));
    row.measured.spread = median(std::move(distances));
    row.measured_time = Seconds{median(seconds)};
    row.reserved = reserved_of(subject.with(candidate.backward, candidate.inner), candidate);
    const auto middle = std::ranges::find(seconds, row.measured_time.value) - seconds.begin();
    row.measured_kinds = seconds_by_kind(schedule, candidate.runs[static_cast<std::size_t>(middle)]);
    return row;
  }

  void sum_up() const {
    const std::filesystem::path folder = request_.folder;
    Json object{{"made_by", by_.made_by},
                {"date", by_.date},
                {"device", by_.device},
                {"library", by_.library},
                {"validation", asked_.name}};
    object["rounds"] = asked_.rounds;
    object["summary"] = summary_json(rows_);
    object["rows"] = Json::array();
    for (const ValidationRow& row : rows_) object["rows"].push_back(to_json(row));
    write_json_file(folder / "validation.json", object);
    const std::string head =
        fmt::format("{}\n{}, {}, {}, {} rounds\n", by_.made_by, by_.date, by_.device, by_.library, asked_.rounds);
    const std::string table = validation_table(rows_);
    write_text_file(folder / "validation.txt", head + table);
    std::cout << table;
  }

  const ValidationRequest& request_;
  const Validation& asked_;
  const std::unique_ptr<Backend> backend_;
  const Interruption interruption_;
  MeasuredBy by_;
  Platform shape_;     ///< as asked for: copies are held to its link
  Platform platform_;  ///< with what was measured
  std::vector<ValidationRow> rows_;
  std::size_t networks_done_ = 0;
};

}  // namespace

int validate(const ValidationRequest& request) {
  return Validator(request).run();
}

}  // namespace plimsoll
