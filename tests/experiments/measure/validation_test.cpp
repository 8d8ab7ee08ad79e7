// replay, calibrate, compare and validate as scripts use them.

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "platforms/platform_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

const std::string network = "mlp:layers=4,width=32,batch=8";

/// Plans and simulates; the schedule and timeline are left in the folder under the name.
void simulate(const TemporaryFolder& folder, const std::string& strategy, const std::string& name) {
  const std::string file = (folder / name).string();
  const ProgramRun run =
      plimsoll("simulate --trace " + network + " --platform ideal --optimizer sgd --strategy " + strategy +
               " --schedule-out " + file + ".json --timeline " + file + ".simulated.json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
}

TEST_CASE("a replayed schedule trains as store_all does and has the simulated peak", "[program]") {
  const TemporaryFolder folder;
  const std::string trace_and_schedule = "--trace " + network + " --schedule ";
  std::vector<nlohmann::json> answers;
  for (const std::string strategy : {"store_all", "full_recompute"}) {
    simulate(folder, strategy, strategy);
    const std::string schedule = (folder / (strategy + ".json")).string();
    const std::string inputs = trace_and_schedule + schedule;
    const ProgramRun run = plimsoll("replay --repetitions 2 --json " + inputs);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    answers.push_back(nlohmann::json::parse(run.out));
    const ProgramRun judged = plimsoll("check --json --platform ideal " + inputs);
    CHECK(nlohmann::json::parse(judged.out)["peak_bytes"] == answers.back()["peak_bytes"]);
    CHECK(answers.back()["makespans_s"].size() == 2);
  }
  CHECK(answers[0]["trained"] == answers[1]["trained"]);
  CHECK(answers[0]["recompute_s"] == 0.0);
  CHECK(answers[1]["recompute_s"] > 0.0);
}

TEST_CASE("replay refuses what it cannot run: exit code 1 by schedule, 2 by input", "[program]") {
  const TemporaryFolder folder;
  simulate(folder, "store_all", "s");
  const std::string good = (folder / "s.json").string();
  const ProgramRun full = plimsoll("replay --memory '30 kB' --trace " + network + " --schedule " + good);
  CHECK(full.exit_code == 1);
  CHECK(full.err.starts_with(good + ": out of memory in 'gpu': step "));

  nlohmann::json schedule = nlohmann::json::parse(text_of(good));
  schedule["steps"].erase(schedule["steps"].size() - 1);
  const std::string illegal = (folder / "illegal.json").string();
  std::ofstream(illegal) << schedule;
  const ProgramRun refused = plimsoll("replay --trace " + network + " --schedule " + illegal);
  CHECK(refused.exit_code == 1);
  CHECK(refused.err.starts_with(illegal + ": refused, the schedule is not legal: incomplete: "));

  const std::string broken = (folder / "broken.json").string();
  std::ofstream(broken) << text_of(good).substr(0, 200);
  CHECK(plimsoll("replay --trace " + network + " --schedule " + broken).exit_code == 2);

  const ProgramRun other = plimsoll("replay --trace uniform:4 --schedule " + good);
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("made for trace '" + network + "'") != std::string::npos);
}

TEST_CASE("a network with CUDA's kernels is refused in one line where there is no GPU", "[program]") {
  const ProgramRun run =
      plimsoll("simulate --strategy store_all --platform ideal --trace " + network + ",kernels=cuda");
  if (run.exit_code == 0) return;  // there is one
  CHECK(run.exit_code == 1);
  const bool no_build =
      run.err == "this build has no CUDA backend: nvcc, cuBLASLt or cuDNN was not found when it was configured\n";
  const bool no_gpu = run.err.starts_with("no GPU for the CUDA backend: ");
  INFO(run.err);
  CHECK((no_build || no_gpu));
  CHECK(std::ranges::count(run.err, '\n') == 1);
  const TemporaryFolder folder;
  const ProgramRun calibrated =
      plimsoll("calibrate validate/gpu_link.yaml --backend cuda -o " + (folder / "x.yaml").string());
  CHECK(calibrated.exit_code == 1);
  CHECK(calibrated.err == run.err);
  const ProgramRun validated =
      plimsoll("validate validate/validate_gpu.yaml --backend cuda -o " + (folder / "out").string());
  CHECK(validated.exit_code == 1);
  CHECK(validated.err == run.err);
}

TEST_CASE("backends refuse what is not theirs", "[program]") {
  const TemporaryFolder folder;
  simulate(folder, "store_all", "s");
  const std::string replay = "replay --trace " + network + " --schedule " + (folder / "s.json").string();
  const ProgramRun other = plimsoll(replay + " --backend cuda");
  CHECK(other.exit_code == 2);
  CHECK(other.err ==
        "network '" + network + "' has the workspaces of kernels=cpu; --backend cuda needs kernels=cuda\n");
  const ProgramRun paced = plimsoll(replay + " --backend cuda --pace links");
  CHECK(paced.exit_code == 2);
  CHECK(paced.err == "--pace: only with --backend cpu; the copies of a GPU have a pace of their own\n");
  const ProgramRun pooled = plimsoll(replay + " --allocation caching");
  CHECK(pooled.exit_code == 2);
  CHECK(pooled.err == "--allocation: only with --backend cuda\n");
}

TEST_CASE("compare holds two timelines against each other, kind by kind", "[program]") {
  const TemporaryFolder folder;
  simulate(folder, "full_recompute", "s");
  const std::string schedule = (folder / "s.json").string(), simulated = (folder / "s.simulated.json").string();
  const std::string measured = (folder / "measured.json").string();
  REQUIRE(plimsoll("replay --trace " + network + " --schedule " + schedule + " --timeline " + measured).exit_code == 0);
  const ProgramRun run = plimsoll("compare --json " + simulated + " " + measured);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json json = nlohmann::json::parse(run.out);
  CHECK(json["simulated_peak_bytes"] == json["measured_peak_bytes"]);
  std::vector<std::string> kinds;
  for (const nlohmann::json& row : json["kinds"]) kinds.push_back(row["kind"]);
  CHECK(kinds == std::vector<std::string>{"whole", "forward", "backward", "update", "recompute"});
  CHECK(plimsoll("compare --within 0.1 " + simulated + " " + simulated).exit_code == 0);
  CHECK(plimsoll("compare --within 0.001 " + simulated + " " + measured).exit_code == 1);
  CHECK(plimsoll("compare " + simulated + " " + schedule).exit_code == 2);
}

TEST_CASE("compare reads a recording of PyTorch's profiler: kinds, steps, what it did not count", "[program]") {
  const std::string recording = "tests/experiments/profiler/recording_torch113_cpu.json.gz";
  const ProgramRun run = plimsoll("compare --json " + recording + " " + recording);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json json = nlohmann::json::parse(run.out);
  std::map<std::string, double> milliseconds;
  for (const nlohmann::json& row : json["kinds"]) {
    milliseconds[row["kind"]] = row["measured_s"].get<double>() * 1e3;
    CHECK(row["measured_least_s"].get<double>() <= row["measured_s"].get<double>());
    CHECK(row["measured_most_s"].get<double>() >= row["measured_s"].get<double>());
    CHECK(row["error"] == 0.0);
  }
  REQUIRE(milliseconds.size() == 6);
  CHECK(milliseconds["whole"] == Approx(33.4765));
  CHECK(milliseconds["forward"] == Approx(8.737).epsilon(0.001));
  CHECK(milliseconds["recompute"] == Approx(4.004).epsilon(0.001));  // the checkpoint's, of its two convolutions
  CHECK(milliseconds["backward"] == Approx(19.41).epsilon(0.001));
  CHECK(milliseconds["update"] == Approx(0.2115));
  CHECK(milliseconds["zero_grad"] == Approx(0.003));
  CHECK(json["measured_iterations"] == 4);
  CHECK(json["measured_notes"] == nlohmann::json{"median of 4 steps, ProfilerStep#2 to #5; without #1 (the first)",
                                                 "no work of devices in it: times are those of operators on the host"});
  const std::string text = plimsoll("compare " + recording + " " + recording).out,
                    heads = text.substr(0, text.find('\n'));
  CHECK(heads.find("least") != std::string::npos);
  CHECK(heads.ends_with("most"));
}

TEST_CASE("calibrate writes a platform on which the measured trace keeps its times", "[program][eleventh-1]") {
  const TemporaryFolder folder;
  const std::string platform = (folder / "mine.yaml").string(), trace = (folder / "mine.json").string();
  const ProgramRun run = plimsoll("calibrate validate/cpu_link.yaml --repetitions 3 -o " + platform + " --trace " +
                                  network + " --trace-out " + trace);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const ProgramRun simulated =
      plimsoll("simulate --json --strategy rotor --trace " + trace + " --platform " + platform);
  REQUIRE(simulated.exit_code == 0);
  const nlohmann::json json = nlohmann::json::parse(simulated.out);
  CHECK(json["times_rescaled"] == false);
  CHECK(json["makespan_s"] > 0.0);
  CHECK(text_of(platform).find("source: \"measured on 2") != std::string::npos);  // with its date
  const std::map<std::string, FlopsPerSecond> peaks = load_platform(platform).devices[0].peak;
  REQUIRE(peaks.size() == 3);
  for (const std::string dtype : {"bf16", "fp8"}) {  // so that the same network with such values has times there
    CHECK(peaks.at(dtype).value > 0);
    const std::string narrow = "mlp:layers=4,width=32,batch=16,classes=16,values=" + dtype;
    CHECK(plimsoll("simulate --strategy rotor --trace " + narrow + " --platform " + platform).exit_code == 0);
  }
  const std::string schedule = (folder / "s.json").string();
  REQUIRE(
      plimsoll("plan --strategy rotor --trace " + trace + " --platform " + platform + " -o " + schedule).exit_code ==
      0);
  const ProgramRun replayed =
      plimsoll("replay --trace " + trace + " --platform " + platform + " --schedule " + schedule);
  INFO(replayed.err);
  CHECK(replayed.exit_code == 0);
  CHECK(plimsoll("calibrate ib_2x8_h100 -o " + platform).exit_code == 2);
}

TEST_CASE("calibrate measures both parts of a chain's backwards", "[program][eleventh-5]") {
  const TemporaryFolder folder;
  const std::string platform = (folder / "mine.yaml").string(), trace = (folder / "mine.json").string();
  const std::string small = "mlp:layers=4,width=128,batch=64";
  REQUIRE(plimsoll("calibrate validate/cpu_link.yaml --repetitions 5 -o " + platform + " --trace " + small +
                   " --trace-out " + trace)
              .exit_code == 0);
  const nlohmann::json stages = nlohmann::json::parse(text_of(trace))["stages"];
  REQUIRE(stages.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(stages[i]["backward_weight_s"] > 0.0);
    CHECK(stages[i]["backward_weight_s"] < stages[i]["backward_s"]);
  }
  // Of equal layers the stated shares are equal, the measured ones are not.
  const auto share = [&](std::size_t i) {
    return stages[i]["backward_weight_s"].get<double>() / stages[i]["backward_s"].get<double>();
  };
  CHECK(share(1) != share(2));
  CHECK(stages[4]["backward_weight_s"] == 0.0);
  const ProgramRun split = plimsoll("simulate --json --strategy zb_h1 --trace " + trace + " --platform " + platform);
  INFO(split.err);
  REQUIRE(split.exit_code == 0);
  CHECK(nlohmann::json::parse(split.out)["times_rescaled"] == false);
}

TEST_CASE("validate runs schedules whose backwards are in two parts, and says why not with a graph",
          "[program][turn-29]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "tiny.yaml").string(), out = (folder / "out").string();
  std::ofstream(file) << "format: plimsoll.validation.v1\nname: tiny\nplatform: validate/cpu_link.yaml\nrounds: 1\n"
                         "networks: ['"
                      << network
                      << "', 'lstm:steps=3,width=8,view=graph']\nchain_strategies: [zb_h1, 'zb_h1|rotor']\n"
                         "graph_strategies: [ap_sqrt, zb_h1]\n";
  const ProgramRun run = plimsoll("validate " + file + " -o " + out);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.find("zb_h1: left out: a graph's backwards cannot be split\n") != std::string::npos);
  const nlohmann::json rows = nlohmann::json::parse(text_of(folder / "out/validation.json"))["rows"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["strategy"] == "zb_h1");
  CHECK(rows[1]["strategy"] == "zb_h1|rotor");
  for (const nlohmann::json& row : rows) CHECK(row["measured_peak_bytes"] == row["predicted_peak_bytes"]);
}

TEST_CASE("validate writes a row a schedule and a summary over all", "[program][turn-14]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "tiny.yaml").string(), out = (folder / "out").string();
  std::ofstream(file) << "format: plimsoll.validation.v1\nname: tiny\nplatform: validate/cpu_link.yaml\nrounds: 2\n"
                         "networks: ['"
                      << network
                      << "', 'lstm:steps=3,width=8,view=graph']\nchain_strategies: [full_recompute, save_on_cpu]\n"
                         "graph_strategies: [ap_sqrt]\n";
  const ProgramRun run = plimsoll("validate " + file + " -o " + out);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json json = nlohmann::json::parse(text_of(folder / "out/validation.json"));
  REQUIRE(json["rows"].size() == 3);
  for (const nlohmann::json& row : json["rows"]) {
    CHECK(row["measured_relative"] > 0.0);
    CHECK(row["time_error"].get<double>() ==
          Approx(row["predicted_relative"].get<double>() / row["measured_relative"].get<double>() - 1));
  }
  CHECK(json["rows"][0]["predicted_peak_bytes"] == json["rows"][0]["measured_peak_bytes"]);
  double guess = 0;  // that every schedule is as fast as store_all
  for (const nlohmann::json& row : json["rows"]) {
    const std::int64_t measured = row["measured_peak_bytes"];
    CHECK(row["legal_peaks_bytes"][0] <= measured);
    CHECK(row["legal_peaks_bytes"][1] >= measured);
    CHECK(row["legal_peaks_bytes"][0] <= row["predicted_peak_bytes"]);
    CHECK(row["legal_peaks_bytes"][1] >= row["predicted_peak_bytes"]);
    guess += std::abs(1 / row["measured_relative"].get<double>() - 1) / 3;
  }
  const nlohmann::json& all = json["summary"]["all"];
  CHECK(all["schedules"] == 3);
  CHECK(all["guess_error_mean"].get<double>() == Approx(guess));
  CHECK(all["pairs"] == 1);  // two schedules of one network, one of another
  CHECK(all["pairs_outside_noise"] <= all["pairs"]);
  CHECK(all["pairs_ranked_right"] <= all["pairs_outside_noise"]);
  const nlohmann::json& held = json["summary"]["bars_held"];
  CHECK(held["peak_error"] == true);
  CHECK(held["time_error_mean"] == (all["time_error_mean"] <= 0.02));
  CHECK(held["time_error_worst"] == (std::abs(all["time_error_worst"].get<double>()) <= 0.08));
  const std::string table = text_of(folder / "out/validation.txt");
  CHECK(table.find("always guessing store_all's time: mean ") != std::string::npos);
  CHECK(table.find(" of 1 pairs differ by more than the noise, ") != std::string::npos);
  const ProgramRun less = plimsoll("validate " + file + " --rounds 1 --first 1 -o " + (folder / "less").string());
  CHECK(less.exit_code == 0);
  const nlohmann::json first = nlohmann::json::parse(text_of(folder / "less/validation.json"));
  CHECK(first["rounds"] == 1);
  CHECK(first["rows"].size() == 2);
  const ProgramRun none = plimsoll("validate " + file + " --rounds 0 -o " + out);
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("--rounds: expected a whole number from 1 to 10000, found '0'") != std::string::npos);
  std::ofstream(file, std::ios::app) << "netwrks: []\n";
  const ProgramRun wrong = plimsoll("validate " + file + " -o " + out);
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("netwrks: unknown key; did you mean 'networks'?") != std::string::npos);
}

TEST_CASE("Ctrl-C ends a validation with exit code 130 and keeps what is finished", "[program][eleventh-9]") {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const int status =
      std::system(("timeout --preserve-status -s INT 2 " PLIMSOLL_PROGRAM " validate validate/validate_cpu.yaml -o " +
                   out + " >/dev/null 2>" + err)
                      .c_str());
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(text_of(err).ends_with("interrupted: finished results are kept\n"));
  CHECK(std::filesystem::exists(folder / "out/rows.jsonl"));
}

TEST_CASE("a timeline that is none is refused with its place", "[compare]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "t.json").string();
  const auto refusal = [&](const std::string& text) {
    std::ofstream(file) << text;
    const ProgramRun run = plimsoll("compare " + file + " " + file);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK(refusal("[\n {]") == file + ":2:3: not valid JSON: expected a string, found ]\n");
  CHECK(refusal(R"([{"ph": 1, "name": 2}])") ==
        file + ": no steps of Plimsoll's and no operators or kernels of a profiler's in it\n");
  CHECK(refusal(R"([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1e400}])") ==
        file + ":1:60: [0].dur: absurdly large, found 1e400\n");
}

}  // namespace
}  // namespace plimsoll
