// compare --pytorch: the table of a small measurement by hand, and files that are none.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

using nlohmann::json;

json measured_run(const char* model, const char* strategy, double predicted, double measured, int promised, int peak) {
  return {{"model", model},
          {"strategy", strategy},
          {"budget_bytes", nullptr},
          {"differences", json::array()},
          {"predicted", {{"seconds", 1.0}, {"relative", predicted}, {"peak_bytes", promised}}},
          {"measured", {{"seconds", {1.0}}, {"relative", measured}, {"spread", 0.01}, {"peak_bytes", peak}}}};
}

json small_measurement() {
  json file{{"format", "plimsoll.pytorch_measurement.v1"}, {"device", "cpu"}, {"date", "2026-11-25"}};
  file["versions"]["torch"] = "1.13";
  // Errors of time: 0, +10 %, -20 %; of peaks: 0, -1 % (above its promise by 1.0101 %), +1 %.
  file["rows"] = {measured_run("a", "rotor", 1.25, 1.25, 1000, 1000), measured_run("a", "dtr", 1.1, 1.0, 990, 1000),
                  measured_run("b", "rotor", 1.6, 2.0, 1010, 1000)};
  file["rows"][2]["differences"] = {"gradient of w in step 0"};
  return file;
}

ProgramRun compared(const std::string& text, const std::string& more = "") {
  const TemporaryFolder folder;
  std::ofstream(folder / "m.json") << text;
  return plimsoll("compare --pytorch m.json " + more, "cd " + folder.path.string() + " &&");
}

}  // namespace

TEST_CASE("plans run by PyTorch: errors, ranking and what guessing 1 scores, by hand", "[program][pytorch]") {
  const ProgramRun run = compared(small_measurement().dump(), "--json");
  REQUIRE(run.exit_code == 0);
  const json answer = json::parse(run.out);
  const json& all = answer["all"];
  CHECK(all["plans"] == 3);
  CHECK(all["time_error_mean"].get<double>() == Approx(0.1));
  CHECK(all["time_error_worst"].get<double>() == Approx(-0.2));
  CHECK(all["peak_error_mean"].get<double>() == Approx(0.02 / 3));
  CHECK(all["most_above_promise"].get<double>() == Approx(1000.0 / 990 - 1));
  CHECK(all["tau_b"] == 1.0);
  // Guessing 1: 1/1.25 - 1 = -0.2, 0, 1/2 - 1 = -0.5.
  CHECK(all["guessing_1_time_error_mean"].get<double>() == Approx(0.7 / 3));
  CHECK(answer["models"]["b"]["plans"] == 1);
  CHECK(answer["strategies"]["rotor"]["time_error_mean"].get<double>() == Approx(0.1));
  const ProgramRun table = compared(small_measurement().dump());
  CHECK(table.out.find("3 plans run by PyTorch 1.13 on cpu, 2026-11-25\n") == 0);
  CHECK(table.out.find("differs: gradient of w in step 0\n") != std::string::npos);
  CHECK(
      table.out.ends_with("2 of 3 plans train as plain training does, bit for bit; the most that one needs above its "
                          "promise is 1.010 %\n"));
}

TEST_CASE("rows of plans say when the host had issued them, and how far plain training is from itself",
          "[program][pytorch]") {
  json file = small_measurement();
  file["rows"][0]["measured"]["issue_share"] = 0.25;
  file["rows"][0]["plain"]["issue_share"] = 0.5;
  file["rows"][1]["measured"]["issue_share"] = 0.9;
  file["rows"][2]["plain"]["issue_share"] = 0.95;
  file["rows"][2]["deviation"] = 4e-3;
  file["rows"][2]["control_deviation"] = 1e-3;
  const std::string table = compared(file.dump()).out;
  CHECK(table.find("%    25 %    50 %\n") != std::string::npos);
  CHECK(table.find("%    90 %       -  bound by the host\n") != std::string::npos);
  CHECK(table.find("%       -    95 %  bound by the host  differs: gradient of w in step 0 and 0 more, by 4.0e-03, "
                   "plain training from "
                   "itself by 1.0e-03\n") != std::string::npos);
  CHECK(table.find("all that the host does not bind      1     0.00 %") != std::string::npos);
  CHECK(table.find("2 of 3 plans train as plain training does, bit for bit; 1 more differ by at most 4 times what "
                   "plain training differs "
                   "from itself; ") != std::string::npos);
  const json answer = json::parse(compared(file.dump(), "--json").out);
  CHECK(answer["not_bound_by_host"]["plans"] == 1);
  CHECK(answer["rows"][1]["bound_by_host"] == true);
  CHECK(answer["rows"][1]["plain_issue_share"].is_null());
  CHECK(compared(small_measurement().dump()).out.find("more differ") == std::string::npos);
  file["rows"][2]["deviation"] = 4.1e-3;
  CHECK(compared(file.dump()).out.find("1 more differ") == std::string::npos);
}

TEST_CASE("the ranking of plans is by predicted times", "[program][pytorch]") {
  json file = small_measurement();
  file["rows"][2]["predicted"]["relative"] =
      1.05;  // the slowest is predicted to be the fastest: one pair of three is right
  const json all = json::parse(compared(file.dump(), "--json").out)["all"];
  CHECK(all["tau_b"].get<double>() == Approx(-1.0 / 3));
}

TEST_CASE("files that are no measurement of PyTorch are refused", "[program][pytorch]") {
  const ProgramRun trace = compared(R"({"format": "plimsoll.trace.v1"})");
  CHECK(trace.exit_code == 2);
  CHECK(trace.err ==
        "m.json: format: expected \"plimsoll.pytorch_measurement.v1\": this is not a file of "
        "validate/pytorch/measure.py\n");
  json file = small_measurement();
  file["rows"][1].erase("measured");
  const ProgramRun bare = compared(file.dump());
  CHECK(bare.exit_code == 2);
  CHECK(bare.err.find("rows[1]: missing key 'measured'") != std::string::npos);
  file = small_measurement();
  file["rows"][0]["measured"]["relative"] = 0;
  const ProgramRun zero = compared(file.dump());
  CHECK(zero.exit_code == 2);
  CHECK(zero.err.find("rows[0].measured.relative: expected a number above 0, found 0") != std::string::npos);
  const ProgramRun both = compared(small_measurement().dump(), "--within 3");
  CHECK(both.exit_code == 2);
}

}  // namespace plimsoll
