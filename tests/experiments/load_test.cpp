// `plimsoll load`: its search against a look at every value, its lines against questions asked one by one, and what it
// says where nothing fits or the question is wrong.

#include "experiments/load/load_line.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "experiments/load/largest.h"
#include "experiments/load/load_mark.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

std::string load_platform_text(std::uint32_t devices) {
  return "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: " +
         std::to_string(devices) +
         ", memory: 1 GB, peak: {bf16: 10 TFLOPS, fp32: 5 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
         "memories:\n  - {name: host, size: 100 GB}\nswitches:\n  - {name: inside}\n"
         "links:\n  - {name: fast, between: [gpu, inside], bandwidth: 20 GBps, latency: 1 us}\n"
         "  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n";
}

struct LoadCase {
  std::string model;
  Varied varied;
  LoadRange range;
  Bytes memory;
  std::vector<std::string> strategies;
  std::uint32_t devices = 1;
};

LoadQuestion load_question_of(const LoadCase& of) {
  LoadQuestion question;
  question.base = {.trace = of.model,
                   .platform = "machine.yaml",
                   .strategy = {},
                   .memory = of.memory,
                   .micro_batches = of.devices,
                   .optimizer = Optimizer::adam,
                   .engine = Engine::event};
  question.varied = of.varied;
  for (const ReferenceNumber& number : model_numbers(of.model)) {
    if (number.name == written(of.varied)) question.number = number;
  }
  question.range = of.range;
  question.memory = of.memory;
  for (const std::string& strategy : of.strategies) question.strategies.push_back(parse_pipeline(strategy, "test"));
  return question;
}

/// The question as somebody who knows nothing of load lines asks it: each value by itself.
Answer asked_alone(const LoadCase& of, const std::string& strategy, const std::string& model,
                   const Platform& platform) {
  Question question{.trace = model,
                    .platform = "machine.yaml",
                    .strategy = parse_pipeline(strategy, "test"),
                    .memory = of.memory,
                    .micro_batches = of.devices,
                    .optimizer = Optimizer::adam};
  const BudgetedProblem made = budgeted_problem_of(question, load_model(model), platform);
  return answer(question, made.problem, std::span(&made.budget, 1)).front();
}

const std::vector<std::string> on_one{"store_all", "full_recompute", "rotor", "offload_greedy", "rotor|offload_greedy"};
const std::vector<std::string> on_two{"rotor", "1f1b|rotor", "zero3", "zero3|rotor"};

}  // namespace

TEST_CASE("where all smaller values fit, the search finds the largest of all that fit", "[load]") {
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    const std::uint32_t step = random.between(1, 5), first = step * random.between(1, 9);
    const LoadRange range{first, first + step * random.below(random.chance(0.5) ? 12 : 3000), step};
    const std::uint32_t limit = random.between(0, range.to + 2 * step);
    std::set<std::uint32_t> asked;
    const std::optional<std::uint32_t> found = largest_that(range, [&](std::uint32_t value) {
      CHECK(value >= range.from);
      CHECK(value <= range.to);
      CHECK(value % step == 0);
      asked.insert(value);
      return value <= limit;
    });
    std::optional<std::uint32_t> largest;
    for (std::uint64_t i = 0; i < range.count(); ++i) {
      if (range.at(i) <= limit) largest = range.at(i);
    }
    CHECK(found == largest);
    CHECK(asked.size() < 45);
    if (found && *found < range.to) CHECK(asked.contains(*found + step));
  }
}

TEST_CASE("where values that fit come and go, the search says of none that fits that it does not", "[load]") {
  std::size_t with_holes = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    const LoadRange range{1, random.between(1, 200), 1};
    const std::uint32_t limit = random.between(1, range.to), every = random.between(2, 6);
    const auto fits = [&](std::uint32_t value) { return value <= limit && (value % every == 0 || value < limit / 2); };
    std::set<std::uint32_t> asked;
    const std::optional<std::uint32_t> found = largest_that(range, [&](std::uint32_t value) {
      asked.insert(value);
      return fits(value);
    });
    if (!found) {
      for (const std::uint32_t value : {1U, 2U, 3U, 4U}) CHECK((value > range.to || !fits(value)));
      continue;
    }
    CHECK(fits(*found));
    for (const std::uint32_t value : asked) CHECK((value <= *found || !fits(value)));
    for (std::uint32_t value = *found + 1; value <= std::min(range.to, *found + 4); ++value) {
      CHECK(asked.contains(value));
    }
    std::uint32_t holes = 0;
    for (std::uint32_t value = 1; value < *found; ++value) holes += fits(value) ? 0 : 1;
    with_holes += holes > 0 ? 1 : 0;
  }
  if (all_cases()) CHECK(with_holes > 100);
}

TEST_CASE("load lines end where a question for each value ends, with its times and peaks", "[load][eleventh-6]") {
  const std::string small = "transformer:layers=3,width=64,heads=8,sequence=32,vocabulary=96";
  const std::vector<LoadCase> cases{
      {small, Varied::batch, {1, 60, 1}, Bytes{15'000'000}, on_one},
      {small, Varied::layers, {1, 40, 1}, Bytes{9'000'000}, on_one},
      {small, Varied::width, {8, 400, 8}, Bytes{9'000'000}, on_one},
      {small, Varied::sequence, {16, 800, 16}, Bytes{12'000'000}, on_one},
      {small + ",view=graph", Varied::batch, {1, 40, 1}, Bytes{12'000'000}, {"store_all", "snapshot(offload=no)"}},
      {"mlp:layers=4,width=64,classes=8", Varied::batch, {64, 4096, 64}, Bytes{3'000'000}, {"store_all", "rotor"}},
      {small, Varied::batch, {1, 60, 1}, Bytes{15'000'000}, on_two, 2}};
  std::size_t marks = 0;
  for (const RandomCase place : fewer_cases(0, cases.size() - 1)) {
    const LoadCase& of = cases.at(place);
    const Platform platform = parse_platform(load_platform_text(of.devices), "machine.yaml");
    LoadQuestion question = load_question_of(of);
    question.points = 3;
    const std::optional<LoadAnswer> found = load_lines(question, platform, 2);
    REQUIRE(found);
    REQUIRE(found->exit_code == 0);
    for (const LoadLine& line : found->lines) {
      CAPTURE(of.model, std::string(written(of.varied)), line.strategy);
      std::optional<std::uint32_t> largest;
      for (std::uint64_t i = 0; i < of.range.count(); ++i) {
        const std::uint32_t value = of.range.at(i);
        const Answer alone = asked_alone(of, line.strategy, question.model_at(value), platform);
        if (alone.feasible()) largest = value;
        const LoadPoint* point = line.at(value);
        if (point == nullptr) continue;
        CAPTURE(value);
        CHECK(point->outcome == alone.outcome);
        if (!alone.feasible()) continue;
        CHECK(point->makespan->value == Approx(alone.metrics->makespan.value).epsilon(1e-9));
        CHECK(*point->peak == alone.metrics->peak);
        CHECK(*point->peak <= of.memory);
      }
      const LoadMark mark = mark_of(question, line);
      REQUIRE((mark.largest != nullptr) == largest.has_value());
      if (!largest) continue;
      CHECK(mark.largest->value == *largest);
      CHECK(mark.holes.empty());
      marks += mark.next != nullptr ? 1 : 0;
      const auto above = [&](const LoadBoundPoint& bound) {
        return bound.value <= *largest && bound.least > of.memory;
      };
      if (of.devices == 1) CHECK(std::ranges::none_of(found->bounds, above));
    }
  }
  if (every_case()) CHECK(marks >= 20);  // ends within the range, not at it
}

TEST_CASE("the largest within a time is that of a question for each value", "[load]") {
  const LoadCase of{"transformer:layers=3,width=64,heads=8,sequence=32,vocabulary=96",
                    Varied::batch,
                    {1, 40, 1},
                    Bytes{15'000'000},
                    {"store_all", "full_recompute"}};
  const Platform platform = parse_platform(load_platform_text(1), "machine.yaml");
  LoadQuestion question = load_question_of(of);
  std::vector<std::vector<Answer>> alone;  // by strategy and value
  for (const std::string& strategy : of.strategies) {
    alone.emplace_back();
    for (std::uint64_t i = 0; i < of.range.count(); ++i) {
      alone.back().push_back(asked_alone(of, strategy, question.model_at(of.range.at(i)), platform));
    }
  }
  for (const double factor : {0.5, 1.5, 6.0, 1000.0}) {
    question.within = factor * alone[0][3].metrics->makespan;
    const std::optional<LoadAnswer> found = load_lines(question, platform, 1);
    REQUIRE(found);
    for (std::size_t s = 0; s < of.strategies.size(); ++s) {
      CAPTURE(factor, of.strategies[s]);
      std::optional<std::uint32_t> largest;
      for (std::uint64_t i = 0; i < of.range.count(); ++i) {
        if (alone[s][i].feasible() && alone[s][i].metrics->makespan <= *question.within) largest = of.range.at(i);
      }
      const LoadPoint* within = found->lines[s].largest_within(*question.within);
      REQUIRE((within != nullptr) == largest.has_value());
      if (within != nullptr) CHECK(within->value == *largest);
    }
  }
}

TEST_CASE("more memory never lowers a load mark", "[load]") {
  LoadCase of{"transformer:layers=3,width=64,heads=8,sequence=32,vocabulary=96",
              Varied::batch,
              {1, 400, 1},
              Bytes{},
              {"store_all", "full_recompute", "rotor"}};
  const Platform platform = parse_platform(load_platform_text(1), "machine.yaml");
  std::vector<std::uint32_t> before(of.strategies.size(), 0);
  for (const std::int64_t memory : {8'000'000, 10'000'000, 14'000'000, 20'000'000, 40'000'000}) {
    of.memory = Bytes{memory};
    const std::optional<LoadAnswer> found = load_lines(load_question_of(of), platform, 2);
    REQUIRE(found);
    for (std::size_t s = 0; s < found->lines.size(); ++s) {
      const LoadPoint* largest = found->lines[s].largest();
      CAPTURE(memory, found->lines[s].strategy);
      const std::uint32_t now = largest == nullptr ? 0 : largest->value;
      CHECK(now >= before[s]);
      before[s] = now;
    }
  }
  CHECK(before.front() > 0);
}

TEST_CASE("load prints the same bytes for any number of workers", "[program][load][eleventh-8]") {
  const std::string asks =
      "load -t transformer:layers=4,width=256,heads=8,vocabulary=1000,dtype=fp16 -p v100_pcie --vary batch --optimizer "
      "adam "
      "-m '500 MB' --points 4";
  const ProgramRun one = plimsoll(asks + " --json -j 1"), three = plimsoll(asks + " --json -j 3");
  REQUIRE(one.exit_code == 0);
  nlohmann::json a = nlohmann::json::parse(one.out), b = nlohmann::json::parse(three.out);
  a.erase("made_by"), b.erase("made_by");
  CHECK(a == b);
  CHECK(a["format"] == "plimsoll.load.v1");
  CHECK(a["range"]["step"] == 1);
  REQUIRE(a["lines"].size() == 5);
  for (const nlohmann::json& line : a["lines"]) {
    CAPTURE(line["strategy"]);
    REQUIRE(line["largest"].is_object());
    const double samples = line["largest"]["value"];
    CHECK(line["largest"]["per_sample_s"].get<double>() * samples ==
          Approx(line["largest"]["makespan_s"].get<double>()));
    CHECK(line["largest"]["per_token_s"].get<double>() * samples * 1024 ==
          Approx(line["largest"]["makespan_s"].get<double>()));
    CHECK(line["next"]["value"] == line["largest"]["value"].get<int>() + 1);
    CHECK(line["beyond"].size() >= 3);
  }
  CHECK(plimsoll(asks + " -j 1").out == plimsoll(asks + " -j 2").out);
}

TEST_CASE("load writes its picture, the same bytes each time", "[program][load][eleventh-4]") {
  const TemporaryFolder folder;
  const std::string asks =
      "load -t mlp:layers=6 -p v100_pcie -m '50 MB' --vary batch -s store_all -s rotor --points 3 -o ";
  for (const char* name : {"a", "b"}) REQUIRE(plimsoll(asks + (folder / name).string()).exit_code == 0);
  for (const char* file : {"load.svg", "load.png", "load.pdf"}) {
    CAPTURE(file);
    const std::string picture = text_of(folder / "a" / file);
    CHECK(picture.size() > 5000);
    CHECK(picture == text_of(folder / "b" / file));
  }
  const std::string svg = text_of(folder / "a" / "load.svg");
  CHECK(svg.find("<svg") != std::string::npos);
}

TEST_CASE("load says what is wrong with its question", "[program][load]") {
  struct Wrong {
    std::string arguments, message;
  };
  const std::vector<Wrong> wrong{
      {"-t transformer:4 --vary bacth",
       "--vary: expected batch, sequence, layers or width, found 'bacth'; did you mean 'batch'?\n"},
      {"-t resnet50_b8_cpu --vary batch",
       "resnet50_b8_cpu: --vary: a trace file has no 'batch'; a model by formula has, such as transformer:layers=24 or "
       "gpt2\n"},
      {"-t resnet50:batch=8 --vary layers", "resnet50:batch=8: --vary: the model has no 'layers'; it can vary batch\n"},
      {"-t uniform:16 --vary batch",
       "uniform:16: --vary: the model has no 'batch', nor anything else that can be varied\n"},
      {"-t transformer:4 --vary batch --from 9 --to 5", "--from, --to: no multiple of 1 lies from 9 to 5\n"},
      {"-t transformer:4 --vary sequence --from 5 --to 100", "--from, --to: no multiple of 128 lies from 5 to 100\n"},
      {"-t transformer:4 --vary batch -m '50 %'",
       "--memory: expected a size such as '16 GB', found '50 %': the peak of store_all is another for each value\n"},
      {"-t transformer:4 --vary batch -s rotor -s rotor", "--strategy: 'rotor' is given twice\n"},
      {"-t transformer:4 --vary batch --within 3",
       "--within: missing unit, expected a time such as 3.2 ms or 5 us, found '3'\n"},
      {"-t transformer:4 --vary batch --points x", "--points: expected a whole number from 0 to 10000, found 'x'\n"}};
  for (const Wrong& each : wrong) {
    CAPTURE(each.arguments);
    const ProgramRun run = plimsoll("load -p v100_pcie " + each.arguments);
    CHECK(run.exit_code == 2);
    CHECK(run.err == each.message);
    CHECK(run.out.empty());
  }
  const ProgramRun unlimited = plimsoll("load -p ideal -t transformer:4 --vary batch");
  CHECK(unlimited.exit_code == 2);
  CHECK(unlimited.err == "--memory: needed, since the memory of 'ideal' is unlimited\n");
  const ProgramRun placed = plimsoll("load -p h200 -t gpt2 --vary batch -s 'heft|rotor'");
  CHECK(placed.exit_code == 2);
  CHECK(placed.err.find("'rotor' works on chain traces only") != std::string::npos);
}

TEST_CASE("load names the least memory where nothing fits, and that no iteration is within the time",
          "[program][load]") {
  const std::string asks = "load -p v100_pcie -t mlp:layers=6 --vary batch -s store_all -s rotor --points 0 ";
  const ProgramRun none = plimsoll(asks + "-m '1 MB'");
  CHECK(none.exit_code == 1);
  const std::string what = "infeasible: no strategy fits 1.00 MB, whatever the batch; at batch=1 ";
  REQUIRE(none.err.starts_with(what));
  const std::size_t needs = none.err.find(" needs the least, ") + 18;
  const std::string least = none.err.substr(needs, none.err.find(" B (") - needs);
  CHECK(plimsoll(asks + "-m '" + least + " B'").exit_code == 0);
  CHECK(plimsoll(asks + "-m '" + std::to_string(std::stoll(least) - 1) + " B'").exit_code == 1);
  const ProgramRun slow = plimsoll(asks + "-m '50 MB' --within '1 ns'");
  CHECK(slow.exit_code == 1);
  CHECK(slow.err.ends_with("no strategy has an iteration within 1.00 ns\n"));
  CHECK(slow.err.starts_with("note: times of 'mlp:layers=6,batch="));
  CHECK(slow.out.find("on v100_pcie (times re-scaled) within 50.00 MB") != std::string::npos);
}

TEST_CASE("strategies that are asked where none is named exist, and treat the model and the platform", "[load]") {
  for (const std::uint32_t devices : {1U, 2U}) {
    const Platform platform = parse_platform(load_platform_text(devices), "machine.yaml");
    for (const std::string view : {"chain", "graph"}) {
      const std::string model = "transformer:layers=2,width=64,heads=8,sequence=32,vocabulary=96,batch=2,view=" + view;
      const LoadCase of{
          model,  Varied::batch, {1, 2, 1}, Bytes{1'000'000'000}, default_load_strategies(load_model(model), platform),
          devices};
      CHECK(of.strategies.size() >= 5);
      const LoadQuestion question = load_question_of(of);
      for (std::size_t s = 0; s < of.strategies.size(); ++s) {
        const LoadPoint point = load_point(question, platform, s, 2);
        CAPTURE(devices, view, of.strategies[s], point.reason);
        CHECK(point.outcome == Outcome::feasible);
      }
    }
  }
}

TEST_CASE("numbers of a reference are read and replaced, also where the first one has no name", "[load]") {
  const auto value_of = [](const std::string& reference, std::string_view name) -> std::int64_t {
    for (const ReferenceNumber& number : model_numbers(reference)) {
      if (number.name == name) return number.value;
    }
    return -1;
  };
  CHECK(value_of("transformer:7", "layers") == 7);
  CHECK(value_of("transformer:7,batch=3", "batch") == 3);
  CHECK(value_of("transformer", "batch") == 1);
  CHECK(value_of("resnet50:batch=9", "batch") == 9);
  CHECK(value_of("mlp:layers=5", "layers") == 5);
  CHECK(value_of("rnn:5", "layers") == 5);
  CHECK(value_of("transformer", "view") == -1);
  CHECK(model_numbers("resnet50_b8_cpu").empty());
  for (const ReferenceNumber& number : model_numbers("transformer:7,width=64")) {
    if (number.name == "layers")
      CHECK(with_number("transformer:7,width=64", number, 9) == "transformer:width=64,layers=9");
    if (number.name == "width") CHECK(with_number("transformer:7,width=64", number, 9) == "transformer:7,width=9");
    if (number.name == "batch") CHECK(with_number("transformer", number, 9) == "transformer:batch=9");
  }
}

}  // namespace plimsoll
