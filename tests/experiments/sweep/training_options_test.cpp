// Options of a training through the whole program: averages, clipping and groups of parameters in sweeps, load lines,
// explanations, schedule files and replays.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

struct OptionsOfTraining {
  std::string words, keys;  ///< of the command line, and of an experiment
};

/// All as the command line and an experiment have them. Stages of the network: `layer0.weight`, `layer0.bias`, ...
const std::vector<OptionsOfTraining> training_options{
    {" --ema", "ema: true\n"},
    {" --clip-norm", "clip_norm: true\n"},
    {" --parameter-group '*.bias=sgd' --parameter-group '*1.*=momentum'",
     "parameter_groups: ['*.bias=sgd', '*1.*=momentum']\n"},
    {" --ema --clip-norm --parameter-group '*.bias=sgd,*1.*=momentum'",
     "ema: true\nclip_norm: true\nparameter_groups: '*.bias=sgd, *1.*=momentum'\n"}};

nlohmann::json json_of_run(const std::string& arguments) {
  const ProgramRun run = plimsoll(arguments);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("sweeps, explanations, files and load lines have the options of a training", "[program][options]") {
  const TemporaryFolder folder;
  const std::string at = folder.path.string();
  const auto explained = [](const std::string& of) {
    nlohmann::json json = json_of_run("explain --json --without-better " + of);
    json.erase("trace");
    json.erase("platform");
    return json;
  };
  for (std::size_t k = 0; k < training_options.size(); ++k) {
    const OptionsOfTraining& of = training_options[k];
    INFO(of.words);
    const std::string rest = " -p v100_pcie --optimizer adam --engine event" + of.words, file = at + "/s.json",
                      swept = at + "/swept" + std::to_string(k), words = " -s rotor -t mlp:layers=4" + rest;
    std::ofstream(folder / "one.yaml") << "format: plimsoll.experiment.v1\nname: one\ntraces: mlp:layers=4\n"
                                          "platforms: v100_pcie\nstrategies: [store_all, rotor]\noptimizer: adam\n"
                                          "engine: event\n"
                                       << of.keys;
    REQUIRE(plimsoll("sweep " + at + "/one.yaml -o " + swept).exit_code == 0);
    nlohmann::json record;
    std::ifstream records(swept + "/results.jsonl");
    for (std::string line; std::getline(records, line);) record = nlohmann::json::parse(line);
    const nlohmann::json asked = json_of_run("simulate --json --schedule-out " + file + words);
    for (const char* key : {"makespan_s", "peak_bytes", "state_bytes", "ema", "clip_norm", "parameter_groups"}) {
      INFO(key);
      CHECK(record[key] == asked[key]);
    }
    const nlohmann::json checked = json_of_run("check --json --schedule " + file);
    CHECK(checked["legal"] == true);
    CHECK(checked["makespan_s"] == asked["makespan_s"]);
    CHECK(checked["peak_bytes"] == asked["peak_bytes"]);
    const nlohmann::json question = explained(words);
    CHECK(question["makespan_s"] == asked["makespan_s"]);
    CHECK(question == explained(swept + " --point 1"));
    CHECK(question == explained(file + " --engine event"));
    const nlohmann::json load = json_of_run(
        "load -m '40 MB' --vary batch -s store_all --points 0 --json -j 1 -t "
        "mlp:layers=4" +
        rest);
    const nlohmann::json largest = load["lines"][0]["largest"];
    const nlohmann::json alone =
        json_of_run("simulate -m '40 MB' -s store_all --json -t mlp:layers=4,batch=" + largest["value"].dump() + rest);
    CHECK(alone["peak_bytes"] == largest["peak_bytes"]);
    CHECK(alone["makespan_s"] == largest["makespan_s"]);
    for (const char* key : {"ema", "clip_norm", "parameter_groups"}) {
      if (!asked[key].is_null()) CHECK(load[key] == asked[key]);
    }
  }
}

TEST_CASE("a sweep's folder is of one set of groups", "[program][options]") {
  const TemporaryFolder folder;
  const std::string at = folder.path.string();
  const auto sweep = [&](const std::string& keys) {
    std::ofstream(folder / "one.yaml") << "format: plimsoll.experiment.v1\nname: one\ntraces: mlp:layers=4\n"
                                          "platforms: v100_pcie\nstrategies: store_all\noptimizer: adam\n"
                                       << keys;
    return plimsoll("sweep " + at + "/one.yaml -o " + at + "/swept --resume");
  };
  CHECK(sweep("parameter_groups: '*.bias=sgd'\n").exit_code == 0);
  CHECK(sweep("parameter_groups: ['*.bias=sgd']\n").exit_code == 0);
  CHECK(sweep("parameter_groups: '*.bias=momentum'\n").exit_code == 2);
  const ProgramRun wrong = sweep("parameter_groups: ['*.bias=sdg']\n");
  CHECK(wrong.exit_code == 2);
  CHECK_THAT(wrong.err, Catch::Contains("one.yaml:7:20: parameter_groups[0]: expected sgd, momentum or adam for "
                                        "'*.bias', found 'sdg'; did you mean 'sgd'?"));
}

TEST_CASE("groups that are wrong are refused in one line", "[program][options]") {
  const auto refused = [](const std::string& words) {
    const ProgramRun run = plimsoll("simulate -s store_all -p v100_pcie -t mlp:layers=4 " + words);
    CHECK(run.exit_code == 2);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    return run.err;
  };
  CHECK(refused("--parameter-group '*.bias=sgd'") ==
        "--parameter-group: '*.bias=sgd' needs an --optimizer for the rest, found none\n");
  CHECK(refused("--optimizer adam --parameter-group '*.bais=sgd'") ==
        "trace 'mlp:layers=4': --parameter-group: '*.bais' matches no parameter's name, such as 'layer2.weight'; did "
        "you mean '*.bias'?\n");
  CHECK(refused("--optimizer adam --parameter-group '*.bias'") ==
        "--parameter-group: expected PATTERN=OPTIMIZER, such as '*norm*=adam', found '*.bias'\n");
  CHECK_THAT(refused("--optimizer adam --parameter-group '*=sgd' --parameter-group '*.bias=adam'"),
             Catch::Contains("no parameter is left for the group '*.bias': 'layer0.bias' is in '*'"));
}

TEST_CASE("groups of parameters change what fits says, and its command repeats it", "[program][options]") {
  const std::string words = "fits gpt2 -p rtx_4090_pcie4 --precision mixed --json";
  const nlohmann::json plain = json_of_run(words);
  const nlohmann::json grouped = json_of_run(words + " --parameter-group '*=momentum'");
  const auto states = [](const nlohmann::json& of) {
    return of["needs"]["at_peak"]["optimizer states"].get<std::int64_t>();
  };
  CHECK(states(grouped) > 0);
  CHECK(states(grouped) * 2 == states(plain));
  CHECK_THAT(grouped["training"]["command"].get<std::string>(), Catch::Contains(" --parameter-group \"*=momentum\""));
}

TEST_CASE("a replay trains by groups, and says why it does not clip or average", "[program][options]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string(), words =
                                                             "plan -t mlp:layers=2,width=32,batch=8 -p cpu_host "
                                                             "-s store_all --optimizer adam -o " +
                                                             file + " ";
  REQUIRE(plimsoll(words + "--parameter-group '*.bias=sgd'").exit_code == 0);
  const nlohmann::json replayed = json_of_run("replay --json --repetitions 1 --schedule " + file);
  CHECK(!replayed.empty());
  for (const auto& [option, why] : {std::pair{"--ema", "averages of parameters, which are not replayed"},
                                    std::pair{"--clip-norm", "by the norm of all, which is not replayed"}}) {
    REQUIRE(plimsoll(words + option).exit_code == 0);
    const ProgramRun run = plimsoll("replay --repetitions 1 --schedule " + file);
    CHECK(run.exit_code == 1);
    CHECK_THAT(run.err, Catch::Contains(why));
  }
}

}  // namespace
}  // namespace plimsoll
