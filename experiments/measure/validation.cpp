#include "experiments/measure/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "experiments/commands/commands.h"
#include "experiments/measure/calibration.h"
#include "experiments/measure/validation_rows.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/worker_pool.h"
#include "platforms/platform_file.h"
#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"
#include "sim/memory/replay.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "validate/network_model.h"
#include "validate/replay.h"

namespace plimsoll {
namespace {

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
      std::cerr << "interrupted: what is finished is kept\n";
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
    constexpr std::size_t repetitions = 15;
    const std::optional<MachineRates> rates =
        backend_->measure(pace_to_host(shape_), pace_to_device(shape_), repetitions, proceed);
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

  /// Every strategy that can treat the network, on a budget between its least and store_all's peak.
  std::vector<ScheduleToRun> candidates_of(const Subject& subject, Bytes most) const {
    std::vector<ScheduleToRun> candidates;
    for (const auto& [spec, passes] : subject.problem.index ? asked_.chain_strategies : asked_.graph_strategies) {
      try {
        const Backward backward = backward_for(passes);
        const Inner inner = inner_for(passes);
        const Problem& problem = subject.with(backward, inner);
        const PlanOutcome nothing = plan_one(problem, passes, Bytes{0});
        const Infeasible* none = std::get_if<Infeasible>(&nothing);
        const Bytes least = none != nullptr && none->smallest ? *none->smallest : Bytes{0};
        const double range = static_cast<double>(std::max(Bytes{0}, most - least).count);
        const Bytes budget = least + Bytes{std::llround(asked_.between * range)};
        PlanOutcome outcome = plan_one(problem, passes, budget);
        if (Plan* made = std::get_if<Plan>(&outcome)) {
          made->schedule.strategy = spec;
          candidates.push_back({spec, budget, backward, inner, std::move(made->schedule), {}, {}});
        } else {
          std::cerr << fmt::format("{}: left out: {}\n", spec, std::get<Infeasible>(outcome).reason);
        }
      } catch (const InputError& error) {
        std::cerr << fmt::format("{}: left out: {}\n", spec, error.what());
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

  /// PyTorch's rules on the simulated timeline, beside what the run that differs most from them took; nothing where
  /// the run used no such allocator. A budget is no limit there: the machine's memory is.
  std::optional<PredictedAndMeasured> reserved_of(Schedule schedule, const Timeline& simulated,
                                                  const ScheduleToRun& candidate) const {
    if (candidate.reserved.empty() || !candidate.reserved.front()) return std::nullopt;
    schedule.budget.reset();
    PredictedAndMeasured reserved;
    reserved.predicted =
        peak_reserved(schedule, simulated, platform_, usual(AllocatorKind::cuda))[platform_.devices[0].memory.index]
            .reserved;
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
    row.reserved = reserved_of(schedule, simulated, candidate);
    const auto middle = std::ranges::find(seconds, row.measured_time.value) - seconds.begin();
    row.measured_kinds = seconds_by_kind(schedule, candidate.runs[static_cast<std::size_t>(middle)]);
    return row;
  }

  const Bars& bars() const { return on_gpu() ? gpu_bars : cpu_bars; }

  void sum_up() const {
    const std::filesystem::path folder = request_.folder;
    Json object{{"made_by", by_.made_by},
                {"date", by_.date},
                {"device", by_.device},
                {"library", by_.library},
                {"validation", asked_.name}};
    object["rounds"] = asked_.rounds;
    object["summary"] = summary_json(rows_, bars());
    object["rows"] = Json::array();
    for (const ValidationRow& row : rows_) object["rows"].push_back(to_json(row));
    write_json_file(folder / "validation.json", object);
    const std::string head =
        fmt::format("{}\n{}, {}, {}, {} rounds\n", by_.made_by, by_.date, by_.device, by_.library, asked_.rounds);
    const std::string table = validation_table(rows_, bars());
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
