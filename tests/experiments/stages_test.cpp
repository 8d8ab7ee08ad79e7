// `plimsoll stages` and the imports that make its tables, from outside; the figures that the planners' authors' inputs
// give are held against the published ones where ../shared is there (PLIMSOLL_SHARED names it).

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

nlohmann::json stages(const std::string& arguments) {
  const ProgramRun run = plimsoll("stages --json " + arguments);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("stages prints a planner's stages of a chain", "[stages]") {
  const ProgramRun run = plimsoll("stages uniform:4 --planner pipedream --devices 2 --bandwidth 1GB/s");
  CHECK(run.exit_code == 0);
  CHECK(run.out.starts_with("pipedream: 1 stage, "));
  const nlohmann::json json = stages("uniform:4 --planner pipedream --devices 2 --bandwidth '1 GB/s' --straight");
  CHECK(json["stages"].size() == 2);
  CHECK(json["stages"][0]["in_flight"] == 2);
  CHECK(json["stages"][1]["layers"].size() == 3);
}

TEST_CASE("stages refuses what does not go together", "[stages]") {
  const auto refused = [](const std::string& arguments, const std::string& why) {
    const ProgramRun run = plimsoll("stages " + arguments);
    CHECK(run.exit_code == 2);
    CHECK(run.err == why + "\n");
  };
  refused("uniform:4 --planner pipdream",
          "--planner: expected pipedream, piper, equal, ideals, alpa, madpipe or sapp, found 'pipdream'; did you mean "
          "'pipedream'?");
  refused("uniform:4 --planner pipedream", "--devices: needed, 'uniform:4' does not say how many");
  refused("uniform:4 --planner pipedream --devices 2",
          "--bandwidth: needed, 'uniform:4' does not say how fast devices "
          "are linked");
  refused("uniform:4 --planner pipedream --devices 2 --bandwidth 1GB/s --hosts 1",
          "--hosts: 'pipedream' does not take it");
  refused("uniform:4 --planner piper --devices 2 --bandwidth 1GB/s --only fast",
          "piper: layer 'stage0' of 'uniform:4' has no way to run that --only and --tensor allow");
  refused("uniform:4 --planner equal --devices 2 --bandwidth 1GB/s --counted stage",
          "--counted: expected a layer of 'uniform:4', found 'stage'; did you mean 'stage0'?");
  refused("uniform:4 --planner piper --devices 2 --bandwidth 1GB/s --counted stage0",
          "--counted: 'piper' does not take it");
  refused("uniform:4 --planner pipedream --devices 2x2 --bandwidth 1GB/s",
          "--bandwidth: expected 2 for the levels of --devices, with commas between, found 1");
  refused(
      "uniform:4 --planner pipedream --devices 2x --bandwidth 1GB/s",
      "--devices: expected a whole number such as 4, or 4x2 for two machines of four, up to 1000000 together, found "
      "'2x'");
  const ProgramRun small = plimsoll("stages uniform:4 --planner pipedream --devices 2 --bandwidth 1GB/s --memory 1B");
  CHECK(small.exit_code == 1);
  CHECK(small.err == "pipedream: no stages: no stages keep within the memory\n");
}

TEST_CASE("stages counts an optimizer's states of a chain", "[stages]") {
  const std::string asked =
      "uniform:stages=2,parameters=10B,activation=100B --planner madpipe --devices 1 --bandwidth 1GB/s";
  const auto bytes = [&](const std::string& optimizer) {
    return stages(asked + optimizer)["stages"][0]["memory_bytes"].get<std::int64_t>();
  };
  const std::int64_t plain = bytes("");  // of each of two stages 10 B and as much gradient
  CHECK(bytes(" --optimizer sgd") == plain);
  CHECK(bytes(" --optimizer momentum") == plain + 2 * 10);
  CHECK(bytes(" --optimizer adam") == plain + 2 * 20);
}

TEST_CASE("stages says that profiles must be imported", "[stages]") {
  const TemporaryFolder folder;
  const auto complaint = [&](const std::string& text) {
    const std::string file = (folder / "profile.txt").string();
    std::ofstream(file) << text;
    const ProgramRun run = plimsoll("stages " + file + " --planner pipedream --devices 2 --bandwidth 1GB/s");
    CHECK(run.exit_code == 2);
    return run.err.substr(file.size());
  };
  const std::string why =
      ": neither a trace nor a table of layers; if this is a profile of PipeDream, Piper, dnn-partitioning or SAPP, "
      "'plimsoll import' makes a table of it\n";
  CHECK(complaint("node1 -- Input0 -- forward_compute_time=0.0\n\tnode1 -- node2\n") == why);
  CHECK(complaint("{\"maxDevices\": 8, \"nodes\": []}") == why);
  CHECK(complaint("{\"maxDevices\": 8, ").find("not valid JSON") != std::string::npos);
}

/// The folder of the planners' inputs, or nothing.
std::string shared() {
  const char* folder = std::getenv("PLIMSOLL_SHARED");
  if (folder == nullptr) WARN("PLIMSOLL_SHARED is not set: no published figure is compared");
  return folder == nullptr ? "" : std::string(folder) + "/data/";
}

std::string imported(const std::string& format, const std::string& file, const TemporaryFolder& folder) {
  const std::string table = (folder / "table.json").string();
  const ProgramRun run = plimsoll("import " + format + " " + shared() + file + " -o " + table);
  INFO(file << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return table;
}

TEST_CASE("pipedream gives the published times of its authors' profiles", "[stages][published]") {
  if (shared().empty()) return;
  struct Row {
    std::string profile, machine;
    double seconds, speed_up, data_parallel;
    std::string more = "";
  };
  const std::string one = "--devices 4 --bandwidth 1GB/s", servers = "--devices 4x4 --bandwidth 12GB/s,1.25GB/s",
                    large = "--devices 8x2 --bandwidth 30GB/s,3.125GB/s";
  const Row rows[] = {{"image_classification_vgg16", one, 0.175732624, 3.83, 1.15},
                      {"image_classification_vgg16", servers, 0.0440084155, 15.28, 5.03},
                      {"image_classification_vgg16", large, 0.046381551, 14.50, 9.86},
                      {"image_classification_alexnet", one, 0.023165752, 3.68, 0.42},
                      {"image_classification_resnet50", one, 0.111497, 3.98, 2.37},
                      {"image_classification_resnet50", servers, 0.028667352, 15.47, 9.93},
                      {"image_classification_resnet101", one, 0.103941, 3.96, 1.74},
                      {"image_classification_densenet121", one, 0.081985, 3.98, 3.09},
                      {"translation_gnmt", one, 0.025868, 3.46, 0.15},
                      {"translation_gnmt", large, 0.0088599666, 10.09, 2.12},
                      {"translation_gnmt_large", one, 0.137129, 3.80, 0.54},
                      {"image_classification_vgg16", one, 0.205520896, 3.27, 1.15, " --compression 1"}};
  const TemporaryFolder folder;
  for (const Row& row : rows) {
    const std::string table = imported("pipedream", "pipedream/" + row.profile + ".txt", folder);
    const std::string asked = table + " --planner pipedream " + row.machine + row.more;
    const nlohmann::json json = stages(asked + " --published");
    const double seconds = json["time_s"], alone = json["one_device_s"], parallel = json["data_parallel_s"];
    INFO(row.profile << " " << row.machine << row.more);
    CHECK(seconds == Approx(row.seconds).margin(1e-10).epsilon(0));
    CHECK(alone / seconds == Approx(row.speed_up).margin(0.005));
    CHECK(alone / parallel == Approx(row.data_parallel).margin(0.0055));  // resnet50's 2.3646 is printed as 2.37
    const double ours = stages(asked)["time_s"];
    if (row.profile == "translation_gnmt" && row.machine == large) {
      CHECK(ours == Approx(0.00766825711).epsilon(1e-9));  // stages may begin anywhere
    } else {
      CHECK(ours == Approx(seconds).epsilon(1e-12));
    }
  }
}

TEST_CASE("ideals gives the published largest loads and counts as many ideals", "[stages][published]") {
  if (shared().empty()) return;
  struct Row {
    std::string graph;
    std::size_t ideals;
    double milliseconds, digits = 1e-7;
  };
  const Row rows[] = {{"LayerGraphs/bert24_inference", 30, 17.78990625},
                      {"LayerGraphs/bert24_training", 30, 41.7458125},
                      {"LayerGraphs/resnet50_inference", 242, 33.7746660},
                      {"LayerGraphs/resnet50_training", 242, 78.6318130, 1e-6},
                      {"LayerGraphs/gnmt_inference", 17914, 32.9106582},
                      {"LayerGraphs/gnmt_training", 17914, 107.0044141},
                      {"OperatorGraphs/bert_l-3_inference", 1428, 27.9185677},
                      {"OperatorGraphs/bert_l-3_training", 2774, 65.3031491},
                      {"OperatorGraphs/bert_l-6_inference", 1923, 29.5795065, 1e-6},
                      {"OperatorGraphs/bert_l-6_training", 3776, 72.8649666, 1e-6},
                      {"OperatorGraphs/bert_l-12_inference", 2906, 147.4779844},
                      {"OperatorGraphs/bert_L-12_training", 2938, 437.9976378},
                      {"OperatorGraphs/resnet50_inference", 241, 124.3488498},
                      {"OperatorGraphs/resnet50_training", 258, 255.1944164}};
  const TemporaryFolder folder;
  for (const Row& row : rows) {
    const std::string table =
        imported("dnn-partitioning", "dnn_partitioning/throughput-inputs/" + row.graph + ".json", folder);
    const nlohmann::json json = stages(table + " --planner ideals");
    INFO(row.graph);
    const double milliseconds = 1000 * json["time_s"].get<double>();
    CHECK(milliseconds == Approx(row.milliseconds).margin(row.digits).epsilon(0));
    CHECK(milliseconds < row.milliseconds + 1e-7);
    CHECK(json["ideals"] == row.ideals);
  }
}

TEST_CASE("piper gives the published times of its authors' models, or better ones", "[stages][published]") {
  if (shared().empty()) return;
  struct Row {
    std::string model, machine;
    double seconds, digits;
    bool better = false;
  };
  const Row rows[] = {{"bert32a100", "--devices 8 --memory 8GiB", 0.16585575, 1e-8},
                      {"bert32a100", "--devices 64 --memory 2GiB", 0.0320300812, 1e-10},
                      {"bert32a100", "--devices 64 --memory 8GiB", 0.0202005503, 1e-10},
                      {"bert32a100", "--devices 64 --memory 80GiB", 0.0156501780, 1e-10},
                      {"bert32a100", "--devices 128 --memory 1GiB", 0.03887175, 1e-8},
                      {"bert32a100", "--devices 512 --memory 2GiB", 0.0036675263, 1e-10},
                      {"bert32a100", "--devices 512 --memory 8GiB", 0.0025611278, 1e-10},
                      {"bert32a100", "--devices 1024 --memory 8GiB", 0.0013031795, 1e-10},
                      {"bert32a100", "--devices 2048 --memory 8GiB", 0.0007035912, 1e-10, true},
                      {"bert32a100", "--devices 64 --memory 8GiB --straight", 0.07390625, 1e-8},
                      {"bert32a100", "--devices 64 --memory 8GiB --only vanilla", 0.0279882783, 1e-10},
                      {"bert32a100", "--devices 64 --memory 8GiB --tensor 1", 0.0202005503, 1e-10},
                      {"resnet", "--devices 16 --memory 2GiB", 76.5213, 1e-4},
                      {"resnet", "--devices 32 --memory 2GiB", 24.6259, 1e-4, true},
                      {"resnet", "--devices 64 --memory 2GiB", 11.3338, 1e-4}};
  const TemporaryFolder folder;
  for (const Row& row : rows) {
    const std::string table = imported("piper", "piper/" + row.model + ".json", folder);
    const double seconds = stages(table + " --planner piper --bandwidth 26843545600B/s " + row.machine)["time_s"];
    INFO(row.model << " " << row.machine << ": " << seconds);
    if (row.better) {
      CHECK(seconds < row.seconds - row.digits);
    } else {
      CHECK(seconds == Approx(row.seconds).margin(row.digits).epsilon(0));
    }
  }
}

TEST_CASE("stages of equal numbers of layers take the times that Piper's authors publish beside theirs",
          "[stages][published]") {
  if (shared().empty()) return;
  struct Row {
    std::string machine;
    double seconds, digits;
  };
  const Row rows[] = {
      {"--devices 8 --memory 8GiB", 0.230978, 1e-6},         {"--devices 64 --memory 2GiB", 0.12333875, 1e-8},
      {"--devices 64 --memory 8GiB", 0.0257245478, 1e-10},   {"--devices 64 --memory 80GiB", 0.0156501780, 1e-10},
      {"--devices 512 --memory 2GiB", 0.0120755538, 1e-10},  {"--devices 512 --memory 8GiB", 0.0033013244, 1e-10},
      {"--devices 1024 --memory 8GiB", 0.0016996655, 1e-10}, {"--devices 2048 --memory 8GiB", 0.0008988361, 1e-10},
  };
  const TemporaryFolder folder;
  const std::string asked = imported("piper", "piper/bert32a100.json", folder) +
                            " --planner equal --counted ParallelTransformerLayer --bandwidth 26843545600B/s ";
  for (const Row& row : rows) {
    INFO(row.machine);
    const double seconds = stages(asked + row.machine)["time_s"];
    CHECK(seconds == Approx(row.seconds).margin(row.digits).epsilon(0));
  }
  const ProgramRun none = plimsoll("stages " + asked + "--devices 128 --memory 1GiB");
  CHECK(none.exit_code == 1);
  CHECK(none.err == "equal: no stages: no stages of equal numbers of layers keep within the memory and the devices\n");
}

TEST_CASE("planners refuse what a table says of its layers and they do not heed", "[stages]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "table.json").string();
  const auto refused = [&](const std::string& layer, const std::string& edge, const std::string& heeded_by,
                           const std::string& what) {
    const std::string options = R"("options":[{"name":"plain","forward_s":1}])";
    std::ofstream(file)
        << R"({"format":"plimsoll.layers.v1","name":"t","devices":2,"memory_bytes":9,"micro_batches":2,)"
        << R"("bandwidth_bytes_per_s":1,"layers":[{"name":"a",)" << options << R"(},{"name":"b",)" << layer << options
        << R"(}],"edges":[{"from":0,"to":1,"bytes":0)" << edge << "}]}";
    for (const std::string planner : {"pipedream", "piper", "equal", "ideals", "alpa", "madpipe", "sapp"}) {
      const ProgramRun run = plimsoll("stages " + file + " --planner " + planner);
      INFO(planner << ": " << run.err);
      const std::string complaint = planner + ": layer '" + (edge.empty() ? "b" : "a") + "' of 't' " + what +
                                    ", which this planner does not heed\n";
      CHECK((run.err == complaint) == (planner != heeded_by));
      if (planner != heeded_by) CHECK(run.exit_code == 2);
    }
  };
  refused(R"("count":3,)", "", "sapp", "stands for 3 layers in a row");
  refused(R"("place":"last",)", "", "sapp", "has its place at an end");
  refused(R"("together":1,)", "", "ideals", "shares a device with others");
  refused("", R"(,"time_s":1)", "ideals", "sends in a stated time instead of bytes");
}

TEST_CASE("stages of equal numbers of layers count what is asked, and the others have stages of their own",
          "[stages]") {
  const TemporaryFolder folder;
  const auto layer = [](const std::string& name, int seconds) {
    return R"({"name":")" + name + R"(","options":[{"name":"plain","devices":1,"forward_s":)" +
           std::to_string(seconds) + R"(,"backward_s":0,"parameter_bytes":0,"kept_bytes":0,"fixed_bytes":0}]})";
  };
  const auto table = [&](const std::vector<std::string>& layers) {
    std::string text = R"({"format":"plimsoll.layers.v1","name":"row","devices":4,"micro_batches":1,)"
                       R"("bandwidth_bytes_per_s":1,"layers":[)";
    for (std::size_t l = 0; l < layers.size(); ++l) text += (l == 0 ? "" : ",") + layers[l];
    text += R"(],"edges":[)";
    for (std::size_t l = 1; l < layers.size(); ++l) {
      text += std::string(l == 1 ? "" : ",") + R"({"from":)" + std::to_string(l - 1) + R"(,"to":)" + std::to_string(l) +
              R"(,"bytes":0})";
    }
    std::ofstream(folder / "row.json") << text << "]}";
    return (folder / "row.json").string();
  };
  const std::string ends = table({layer("in", 3), layer("block", 2), layer("block", 2), layer("out", 3)});
  CHECK(stages(ends + " --planner equal --counted block")["time_s"] == 3);
  CHECK(stages(ends + " --planner equal --devices 2 --counted block")["time_s"] == 5);
  const std::string middle = table({layer("block", 2), layer("in", 3), layer("block", 2)});
  const ProgramRun refused = plimsoll("stages " + middle + " --planner equal --counted block");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err == "--counted: layer 'in' of 'row' is between layers called 'block' and not called so\n");
}

TEST_CASE("alpa and madpipe print stages of a chain, sapp only takes tables of its kind", "[stages]") {
  const std::string machine = " --devices 3 --bandwidth 1GB/s --planner ";
  const nlohmann::json alpa = stages("uniform:6" + machine + "alpa --micro-batches 4");
  std::uint32_t devices = 0;
  for (const nlohmann::json& stage : alpa["stages"]) devices += stage["replicas"].get<std::uint32_t>();
  CHECK(devices == 3);
  const nlohmann::json madpipe = stages("uniform:6" + machine + "madpipe --special --memory 60MB");
  CHECK(madpipe["exact"] == true);
  const ProgramRun sapp = plimsoll("stages uniform:6" + machine + "sapp --micro-batches 4 --memory 60MB");
  CHECK(sapp.exit_code == 2);
  CHECK(sapp.err == "sapp: the ways to run layer 'stage0' differ in more than backward_s and kept_bytes\n");
}

struct SappMachine {
  std::uint32_t devices, micro_batches, chunks = 1;
};

/// Seconds of an iteration in the order that SAPP plans for, transfers left out: each part of the plan as one stage.
double simulated_end(const std::string& table, const nlohmann::json& planned, const SappMachine& machine) {
  std::map<std::pair<std::string, std::string>, Stage> ways;
  std::ifstream file(table);
  const nlohmann::json read = nlohmann::json::parse(file);
  for (const nlohmann::json& layer : read["layers"]) {
    for (const nlohmann::json& option : layer["options"]) {
      Stage& stage = ways[{layer["name"], option["name"]}];
      stage.forward = Seconds{option["forward_s"].get<double>()};
      stage.backward = Seconds{option["backward_s"].get<double>()};
    }
  }
  Chain chain;
  for (const nlohmann::json& part : planned["stages"]) {
    Stage& stage = chain.stages.emplace_back();
    stage.name = "part" + std::to_string(chain.stages.size());
    for (std::size_t k = 0; k < part["layers"].size(); ++k) {
      const Stage& layer = ways.at({part["layers"][k], part["ways"][k]});
      stage.forward += layer.forward;
      stage.backward += layer.backward;
    }
    stage.forward_nograd = stage.forward;
  }
  const Problem problem = problem_of(chain, gpus({.count = machine.devices}), {.micro_batches = machine.micro_batches});
  const std::string order = machine.chunks == 1
                                ? "1f1b(cut=uniform)"
                                : "interleaved(cut=uniform,chunks=" + std::to_string(machine.chunks) + ")";
  return std::get<Plan>(plan(problem, parse_spec(order, "test"), std::nullopt)).makespan.value;
}

TEST_CASE("sapp gives the published longest stages that are proved least, and less than the others",
          "[stages][published]") {
  if (shared().empty()) return;
  struct Row {
    std::string layers;
    SappMachine machine;
    std::string memory;
    double milliseconds, simulated, published;
  };
  // The longest stage; the end of an iteration, as it is here and as it is published.
  const Row rows[] = {{"test", {16, 16}, "53000MB", 3780, 109170, 110610},
                      {"test", {16, 32}, "53000MB", 3780, 169650, 171090},
                      {"test", {16, 32}, "45000MB", 3780, 172710, 173610},
                      {"test", {16, 32}, "40000MB", 3960, 173790, 176310},
                      {"test", {8, 16}, "60000MB", 7290, 161910, 162630},
                      {"test", {8, 32}, "58000MB", 7290, 281610, 282150},
                      {"test", {4, 16}, "80000MB", 14310, 270450, 270810},
                      {"test", {8, 16, 2}, "60000MB", 3960, 146700, 149310},
                      // 7644.6 and 4194 are published as found, not as least.
                      {"sim", {16, 32}, "53000MB", 7540.2, 346375.8, 351766.8},
                      {"sim", {16, 16, 3}, "60000MB", 4107.6, 169878.6, 172378.8}};
  const TemporaryFolder folder;
  for (const Row& row : rows) {
    const std::string table = imported("sapp", "sapp/" + row.layers + ".json", folder);
    const auto& [devices, micro_batches, chunks] = row.machine;
    const nlohmann::json json =
        stages(table + " --planner sapp --seconds 60 --devices " + std::to_string(devices) + " --micro-batches " +
               std::to_string(micro_batches) + " --chunks " + std::to_string(chunks) + " --memory " + row.memory);
    const double milliseconds = 1000 * json["time_s"].get<double>();
    INFO(row.layers << " " << devices << " x " << chunks << " " << micro_batches << " " << row.memory << ": "
                    << milliseconds);
    CHECK(json["proved"] == true);
    CHECK(milliseconds == Approx(row.milliseconds).epsilon(1e-9));
    const double end = 1000 * simulated_end(table, json, row.machine);
    CHECK(end == Approx(row.simulated).epsilon(1e-9));
    CHECK(end < row.published);
  }
}

}  // namespace
}  // namespace plimsoll
