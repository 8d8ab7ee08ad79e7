// The program as scripts use it: exit codes, exact messages, JSON keys, the same bytes for the same question.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/study/build_name.h"
#include "strategies/list.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

constexpr const char* example = "--trace tests/experiments/worked_example.json --platform ideal ";

nlohmann::json json_of(const std::string& arguments, int exit_code = 0) {
  const ProgramRun run = plimsoll(arguments);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == exit_code);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("transfers that never meet cost nothing, whatever their times are rounded to", "[program][contention]") {
  for (const char* strategy : {"gpipe", "1f1b"}) {  // whose times differ in the last digit with each transfer alone
    const nlohmann::json result =
        json_of(std::string("simulate --json --engine event --trace vgg16_b8_cpu --platform ") +
                "h100_sxm_8 --micro-batches 5 --strategy " + strategy);
    CHECK(result["contention_s"] == 0.0);
    CHECK(result["bytes_moved"] > 0);
  }
}

TEST_CASE("simulate --json has the fixed keys and the worked example's numbers", "[program]") {
  const nlohmann::json result = json_of(std::string("simulate --strategy store_all --json ") + example);
  CHECK(result["makespan_s"] == 7.0);
  CHECK(result["peak_bytes"] == 22);
  CHECK(result["feasible"] == true);
  CHECK(result["lower_bound_s"] == 7.0);
  CHECK(result["bytes_moved"] == 0);
  CHECK(result["recompute_s"] == 0.0);
  CHECK(result["solve_s"].is_number());
  CHECK(result["simulate_s"].is_number());
  REQUIRE(result["devices"].size() == 1);
  CHECK(result["devices"][0]["name"] == "gpu");
  CHECK(result["devices"][0]["peak_live_bytes"] == 22);
  CHECK(result["devices"][0]["peak_reserved_bytes"] == 22);
  CHECK(result["devices"][0]["busy_s"] == 7.0);
}

TEST_CASE("a simulation of hours ends as soon as one of seconds", "[program]") {
  const nlohmann::json result = json_of(
      "simulate --trace 'uniform:stages=1,forward=500.3 s,backward=999.7 s' --platform ideal --strategy store_all "
      "--micro-batches 16 --json");
  CHECK(result["engine"] == "simgrid");
  CHECK(result["makespan_s"].get<double>() == Approx(24000).epsilon(1e-12));
}

TEST_CASE("both engines give the same JSON apart from their name and the times they took", "[program]") {
  const auto of_engine = [](const std::string& engine) {
    nlohmann::json result = json_of(
        "simulate --trace resnet50_b8_cpu --platform h200 --strategy rotor --memory 700MB --json --engine " + engine);
    for (const char* key : {"engine", "solve_s", "simulate_s"}) result.erase(key);
    return result.dump();
  };
  CHECK(of_engine("simgrid") == of_engine("event"));
  CHECK(of_engine("simgrid") == of_engine("simgrid"));
}

TEST_CASE("where values are packed, an infeasible budget names the op that needs the smallest feasible one",
          "[program]") {
  const std::string asked = "simulate -t resnet:blocks=2,view=graph -p cpu_host -s 'gact(bits=4)|offload_greedy'";
  const nlohmann::json none = json_of(asked + " --memory 100kB --json", 1);
  const std::string op = none["smallest_feasible_op"], bytes = none["smallest_feasible_bytes"].dump();
  const nlohmann::json least = json_of(asked + " --json --memory " + bytes + "B");
  CHECK(least["peak"]["op"] == op);
  CHECK(least["peak_bytes"] == none["smallest_feasible_bytes"]);
  const ProgramRun run = plimsoll(asked + " --memory 100kB");
  CHECK(run.exit_code == 1);
  CHECK(run.err.find("; the smallest feasible budget is " + bytes + " B (") != std::string::npos);
  CHECK(run.err.ends_with("), which '" + op + "' needs\n"));
  const nlohmann::json exact =
      json_of("simulate -t resnet:blocks=2,view=graph -p cpu_host -s store_all --memory 100kB --json", 1);
  CHECK(exact["smallest_feasible_op"].is_null());
}

TEST_CASE("a budget that is not given is the memory of the devices that are planned for", "[program]") {
  const std::string large = "simulate -t gpt:layers=64,width=2048,batch=4 -p v100_h100_pair -s ";
  const nlohmann::json of_first = json_of(large + "store_all --json", 1);  // 25.8 GB
  CHECK(of_first["memory_budget_bytes"] == 16384LL << 20);
  const nlohmann::json of_ranks = json_of(
      "simulate -t transformer:layers=2,dtype=fp16,view=graph -p v100_h100_pair -s zero1 --micro-batches 2 --optimizer "
      "adam "
      "--json");
  CHECK(of_ranks["memory_budget_bytes"] == 16384LL << 20);
  CHECK(json_of("simulate -t gpt -p v100_h100_pair -s gpipe --json")["memory_budget_bytes"].is_null());
}

TEST_CASE("an infeasible budget exits with 1 and names the smallest feasible one", "[program]") {
  const ProgramRun run = plimsoll(std::string("simulate --strategy rotor --memory 19B ") + example);
  CHECK(run.exit_code == 1);
  CHECK(run.out.empty());
  CHECK(
      run.err ==
      "infeasible: rotor within 19 B: no recomputation of stages fits; the smallest feasible budget is 20 B (20 B)\n");
  const nlohmann::json result = json_of(std::string("simulate --strategy rotor --memory 19B --json ") + example, 1);
  CHECK(result["feasible"] == false);
  CHECK(result["makespan_s"].is_null());
  CHECK(result["peak_bytes"].is_null());
  CHECK(result["smallest_feasible_bytes"] == 20);
}

TEST_CASE("--memory front is one object with every best pair of time and memory", "[program]") {
  const nlohmann::json result = json_of(std::string("simulate --strategy rotor --memory front --json ") + example);
  REQUIRE(result["front"].size() == 2);
  CHECK(result["front"][0]["peak_bytes"] == 20);
  CHECK(result["front"][0]["makespan_s"] == 8.0);
  CHECK(result["front"][1]["peak_bytes"] == 22);
  CHECK(result["front"][1]["makespan_s"] == 7.0);
}

TEST_CASE("check and bounds judge what a transform leaves, which the schedule's text names", "[program]") {
  const TemporaryFolder folder;
  const std::string schedule = (folder / "schedule.json").string(),
                    question = "--trace resnet50_b8_cpu --platform h200 ";
  const std::string spec = " --strategy 'sparse_update(train=last:2)|rotor' ";
  const nlohmann::json simulated =
      json_of("simulate " + question + spec + "--optimizer adam --json --schedule-out " + schedule);
  const nlohmann::json judged = json_of("check --json --schedule " + schedule + " " + question);
  CHECK(judged["legal"] == true);
  CHECK(judged["makespan_s"] == Approx(simulated["makespan_s"].get<double>()).epsilon(1e-9));
  CHECK(judged["peak_bytes"] == simulated["peak_bytes"]);
  const nlohmann::json whole = json_of("bounds --json --optimizer adam " + question);
  const nlohmann::json left = json_of("bounds --json --optimizer adam " + question + spec);
  CHECK(left["lower_bound_s"] == simulated["lower_bound_s"]);
  CHECK(left["lower_bound_s"] < whole["lower_bound_s"]);
  CHECK(left["lower_bound_bytes"] < whole["lower_bound_bytes"]);
  const ProgramRun wrong = plimsoll("simulate --strategy 'sparse_update(train=nothing)' " + question);
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find(
            "sparse_update: no parameter of 'resnet50_b8' is 'nothing'; its first parameter is 'stem.0.weight'") !=
        std::string::npos);
}

TEST_CASE("a schedule that plan writes is the one that simulate writes, and check finds it legal", "[program]") {
  const TemporaryFolder folder;
  const std::string planned = (folder / "planned.json").string(), simulated = (folder / "simulated.json").string();
  const std::string question = std::string("--strategy rotor --memory 20B ") + example;
  REQUIRE(plimsoll("plan " + question + "-o " + planned).exit_code == 0);
  REQUIRE(plimsoll("simulate " + question + "--schedule-out " + simulated).exit_code == 0);
  const auto body = [](const std::string& text) { return text.substr(text.find("\"trace\"")); };
  CHECK(body(text_of(planned)) == body(text_of(simulated)));
  const nlohmann::json judged = json_of("check --json --schedule " + planned + " " + example);
  CHECK(judged["legal"] == true);
  CHECK(judged["makespan_s"] == 8.0);
  CHECK(judged["peak_bytes"] == 20);
  CHECK(judged["fits"] == true);
}

TEST_CASE("check exits with 1 and names rule, step and buffer of a broken schedule", "[program]") {
  const TemporaryFolder folder;
  const std::string planned = (folder / "planned.json").string();
  REQUIRE(plimsoll(std::string("plan --strategy store_all -o ") + planned + " " + example).exit_code == 0);
  std::string text = text_of(planned);
  const std::size_t first = text.find("\"op\":4");
  REQUIRE(first != std::string::npos);
  const std::size_t list = text.find("\"reads\":[", first) + 9;
  text.erase(list, text.find(',', list) + 1 - list);  // forget the first buffer it reads
  std::ofstream(planned) << text;
  const ProgramRun run = plimsoll("check --schedule " + planned + " " + example);
  CHECK(run.exit_code == 1);
  CHECK(run.err ==
        planned +
            ": missing_input: step 4 ('second backward', micro-batch 0) does not read 'gradient of x2', which "
            "it needs\n");
}

TEST_CASE("bounds prints what no schedule of a kind can beat, and an answer says of which kind its own are",
          "[program]") {
  const nlohmann::json result = json_of(std::string("bounds --json ") + example);
  CHECK(result["lower_bound_s"] == 7.0);
  CHECK(result["lower_bound_bytes"] == 20);
  CHECK(result["largest_working_set"] == "first backward");
  CHECK(result["stays"] == "all");
  REQUIRE(result["where_less_stays"].size() == 2);
  CHECK(result["where_less_stays"][1]["stays"] == "nothing");

  // States and updates on a host: less memory than any schedule that keeps all on the device.
  const std::string question = "--trace gpt12_w768_t256_b4_cpu --platform h200 --optimizer adam ";
  const nlohmann::json bounds = json_of("bounds --json " + question);
  const auto answer = [&](const std::string& asked, int exit_code = 0) {
    return json_of("simulate --json " + question + asked, exit_code);
  };
  const nlohmann::json left = bounds["where_less_stays"];
  const nlohmann::json offloaded = answer("-s 'rotor|zero_offload' --memory '1.4 GB'");
  CHECK(offloaded["peak_bytes"] < bounds["lower_bound_bytes"]);
  CHECK(offloaded["lower_bound_stays"] == "parameters");
  CHECK(offloaded["lower_bound_bytes"] == left[0]["lower_bound_bytes"]);
  CHECK(offloaded["lower_bound_bytes"] <= offloaded["peak_bytes"]);
  CHECK(answer("-s rotor")["lower_bound_stays"] == "all");
  // What no budget of one byte allows is bounded by what the strategy could have made.
  CHECK(answer("-s 'rotor|zero_offload' --memory '1 B'", 1)["lower_bound_bytes"] == left[1]["lower_bound_bytes"]);
  CHECK(answer("-s rotor --memory '1 B'", 1)["lower_bound_bytes"] == bounds["lower_bound_bytes"]);
  CHECK(answer("-s quantize --memory '1 B'", 1)["lower_bound_bytes"].is_null());
}

TEST_CASE("bounds says for people what stays where they hold", "[program]") {
  const ProgramRun run = plimsoll("bounds --trace gpt12_w768_t256_b4_cpu --platform h200 --optimizer adam");
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("  parameters, gradients, optimizer states  ") != std::string::npos);
  CHECK(run.out.find("\n  nothing  ") != std::string::npos);
}

TEST_CASE("bounds says what a budget costs at least, by which instant, and what a GB is worth", "[program]") {
  const std::string question = "--trace gpt12_w768_t256_b4_cpu --platform h200 ";
  const nlohmann::json roomy = json_of("bounds --json " + question)["within_budget"];
  CHECK(roomy["budget_bytes"] == 150'754'820'096);  // what the device has
  CHECK(roomy["recomputing"]["price_s_per_gb"] == 0.0);
  const nlohmann::json tight = json_of("bounds --json --memory '70 %' " + question);
  const nlohmann::json recomputing = tight["within_budget"]["recomputing"],
                       copying = tight["within_budget"]["offloading"];
  CHECK(recomputing["price_s_per_gb"] > 0.0);
  CHECK(recomputing["lower_bound_s"] > tight["lower_bound_s"]);
  CHECK(copying["lower_bound_s"] <= recomputing["lower_bound_s"]);
  CHECK(recomputing["needs_bytes"].is_null());
  const ProgramRun run = plimsoll("bounds --memory '70 %' " + question);
  const std::string instant = recomputing["instant"];
  CHECK(run.out.find("when '" + instant + "' begins a GB is worth ") != std::string::npos);

  const nlohmann::json less = json_of("bounds --json --memory '1.1 GB' " + question);  // below the largest working set
  CHECK(less["within_budget"]["recomputing"]["lower_bound_s"].is_null());
  CHECK(less["within_budget"]["offloading"]["needs_bytes"] == less["lower_bound_bytes"]);
  CHECK(less["within_budget"]["offloading"]["instant"] == less["largest_working_set"]);

  const ProgramRun none = plimsoll("bounds --memory '1 MB' " + question);
  CHECK(none.exit_code == 1);
  CHECK(none.out.empty());
  CHECK(none.err.find("no schedule on one device fits 1.00 MB: the working set of '") != std::string::npos);
}

TEST_CASE("bounds --prices says what more of the machine saves, and where other ops are the best to run again",
          "[program]") {
  const std::string question = "--trace gpt12_w768_t256_b4_cpu --platform h200 --memory '70 %' ";
  const nlohmann::json within = json_of("bounds --json --prices " + question)["within_budget"];
  const nlohmann::json bound = within["recomputing"], prices = bound["prices"],
                       copying = within["offloading"]["prices"];
  CHECK(prices["memory_1_gb_saves_s"] > 0.0);
  CHECK(prices["memory_1_gb_saves_s"] <= bound["price_s_per_gb"].get<double>() * (1 + 1e-9));
  CHECK(prices["links_10_gb_per_s_save_s"].is_null());
  CHECK(copying["links_10_gb_per_s_save_s"] >= 0.0);
  CHECK(copying["host_memory_twice_as_fast_saves_s"].is_null());
  const std::int64_t below = prices["flip_below"]["budget_bytes"], above = prices["flip_above"]["budget_bytes"];
  CHECK(below <= within["budget_bytes"]);
  CHECK(above > within["budget_bytes"]);
  CHECK(prices["flip_above"]["ops"] > 0);
  CHECK(json_of("bounds --json " + question)["within_budget"]["recomputing"]["prices"].is_null());

  const ProgramRun run = plimsoll("bounds --prices " + question);
  CHECK(run.out.find("\n    1 GB more memory saves  ") != std::string::npos);
  CHECK(run.out.find("nothing: it does not limit the copies\n") != std::string::npos);
  CHECK(run.out.find(" no longer run again, '") != std::string::npos);
  CHECK(run.out.find("\n    below ") != std::string::npos);
  const ProgramRun unlimited = plimsoll("bounds --prices --trace uniform:6 --platform ideal");
  CHECK(unlimited.exit_code == 2);
  CHECK(unlimited.err.find("--prices: needs --memory, since the device's memory is unlimited\n") != std::string::npos);
}

TEST_CASE("answers on one device say how far they can be from the best of their class", "[program]") {
  const auto gap_of = [](const std::string& asked) {
    return json_of("simulate --json --trace gpt12_w768_t256_b4_cpu --platform h200 " + asked)["gap"];
  };
  CHECK(gap_of("-s store_all") == 0.0);
  CHECK(gap_of("-s rotor -m '70 %'") == 0.0);  // its own: the bound is below
  const double greedy = gap_of("-s chen_sqrt -m '70 %'"), copying = gap_of("-s 'rotor|offload_greedy' -m '70 %'");
  CHECK(greedy > 0);
  CHECK(greedy < 0.5);
  CHECK(copying > 0);
  CHECK(gap_of("-s gpipe --micro-batches 2").is_null());
}

TEST_CASE("list names every strategy, platform and trace that ships", "[program]") {
  const auto names = [](const std::string& what) {
    std::vector<std::string> list;
    const nlohmann::json all = json_of("list " + what + " --json");
    for (const nlohmann::json& entry : all[what]) list.push_back(entry["name"]);
    return list;
  };
  std::vector<std::string> registered;
  for (const StrategyInfo* strategy : strategies()) registered.emplace_back(strategy->name);
  CHECK(names("strategies") == registered);
  CHECK(names("platforms") ==
        std::vector<std::string>{"a100_80g", "a100_sxm_64", "a100_sxm_8", "b200_sxm_8", "cpu_host", "dgx2_16xv100",
                                 "gpu_cpu_pair", "h100_pair_cxl", "h100_sxm_8", "h200", "ib_2x8_h100", "ideal", "l4",
                                 "l40s", "pcie_4x_rtx4090", "rtx_4090_pcie4", "t4", "v100_h100_pair", "v100_pcie"});
  CHECK(names("traces").size() >= 4);
}

TEST_CASE("re-scaled times are announced in every output", "[program]") {
  const std::string question = "simulate --strategy store_all --trace resnet50_b8_cpu --platform h200";
  CHECK(plimsoll(question).out.find("(times re-scaled)") != std::string::npos);
  CHECK(
      plimsoll(question).err.starts_with("note: times of 'resnet50_b8' were measured on 'Intel(R) Xeon(R) Processor'; "
                                         "here they are re-scaled: max(flops / peak, bytes moved / memory bandwidth)"));
  const std::string views = "times as long operator by operator (view=graph) as in stages";
  for (const char* view : {"", ",view=graph"}) {
    const std::string transformer =
        "-t transformer:layers=1,width=64,heads=4,sequence=8" + std::string(view) + " -p h200";
    CHECK(plimsoll("simulate --engine event -s store_all " + transformer).err.find(views) != std::string::npos);
    const std::string measured = plimsoll("simulate -s store_all " + transformer + ":efficiency=h200_sxm").err;
    CHECK(measured.find("by the efficiencies 'h200_sxm'") != std::string::npos);
    CHECK(measured.find(views) == std::string::npos);
  }
  CHECK(plimsoll(question).err.find(views) == std::string::npos);
  CHECK(json_of(question + " --json")["times_rescaled"] == true);
  CHECK(json_of("simulate --strategy store_all --trace resnet50_b8_cpu --platform cpu_host --json")["times_rescaled"] ==
        false);
}

TEST_CASE("wrong words on the command line exit with 2 and one line that says what to write", "[program]") {
  const std::string on_example = example;
  const std::vector<std::pair<std::string, std::string>> cases{
      {"simulate --strategy rotr " + on_example,
       "--strategy:1:1: unknown strategy 'rotr'; did you mean 'rotor'?\n  rotr\n  ^\n"},
      {"simulate --strategy 'rotor(slot=3)' " + on_example,
       "--strategy:1:7: rotor.slot: unknown option; did you mean 'slots'?\n  rotor(slot=3)\n        ^\n"},
      {"simulate --strategy 'rotor(slots=0)' " + on_example,
       "--strategy:1:13: rotor.slots: expected exact or a whole number from 1 to 100000, found '0'\n  rotor(slots=0)\n "
       "             ^\n"},
      {"simulate --strategy 'rotor(slots=5,slots=6)' " + on_example,
       "--strategy:1:15: rotor.slots: given twice\n  rotor(slots=5,slots=6)\n                ^\n"},
      {"simulate --strategy 'rotor(slots' " + on_example,
       "--strategy:1:12: rotor.slots: expected '=' and a value\n  rotor(slots\n             ^\n"},
      {"simulate --strategy 'rotor(slots=5' " + on_example,
       "--strategy:1:14: rotor: expected ',' or ')', found the end\n  rotor(slots=5\n               ^\n"},
      {"simulate --strategy 'rotor)' " + on_example,
       "--strategy:1:6: expected '|' or the end, found ')'\n  rotor)\n       ^\n"},
      {"simulate --strategy 'rotor|' " + on_example,
       "--strategy:1:7: expected the name of a strategy, found the end\n  rotor|\n        ^\n"},
      {"simulate --strategy 'chen_sqrt|rotor' " + on_example,
       "--strategy:1:11: 'rotor' cannot follow 'chen_sqrt': both are rematerialization strategies, and one part has "
       "one\n  chen_sqrt|rotor\n            ^\n"},
      {"simulate --strategy 'heft|1f1b' " + on_example,
       "--strategy:1:6: '1f1b' cannot follow 'heft': both assign work to devices\n  heft|1f1b\n       ^\n"},
      {"simulate --strategy 'heft(devices=3)' --trace resnet18_ops_b8_cpu --platform ideal",
       "--strategy:1:14: heft(devices=3): platform 'ideal' has 1 device\n  heft(devices=3)\n               ^\n"},
      {"simulate --strategy 'store_all|rotor' " + on_example,
       "--strategy:1:11: 'store_all' cannot be combined with 'rotor': store_all keeps everything, and every memory "
       "strategy starts from that anyway\n  store_all|rotor\n            ^\n"},
      {"simulate --strategy rotor --memory 20 " + on_example,
       "--memory: missing unit, expected a size such as 80 GB or 64 MiB, found '20'\n"},
      {"simulate --strategy rotor --micro-batches 0 " + on_example,
       "--micro-batches: expected a whole number from 1 to 1000000, found '0'\n"},
      {"simulate --strategy rotor --engine simgird " + on_example,
       "--engine: expected simgrid or event, found 'simgird'; did you mean 'simgrid'?\n"},
      {"simulate --strategy 'heft | rotor' --optimizer adam --trace resnet18_ops_b8_cpu --platform ideal",
       "--strategy:1:8: strategy 'rotor' works on chain traces only, and 'resnet18_b8_ops' is a graph trace; "
       "'chain|rotor' cuts it into stages\n"
       "  heft | rotor\n         ^\n"},
      {"simulate --strategy '  pool(tensors=conv.input, k=64)' --platform ideal --trace "
       "resnet:blocks=4,channels=8,picture=8,batch=2,view=graph",
       "--strategy:1:30: pool: k=64 is larger than every map that tensors=conv.input names (the largest is 2)\n"
       "    pool(tensors=conv.input, k=64)\n                               ^\n"},
      {"import dnn-partitioning --as layer x -o y",
       "--as: expected trace or layers, found 'layer'; did you mean 'layers'?\n"},
      {"import pipedream --as layers x -o y", "--as: is for dnn-partitioning, sapp or piper only\n"},
      {"import pipeline-csv --device gpu x -o y", "--device: is for traces only\n"},
      {"simulat",
       "plimsoll: unknown command 'simulat'; did you mean 'simulate'?\n'plimsoll help' lists the commands\n"},
      {"describe roter", "describe: no strategy, platform or trace is called 'roter'; did you mean 'rotor'?\n"},
      {"help simulat", "help: unknown command 'simulat'; did you mean 'simulate'?\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramRun run = plimsoll(arguments);
    INFO(arguments);
    CHECK(run.err == message);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
  }
}

TEST_CASE("a trace without flops is refused on a device it was not measured on", "[program]") {
  const ProgramRun run =
      plimsoll("simulate --strategy rotor --trace tests/experiments/worked_example.json --platform h200");
  CHECK(run.exit_code == 2);
  CHECK(
      run.err ==
      "trace 'tests/experiments/worked_example.json' on platform 'h200': times were measured on 'paper' and cannot be "
      "re-scaled to 'NVIDIA H200': 'first' has no flops in the trace\n");
}

TEST_CASE("an option that does not exist is named, whatever else is missing", "[program]") {
  const auto first_line = [](const std::string& arguments) {
    const ProgramRun run = plimsoll(arguments);
    CHECK(run.exit_code == 2);
    return run.err.substr(0, run.err.find('\n'));
  };
  CHECK(first_line("simulate --trac x") == "plimsoll simulate: unknown option '--trac'; did you mean '--trace'?");
  CHECK(first_line("simulate --trac=x") == "plimsoll simulate: unknown option '--trac'; did you mean '--trace'?");
  CHECK(first_line("simulate -x 3") == "plimsoll simulate: unknown option '-x'");
  CHECK(first_line("simulate --platform ideal") == "plimsoll simulate: --trace is required");
  CHECK(first_line("list") == "plimsoll list: kind is required");
  CHECK(first_line("list platfroms") ==
        "plimsoll list: kind: platfroms not in {strategies,platforms,traces,models}; did you mean 'platforms'?");
  CHECK(first_line("replay --schedule x --backend cdua") ==
        "plimsoll replay: --backend: cdua not in {cpu,cuda}; did you mean 'cuda'?");
  CHECK(first_line("list x") == "plimsoll list: kind: x not in {strategies,platforms,traces,models}");
  CHECK(first_line("sweep --jobz 3 e.yaml -o out") ==
        "plimsoll sweep: unknown option '--jobz'; did you mean '--jobs'?");
}

TEST_CASE("columns of a list never run together", "[program]") {
  for (const std::string what : {"strategies", "platforms", "traces"}) {
    const nlohmann::json all = json_of("list " + what + " --json");
    const std::string text = plimsoll("list " + what).out;
    for (const nlohmann::json& entry : all[what]) {
      const std::string name = entry["name"];
      INFO(name);
      CHECK(("\n" + text).find("\n" + name + "  ") != std::string::npos);
      if (entry.contains("family"))
        CHECK(text.find("  " + entry["family"].get<std::string>() + "  ") != std::string::npos);
      if (entry.contains("model")) CHECK(text.find(" x  ") == std::string::npos);  // a device without a name has a word
    }
    CHECK(text.find(" \n") == std::string::npos);
  }
}

TEST_CASE("a summary counts the steps that repeat an op, and its bounds have one sign", "[program]") {
  const std::string question = "simulate --trace gpt12_w768_t256_b4_cpu --platform cpu_host --memory 1.5GB --strategy ";
  const TemporaryFolder folder;
  const std::string schedule = (folder / "s.json").string();
  const std::string text = plimsoll(question + "rotor --schedule-out " + schedule).out;
  std::size_t repeated = 0, steps = 0;
  const nlohmann::json file = nlohmann::json::parse(text_of(schedule));
  for (const nlohmann::json& step : file["steps"]) {
    ++steps;
    if (step["kind"] == "recompute") ++repeated;
  }
  CHECK(repeated > 0);
  CHECK(text.find("   " + std::to_string(repeated) + " of " + std::to_string(steps) + " steps\n") != std::string::npos);
  // On this chain the sum of the ops' times and the makespan are rounded differently.
  for (const std::string trace : {"resnet50_b8_cpu", "densenet121_b8_cpu", "vgg16_b8_cpu", "gpt12_w768_t256_b4_cpu"}) {
    for (const std::string strategy : {"store_all", "rotor", "chen_sqrt"}) {
      const std::string out = plimsoll("simulate --platform cpu_host --trace " + trace + " --strategy " + strategy).out;
      CHECK(out.find("+-") == std::string::npos);
      CHECK(out.find("-0.0") == std::string::npos);
      CHECK(out.find("within 0.0000 %") == std::string::npos);
    }
  }
}

TEST_CASE("what was computed of no device says so without quotes around nothing", "[program]") {
  for (const std::string arguments : {"describe uniform:4", "describe transformer:layers=2", "list traces",
                                      "simulate --trace transformer:layers=2 --platform h200 --strategy store_all",
                                      "simulate --trace uniform:4 --platform h200 --strategy store_all"}) {
    const ProgramRun run = plimsoll(arguments);
    INFO(arguments);
    CHECK((run.out + run.err).find("''") == std::string::npos);
  }
}

TEST_CASE("gaps that are only rounding are none", "[program][eleventh-0]") {
  for (const std::string strategy : {"exact", "checkmate", "offload_exact", "poet", "monet", "portfolio"}) {
    const nlohmann::json gap = json_of(
        "simulate --json --trace gpt4_ops_w256_t128_b4_cpu --platform cpu_host --memory "
        "120MB --strategy " +
        strategy)["gap"];
    INFO(strategy);
    CHECK((gap.is_null() || gap == 0.0 || gap.get<double>() > 1e-12));
  }
}

TEST_CASE("without a command, and with help, the program teaches the way", "[program]") {
  CHECK(plimsoll("").exit_code == 2);
  CHECK(plimsoll("").err.find("simulate") != std::string::npos);
  CHECK(plimsoll("help").exit_code == 0);
  CHECK(plimsoll("help").out == plimsoll("--help").out);
  CHECK(plimsoll("help").out == plimsoll("").err);
  CHECK(plimsoll("help simulate").out.find("--memory") != std::string::npos);
  CHECK(plimsoll("simulate --help").exit_code == 0);
  CHECK(plimsoll("simulate -t uniform:3 -p ideal -s ''")
            .err.starts_with("--strategy:1:1: expected the name of a strategy, found the end\n"));
  CHECK(plimsoll("--version").out == "plimsoll " PLIMSOLL_VERSION " (" + std::string(build_name()) + ")\n");
}

TEST_CASE("--memory may be a share of store_all's peak", "[command_line]") {
  const std::string question = "simulate -t uniform:9 -p ideal --engine event --json -s ";
  const auto asked = [&](const std::string& strategy_and_memory) {
    return nlohmann::json::parse(plimsoll(question + strategy_and_memory).out);
  };
  const std::int64_t peak = asked("store_all")["peak_bytes"];
  const nlohmann::json rotor = asked("rotor --memory '75 %'");
  CHECK(rotor["memory_budget_bytes"] == (peak * 3 + 2) / 4);
  CHECK(rotor["peak_bytes"] <= rotor["memory_budget_bytes"]);
  CHECK(asked("store_all --memory 100%")["feasible"] == true);
  CHECK(asked("store_all --memory 99%")["feasible"] == false);
  CHECK(plimsoll(question + "rotor --memory 0%").err ==
        "--memory: expected a share of the peak of store_all, above 0 % to 1000 %, such as 50 %, found '0%'\n");
}

TEST_CASE("a trace from a pipe, which can be read once, does for a share and a transform too", "[command_line]") {
  const TemporaryFolder folder;
  const auto simulate = [&](const std::string& trace, const std::string& out) {
    return std::system(("cat traces/data/resnet50_b8_cpu.json | " PLIMSOLL_PROGRAM
                        " simulate --json --engine event -p ideal "
                        "-s 'sparse_update(train=last:2)|rotor' --memory '75 %' -t " +
                        trace + " >" + (folder / out).string())
                           .c_str());
  };
  REQUIRE(simulate("resnet50_b8_cpu", "named") == 0);
  REQUIRE(simulate("/dev/stdin", "piped") == 0);
  const auto answer = [&](const std::string& out) { return nlohmann::json::parse(text_of(folder / out)); };
  CHECK(answer("piped")["memory_budget_bytes"] == answer("named")["memory_budget_bytes"]);
  CHECK(answer("piped")["makespan_s"] == answer("named")["makespan_s"]);
}

TEST_CASE("starting the program loads neither SimGrid nor COIN-OR", "[command_line]") {
  const TemporaryFolder folder;
  const std::string list = (folder / "list").string();
  REQUIRE(std::system(("LD_TRACE_LOADED_OBJECTS=1 " PLIMSOLL_PROGRAM " >" + list).c_str()) == 0);
  const std::string loaded = text_of(list);
  CHECK(loaded.find("libstdc++") != std::string::npos);
  for (const char* late : {"libsimgrid", "libCbc", "libClp", "libopenblas"})
    CHECK(loaded.find(late) == std::string::npos);
}

TEST_CASE("the program runs without its late libraries until it needs one, and then names it", "[command_line]") {
  const TemporaryFolder folder;
  std::filesystem::copy(PLIMSOLL_PROGRAM, folder / "alone");
  const auto alone = [&](const std::string& strategy) {
    const std::string err = (folder / "err").string();
    const int status =
        std::system(("PLIMSOLL_DATA=. " + (folder / "alone").string() +
                     " simulate -t uniform:6 -p ideal --engine event -m '70 %' -s " + strategy + " >/dev/null 2>" + err)
                        .c_str());
    return std::pair(WEXITSTATUS(status), text_of(err));
  };
  CHECK(alone("rotor").first == 0);
  const auto [exit_code, message] = alone("checkmate");
  CHECK(exit_code == 1);
  CHECK(message.starts_with("libplimsoll_coin.so belongs next to the program: "));
}

}  // namespace
}  // namespace plimsoll
