// Schedules that ran on a GPU (validate/results/2026-11-26_h100), planned anew as they were then and simulated on what
// the machine is: how far off the times are.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/json/json.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string folder = "validate/results/2026-11-26_h100/";

struct Recorded {
  std::string network, strategy;
  Bytes budget;
  double seconds = 0;
  Json planned, ran;  ///< seconds by kind: as predicted then, and as measured
};

std::vector<Recorded> recorded_rows() {
  std::vector<Recorded> rows;
  std::ifstream file(folder + "rows.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    rows.push_back({row["network"], row["strategy"], Bytes{row["budget_bytes"].get<std::int64_t>()}, row["measured_s"],
                    row["predicted_by_kind"], row["measured_by_kind"]});
  }
  return rows;
}

double seconds_in(const Json& kinds, const std::string& kind) {
  return kinds.value(kind + "_s", 0.0);
}

Problem problem_on(const Trace& trace, const Platform& platform) {
  const bool is_chain = std::holds_alternative<Chain>(trace.model);
  return std::get<Problem>(make_problem(
      trace.model, platform,
      {.optimizer = is_chain ? Optimizer::adam : Optimizer::none, .update_kernels = UpdateKernels::single}));
}

/// Seconds of all copies of a kind, each alone.
double copying(const Schedule& schedule, const Platform& platform, StepKind kind) {
  double sum = 0;
  for (const Step& step : schedule.steps) {
    if (step.kind != kind || !step.work.is_transfer()) continue;
    const Endpoints ends = schedule.routes[step.work.route.index];
    const Route route = route_between(platform, ends.from, ends.to).value();
    sum += route.latency.value + (step.work.bytes / route.bandwidth).value;
  }
  return sum;
}

class Machine {
 public:
  Machine() {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("trace_")) continue;
      Trace trace = read_trace(entry.path());
      traces_.emplace(name_of(trace), std::move(trace));
    }
  }

  struct Run {
    Schedule schedule;
    Timeline timeline;
    bool as_planned = false;  ///< the copies that ran then
  };

  /// A plan on the platform that was believed then, lowered and run on what it was.
  Run run(const Recorded& row) const {
    const Trace& trace = traces_.at(row.network);
    const Problem believed = problem_on(trace, believed_), real = problem_on(trace, real_);
    const std::optional<Bytes> budget = row.budget;
    const std::vector<Pass> passes = parse_spec(row.strategy, "test");
    const PlannedParts parts = std::get<PlannedParts>(plan_parts(believed, passes, std::span(&budget, 1)).front());
    Run made;
    const Schedule planned = plan_of(believed, parts, budget).schedule;
    made.as_planned = true;
    for (const auto& [kind, name] :
         {std::pair{StepKind::offload, "offload"}, std::pair{StepKind::prefetch, "prefetch"}}) {
      // Updates on the host held copies up then: less than alone they never took.
      const double then = seconds_in(row.planned, name), now = copying(planned, believed_, kind);
      const bool has_host_updates = row.strategy == "zero_offload" || row.strategy == "twinflow";
      made.as_planned &= has_host_updates ? now <= then * 1.001 : std::abs(now - then) <= 1e-3 * std::max(now, then);
    }
    made.schedule = std::get<Schedule>(lower(real, *parts.partition, parts.tapes));
    CHECK(check(made.schedule, real.graph, real_).empty());
    made.timeline = simulate_event(made.schedule, real_);
    CHECK(simulate_simgrid(made.schedule, real_).makespan.value == Approx(made.timeline.makespan.value).epsilon(1e-9));
    return made;
  }

 private:
  std::map<std::string, Trace> traces_;
  Platform believed_ = read_platform(folder + "recorded_platform.yaml"),
           real_ = read_platform(folder + "platform.yaml");
};

TEST_CASE("schedules that ran on a GPU take the time that is simulated", "[recorded][eleventh-3]") {
  // Their copies ran at 40 to 44 GB/s in the median round and apart in the others (spreads of 10 and 14 % of
  // store_all), the same bytes by other strategies of the same network at 49 and 55 GB/s: four other processes used the
  // host.
  const std::set<std::pair<std::string, std::string>> disturbed{{"gpt", "vdnn"}, {"gpt", "offload_dp"}};
  const Machine machine;
  std::size_t otherwise = 0, rows = 0;
  double sum = 0;
  for (const Recorded& row : recorded_rows()) {
    INFO(row.network << ", " << row.strategy);
    const Machine::Run run = machine.run(row);
    if (!run.as_planned) {
      ++otherwise;
      continue;
    }
    const double error = run.timeline.makespan.value / row.seconds - 1;
    CAPTURE(error, run.timeline.makespan.value, row.seconds);
    if (row.strategy == "zero_offload" || row.strategy == "twinflow") {
      CHECK(std::abs(error) <= 0.15);
    } else if (disturbed.contains({row.network.substr(0, row.network.find(':')), row.strategy})) {
      CHECK(std::abs(error) <= 0.20);
    } else {
      ++rows;
      sum += std::abs(error);
      CHECK(std::abs(error) <= 0.05);
    }
  }
  CHECK(otherwise <= 2);  // pofo of mlp and capuchin of resnet: the trace has other times than those planned with
  REQUIRE(rows >= 58);
  CHECK(sum / static_cast<double>(rows) <= 0.01);
}

TEST_CASE("what runs again does not load the network's input again", "[recorded]") {
  const Machine machine;
  for (const Recorded& row : recorded_rows()) {
    if (row.strategy != "revolve" && row.strategy != "rotor" && row.strategy != "ap_sqrt") continue;
    INFO(row.network << ", " << row.strategy);
    const Machine::Run run = machine.run(row);
    double again = 0;
    for (const Step& step : run.schedule.steps) again += step.kind == StepKind::recompute ? step.work.seconds.value : 0;
    const double measured = seconds_in(row.ran, "recompute");
    CHECK(again == Approx(measured).epsilon(row.network.starts_with("resnet") ? 0.08 : 0.012));
  }
}

}  // namespace
}  // namespace plimsoll
