// Timelines in the records of a sweep and in its report, and transforms in its questions.

#include "experiments/sweep/timeline_record.h"

#include <catch2/catch.hpp>
#include <set>
#include <string_view>

#include "experiments/report/report.h"
#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

const std::string experiment_text =
    "format: plimsoll.experiment.v1\n"
    "name: pictures\n"
    "traces: [vgg16_b8_cpu]\n"
    "platforms: [rtx_4090_pcie4]\n"
    "strategies: [store_all, offload_greedy, demand_layering, 'sparse_update(train=last:2)', "
    "'sparse_update(train=last:2)|rotor']\n"
    "memory: {from: smallest, to: store_all, count: 5}\n"
    "optimizer: adam\n"
    "engine: event\n";

Json record_of(const Problem& problem, const std::string& spec) {
  const std::optional<Bytes> unlimited;
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), unlimited);
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  return timeline_record(problem, schedule, simulate_event(schedule, problem.platform));
}

const Json& lane(const Json& record, std::string_view name) {
  for (const Json& each : record["lanes"]) {
    if (each["name"] == name) return each["spans"];
  }
  throw std::runtime_error("no lane " + std::string(name));
}

double length(const Json& spans) {
  double sum = 0;
  for (const Json& span : spans) sum += span[1].get<double>() - span[0].get<double>();
  return sum;
}

TEST_CASE("a timeline's record holds what each stream did, and how full the memory was", "[timelines]") {
  const Json record = record_of(problem_of(worked_example(), gpus({})), "store_all");
  REQUIRE(record["lanes"].size() == 1);
  const Json& compute = lane(record, "compute");
  REQUIRE(compute.size() == 5);  // the loss's forward takes no time
  CHECK(compute[0] == Json{0.0, 1.0, "forward"});
  CHECK(compute[2] == Json{2.0, 3.0, "backward"});
  CHECK(compute[4] == Json{5.0, 7.0, "backward"});
  std::int64_t fullest = 0;
  for (const Json& row : record["memory"]) {
    REQUIRE(row.size() == record["memory_kinds"].size() + 1);
    std::int64_t sum = 0;
    for (std::size_t k = 1; k < row.size(); ++k) sum += row[k].get<std::int64_t>();
    fullest = std::max(fullest, sum);
  }
  CHECK(fullest == 22);
}

// 30 bytes leave and return at 5 B/s.
TEST_CASE("copies in both directions have lanes of their own, and say what they move", "[timelines]") {
  const Json record = record_of(problem_of(even_chain(2), gpus({.to_host = BytesPerSecond{5}})), "save_on_cpu");
  CHECK(length(lane(record, "compute")) == Approx(6));
  for (const std::string name : {"device_to_host", "host_to_device"}) {
    CHECK(length(lane(record, name)) == Approx(6));
    for (const Json& span : lane(record, name)) CHECK(span[2] == "activation");
  }
}

TEST_CASE("a sweep keeps timelines where it is asked to, and the report shows the least memory of each",
          "[timelines]") {
  CHECK_FALSE(parse_experiment(experiment_text, "x.yaml").timelines);
  CHECK(parse_experiment(experiment_text + "timelines: true\n", "x.yaml").timelines);
  const TemporaryFolder folder;
  write_text_file(folder.path / "with.yaml", experiment_text + "timelines: true\n");
  write_text_file(folder.path / "without.yaml", experiment_text);
  for (const std::string name : {"with", "without"}) {
    REQUIRE(sweep({.experiment = folder.path / (name + ".yaml"),
                   .folder = folder.path / name,
                   .jobs = 1,
                   .resume = false,
                   .shard = {},
                   .command_line = "test"}) == 0);
  }
  CHECK_FALSE(report_data(read_sweep(folder.path / "without"), "test")["figures"][0].contains("timelines"));
  const Json data = report_data(read_sweep(folder.path / "with"), "test");
  const Json& figure = data["figures"][0];
  REQUIRE(figure["timelines"].size() == 5);
  for (std::size_t s = 0; s < 5; ++s) {
    const Json& timeline = figure["timelines"][s];
    CHECK(timeline["strategy"] == figure["series"][s]["strategy"]);
    for (const Json& point : figure["series"][s]["points"]) {
      if (point["feasible"]) CHECK(timeline["peak_bytes"] <= point["peak_bytes"]);
    }
    double last = 0;
    for (const Json& each : timeline["lanes"]) last = std::max(last, each["spans"].back()[1].get<double>());
    CHECK(last == Approx(timeline["makespan_s"].get<double>()).epsilon(1e-9));
  }
}

TEST_CASE("a case's facts are those of the whole model, a record's bounds those of what its transform leaves",
          "[timelines]") {
  Experiment experiment = parse_experiment(experiment_text, "x.yaml");
  const SweepInputs inputs({experiment, "x.yaml", ""});
  const CaseFacts plain = facts_of(experiment, inputs, 0);
  experiment.strategies = {parse_pipeline("sparse_update(train=last:2)", "test"), parse_pipeline("store_all", "test")};
  const CaseFacts transformed_first = facts_of(experiment, inputs, 0);
  CHECK(transformed_first.lower_bound == plain.lower_bound);
  CHECK(transformed_first.store_all == plain.store_all);
  std::vector<Json> records;
  const std::vector<std::optional<Bytes>> budgets(5);
  const std::size_t wanted = 0;
  CaseProblem problem;
  for (std::size_t group = 0; group < 2; ++group) {
    answer_points(experiment, inputs, problem, group, budgets, std::span(&wanted, 1),
                  [&](const Json& each) { records.push_back(each); });
  }
  CHECK(records[0]["lower_bound_s"] < records[1]["lower_bound_s"]);
  CHECK(records[0]["makespan_s"] < records[1]["makespan_s"]);
}

}  // namespace
}  // namespace plimsoll
