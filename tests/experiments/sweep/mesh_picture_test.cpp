// How ranks of a mesh share out a model: what a sweep keeps of it, and its picture.

#include "experiments/report/mesh_picture.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <string>

#include "experiments/sweep/mesh_record.h"
#include "experiments/sweep/record_check.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/problems.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

constexpr const char* two_layers = "transformer:layers=2,width=64,heads=8,sequence=16,batch=4,vocabulary=32,view=graph";

/// Four micro-batches on four devices.
Json record_of(const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem =
      problem_of(synthetic_model(two_layers), gpus({.count = 4, .to_host = {25e9}, .to_peers = BytesPerSecond{100e9}}),
                 {.micro_batches = 4, .optimizer = Optimizer::adam});
  return mesh_record(transformed(problem, passes));
}

const Json& named(const Json& list, const std::string& name) {
  for (const Json& each : list) {
    if (each["name"] == name) return each;
  }
  FAIL("no operator " << name);
  return list;
}

/// Of exchanges of that kind: the sum of a number.
double sum_of(const Json& mesh, const std::string& kind, const std::string& axes, const std::string& phase,
              const char* what) {
  double sum = 0;
  for (const Json& each : mesh["exchanges"]) {
    if (each["kind"] == kind && each["axes"] == axes && each["phase"] == phase) sum += each[what].get<double>();
  }
  return sum;
}

}  // namespace

// Replicas have 2 of the 4 micro-batches. Both layers sum 4 * 16 * 64 numbers of 2 bytes behind the attention and
// behind the MLP, for every micro-batch, forward; all gradients once.
TEST_CASE("what ranks share out and exchange is kept by axis", "[mesh]") {
  for (const char* spec : {"megatron(tensor=2)|data_parallel", "megatron(tensor=2)|data_parallel|rotor"}) {
    CAPTURE(spec);  // the second plans by stages
    const Json mesh = record_of(spec);
    REQUIRE(mesh["axes"].size() == 2);
    CHECK(mesh["axes"][0] == Json({{"name", "data"}, {"ranks", 2}, {"own_micro_batches", true}}));
    CHECK(mesh["axes"][1] == Json({{"name", "tensor"}, {"ranks", 2}, {"own_micro_batches", false}}));
    const Json heads = named(mesh["operators"], "layer*.attention.qkv");
    CHECK(heads["count"] == 2);
    CHECK(heads["cuts"] == Json{nullptr, "a"});
    CHECK(heads["results"] == Json{"whole", "cut"});
    const Json out = named(mesh["operators"], "layer*.attention.out");
    CHECK(out["cuts"] == Json{nullptr, "a"});
    CHECK(out["results"] == Json{"whole", "sum"});
    const double value = 4 * 16 * 64 * 2;
    CHECK(sum_of(mesh, "all_reduce", "tensor", "forward", "bytes") >= 2 * 2 * 2 * value);
    CHECK(sum_of(mesh, "all_reduce", "data", "update", "seconds") > 0);
    CHECK(sum_of(mesh, "all_reduce", "data", "forward", "count") == 0);
    CHECK_FALSE(wrong_type_in_record({{"mesh", mesh}}));
  }
  CHECK(sum_of(record_of("zero3"), "all_gather", "data", "forward", "count") ==
        sum_of(record_of("zero3(prefetch=0)"), "all_gather", "data", "forward", "count"));
}

TEST_CASE("a picture of ranks names dimensions, and joins axes that are alike", "[mesh]") {
  const std::string file = mesh_svg(record_of("megatron(tensor=2)|data_parallel"), "<ranks>");
  CHECK(file.starts_with("<svg xmlns="));
  CHECK(file.ends_with("</svg>\n"));
  for (const char* text :
       {">&lt;ranks></text>", ">data: 2 ranks</text>", ">tensor: 2 ranks</text>", ">own micro-batches</text>",
        ">a: parts of a sum</text>", ">layer*.attention.qkv (2)</text>", ">all_reduce over data, update</text>"}) {
    INFO(text);
    CHECK(file.find(text) != std::string::npos);
  }
  Json mesh = {{"axes", Json::array()}, {"operators", Json::array()}, {"exchanges", Json::array()}};
  for (const char* name : {"x", "y", "z"}) {
    mesh["axes"].push_back({{"name", name}, {"ranks", 2}, {"own_micro_batches", false}});
  }
  mesh["operators"].push_back({{"name", "op"},
                               {"kind", "matmul"},
                               {"count", 1},
                               {"cuts", {"b", "b", nullptr}},
                               {"results", {"cut", "cut", "whole"}}});
  const std::string joined = mesh_svg(mesh, "");
  CHECK(joined.find(">x to y: 4 ranks</text>") != std::string::npos);
  CHECK(joined.find(">z: 2 ranks</text>") != std::string::npos);
  CHECK(joined.find(">nothing between ops</text>") != std::string::npos);
}

TEST_CASE("a kept mesh that is broken is refused", "[mesh]") {
  const Json fine = record_of("megatron(tensor=2)|data_parallel");
  const auto wrong = [&](const std::function<void(Json&)>& change) {
    Json broken = fine;
    change(broken);
    return wrong_type_in_record({{"mesh", broken}}).has_value();
  };
  CHECK_FALSE(wrong([](Json&) {}));
  CHECK(wrong([](Json& mesh) { mesh = 3; }));
  CHECK(wrong([](Json& mesh) { mesh["axes"] = Json::array(); }));
  CHECK(wrong([](Json& mesh) { mesh["axes"][0]["ranks"] = 0; }));
  CHECK(wrong([](Json& mesh) { mesh["axes"][0].erase("own_micro_batches"); }));
  CHECK(wrong([](Json& mesh) { mesh["operators"][0]["cuts"].push_back(nullptr); }));
  CHECK(wrong([](Json& mesh) { mesh["operators"][0]["results"][0] = 1; }));
  CHECK(wrong([](Json& mesh) { mesh["exchanges"][0]["bytes"] = -1; }));
  CHECK(wrong([](Json& mesh) { mesh["exchanges"][0]["beside"] = "yes"; }));
}

// Where matplotlib is missing the report ends with exit code 2, but has drawn this.
TEST_CASE("a report draws how ranks share out a model", "[mesh][program][eleventh-7]") {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), file = (folder / "ranks.yaml").string();
  write_text_file(file, "format: plimsoll.experiment.v1\nname: ranks\ntraces: ['" + std::string(two_layers) +
                            "']\nplatforms: [h100_sxm_8]\nstrategies: [megatron]\ntimelines: true\n");
  const ProgramRun run = plimsoll("sweep " + file + " -o " + out);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  plimsoll("report " + out);
  std::size_t pictures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    if (!entry.path().string().ends_with("-mesh.svg")) continue;
    ++pictures;
    CHECK(text_of(entry.path()).find(">tensor: 8 ranks</text>") != std::string::npos);
  }
  CHECK(pictures == 1);
  CHECK(text_of(out + "/report.html").find("tensor: 8 ranks") != std::string::npos);
}

}  // namespace plimsoll
