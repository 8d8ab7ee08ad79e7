// The curve of the bound against memory: what bounds say at each of its budgets, and convex between them.

#include "experiments/sweep/bound_curve.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "experiments/report/report.h"
#include "experiments/study/model.h"
#include "experiments/study/run.h"
#include "platforms/platform_file.h"
#include "sim/bound/iteration_bound.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

Problem problem_on(const std::string& trace, const std::string& platform) {
  return problem_of(Question{.trace = trace, .platform = platform, .strategy = parse_pipeline("store_all", "test")});
}

TEST_CASE("a bound's curve has the bounds within its budgets, which fall ever more slowly", "[bound]") {
  const Problem problem = problem_on("gpt4_ops_w256_t128_b4_cpu", "rtx_4090_pcie4");
  const Bytes least = lower_bounds(problem, 1).memory, most{110'327'808};
  for (const bool copies : {false, true}) {
    CAPTURE(copies);
    const std::vector<BoundAt> curve = bound_curve(problem, copies, least, most, 9);
    REQUIRE(curve.size() > 9);
    CHECK(curve.back().budget == most);
    std::size_t bends = 0;
    BoundRules rules;
    if (copies) rules.out = ways_out(problem.platform, DeviceId{0});
    IterationBounds bounds(problem, DeviceId{0}, rules);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      CHECK(curve[i].time == bounds.within(curve[i].budget).time);
      bends += curve[i].bends ? 1 : 0;
      if (i == 0) continue;
      REQUIRE(curve[i - 1].budget < curve[i].budget);
      CHECK(curve[i - 1].time >= curve[i].time);
      const Bytes middle{(curve[i - 1].budget.count + curve[i].budget.count) / 2};
      CHECK(curve[i - 1].price == bounds.within(middle).price);
      CHECK(curve[i - 1].price >= curve[i].price * (1 - 1e-9));
    }
    CHECK(bends > 2);
  }
}

TEST_CASE("a report has the curves of its sweep, and a sweep that goes on plans them once", "[bound][sweep]") {
  const TemporaryFolder folder;
  const auto made = [&](bool resume) {
    write_text_file(folder / "e.yaml",
                    "format: plimsoll.experiment.v1\nname: n\ntraces: 'uniform:8'\nplatforms: ideal\n"
                    "strategies: [store_all, rotor]\nengine: event\nmemory: 80 %\n");
    REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = resume}) == 0);
    return report_data(read_results({folder / "out"}), "test")["figures"][0]["bound_curves"];
  };
  const Json curves = made(false);
  REQUIRE(curves.size() == 2);
  CHECK(curves[0]["plans"] == "recompute");
  CHECK(curves[1]["plans"] == "offload");
  for (const Json& curve : curves) {
    REQUIRE(curve["points"].size() > 2);
    CHECK(curve["points"].back()["lower_bound_s"].get<double>() == Approx(0.024));  // all eight stages once
  }
  Json manifest = Json::parse(read_text_file(folder / "out" / "manifest.json"));
  manifest["cases"][0]["bound_curves"] = Json::array();
  write_text_file(folder / "out" / "manifest.json", manifest.dump());
  CHECK(made(true).empty());
  manifest["cases"][0]["bound_curves"] = nullptr;
  write_text_file(folder / "out" / "manifest.json", manifest.dump());
  CHECK(made(true) == curves);
}

TEST_CASE("several devices have no curve, and copies none where no link leads away", "[bound]") {
  CHECK(bound_curves_json(problem_on("uniform:8", "ideal"), Bytes{4'000'000}, Bytes{9'000'000}).size() == 2);
  CHECK(bound_curves_json(problem_on("transformer:layers=1", "a100_sxm_8"), Bytes{1}, Bytes{1'000'000'000}).empty());
  CHECK(bound_curves_json(problem_on("uniform:8", "ideal"), Bytes{9'000'000}, Bytes{9'000'000}).empty());
}

}  // namespace
}  // namespace plimsoll
