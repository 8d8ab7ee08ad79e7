// Timelines of several devices: what a sweep keeps of them, and their Gantt charts.

#include "experiments/report/gantt.h"

#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "experiments/sweep/record_check.h"
#include "experiments/sweep/timeline_record.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Two devices, two equal stages on each, two micro-batches.
Json record_of_two(const std::string& spec, Backward backward = Backward::whole) {
  const Problem problem =
      problem_of(with_weight_times(even_chain(4)), gpus({.count = 2, .to_peers = BytesPerSecond{100}}),
                 {.micro_batches = 2, .backward = backward});
  const std::optional<Bytes> unlimited;
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), unlimited);
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Timeline timeline = simulate_event(schedule, problem.platform);
  Json record = timeline_record(problem, schedule, timeline);
  record["makespan_s"] = timeline.makespan.value;
  return record;
}

std::set<std::string> kinds_of(const Json& lane) {
  std::set<std::string> kinds;
  for (const Json& span : lane["spans"]) kinds.insert(span[2].get<std::string>());
  return kinds;
}

std::size_t count(std::string_view text, std::string_view piece) {
  std::size_t found = 0;
  for (std::size_t at = text.find(piece); at != std::string_view::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

// A send of 10 bytes takes 0.1 s; forwards of two stages 2 s, backwards 4.
TEST_CASE("a timeline of several devices is kept by device, what follows without a gap as one", "[gantt]") {
  const Json record = record_of_two("1f1b");
  REQUIRE(record["devices"].size() == 2);
  const Json& first = record["devices"][0];
  CHECK(first["name"] == "gpu0");
  REQUIRE(first["lanes"].size() == 2);
  const Json& compute = first["lanes"][0];
  CHECK(compute["name"] == "compute");
  REQUIRE(compute["spans"].size() == 4);
  CHECK(compute["spans"][0] == Json{0.0, 2.0, "forward", 0, 0});
  CHECK(compute["spans"][1] == Json{2.0, 4.0, "forward", 1, 0});
  CHECK(compute["spans"][2][2] == "backward");
  CHECK(compute["spans"][2][0].get<double>() == Approx(2 + 0.1 + 2 + 4 + 0.1));
  CHECK(compute["spans"][2][1].get<double>() == Approx(8.2 + 4));
  const Json& sends = first["lanes"][1];
  REQUIRE(sends["spans"].size() == 2);
  CHECK(sends["spans"][0] == Json{2.0, 2.1, "activation", 0, 0});
  CHECK(kinds_of(record["devices"][1]["lanes"][1]) == std::set<std::string>{"gradient"});
  std::int64_t fullest = 0;
  for (const Json& row : first["memory"]) fullest = std::max(fullest, row[1].get<std::int64_t>());
  CHECK(fullest > 0);
  CHECK(idle_share(record) == Approx(1 - 24 / (2 * record["makespan_s"].get<double>())));
}

TEST_CASE("weight gradients are told apart, and so are a device's parts", "[gantt]") {
  const Json split = record_of_two("zb_h1", Backward::split);
  CHECK(kinds_of(split["devices"][1]["lanes"][0]) == std::set<std::string>{"backward", "forward", "weight_gradient"});
  const Json interleaved = record_of_two("interleaved");
  std::set<std::int64_t> parts;
  for (const Json& span : interleaved["devices"][0]["lanes"][0]["spans"]) parts.insert(span[4].get<std::int64_t>());
  CHECK(parts == std::set<std::int64_t>{0, 1});
  const Json both_ways =
      record_of_two("chimera");  // the first half of the model for one micro-batch, the second for the other
  parts.clear();
  for (const Json& span : both_ways["devices"][0]["lanes"][0]["spans"]) parts.insert(span[4].get<std::int64_t>());
  CHECK(parts == std::set<std::int64_t>{0, 1});
  CHECK(kinds_of(record_of_two("1f1b|full_recompute")["devices"][0]["lanes"][0]).contains("recompute"));
}

TEST_CASE("a Gantt chart has every block's micro-batch, and its file's title", "[gantt]") {
  const std::string file = gantt_svg(record_of_two("1f1b"), "1f1b & <more>");
  CHECK(file.starts_with("<svg xmlns="));
  CHECK(file.ends_with("</svg>\n"));
  CHECK(file.find(">1f1b &amp; &lt;more></text>") != std::string::npos);
  for (const std::string number : {">1</text>", ">2</text>"}) {
    CHECK(count(file, number) - count(file, "\"middle\"" + number) == 4);  // without those of the axis
  }
  CHECK(count(file, "fill=\"#0072B2\"") == 3);  // the legend, and a path a device
  CHECK(file.find("further parts") == std::string::npos);
  CHECK(gantt_svg(record_of_two("interleaved"), "").find("further parts") != std::string::npos);
  const Json nothing = {{"devices", Json::array()}, {"makespan_s", 0.0}};
  CHECK(gantt_svg(nothing, "").ends_with("</svg>\n"));
  CHECK(idle_share(nothing) == 0);
}

TEST_CASE("a kept timeline of several devices that is broken is refused", "[gantt]") {
  const auto wrong = [](const Json& timeline) { return wrong_type_in_record({{"timeline", timeline}}).has_value(); };
  Json record = record_of_two("1f1b");
  CHECK_FALSE(wrong(record));
  for (const Json& span : {Json{0.0, 1.0, "forward", 0}, Json{2.0, 1.0, "forward", 0, 0}, Json{0.0, 1.0, 3, 0, 0},
                           Json{0.0, 1.0, "forward", -1, 0}, Json{0.0, 1.0, "forward", 0, 0.5}, Json("x")}) {
    Json broken = record;
    broken["devices"][1]["lanes"][0]["spans"][0] = span;
    CHECK(wrong(broken));
  }
  Json broken = record;
  broken["devices"][0]["memory"][0] = Json{0.0};
  CHECK(wrong(broken));
  broken = record;
  broken["devices"][0].erase("name");
  CHECK(wrong(broken));
  broken["devices"] = 3;
  CHECK(wrong(broken));
}

// Where matplotlib is missing the report ends with exit code 2, but has drawn these.
TEST_CASE("the pictures of pipelines are what a report draws", "[gantt][program][eleventh-5]") {
  const TemporaryFolder folder;
  const std::array experiments{std::pair("pictures", "m8-"), std::pair("pictures_of_few", "m4-"),
                               std::pair("pictures_with_updates", "m8-sgd-")};
  for (const auto& [experiment, conditions] : experiments) {
    const std::string out = (folder / experiment).string();
    REQUIRE(plimsoll(std::string("sweep strategies/pipelining/pictures/") + experiment + ".yaml -o " + out).exit_code ==
            0);
    plimsoll("report " + out);
  }
  std::size_t pictures = 0;
  for (const auto& entry : std::filesystem::directory_iterator("docs/pipelines")) {
    const std::string name = entry.path().filename().string();
    INFO(name << ": ./dev pictures draws it again");
    std::string drawn = "nothing";
    for (const auto& [experiment, conditions] : experiments) {
      const auto path = folder / experiment / (std::string("eight_stages-four_devices-") + conditions + name);
      if (std::filesystem::exists(path)) drawn = text_of(path);
    }
    CHECK(text_of(entry.path()) == drawn);
    ++pictures;
  }
  CHECK(pictures >= 8);
}

}  // namespace
}  // namespace plimsoll
