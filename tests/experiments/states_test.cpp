// Optimizer states and views through the whole program; synthetic transformers on every shipped platform.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/run.h"
#include "sim/memory/step_orders.h"
#include "sim/model/evaluation_forward.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

nlohmann::json answer(const std::string& arguments) {
  const ProgramRun run = plimsoll(arguments);
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

// 2 layers of width 64, 32 words: numbers of parameters as its formulas have them.
TEST_CASE("the states that were taken are in text, JSON and schedule file, and check rebuilds them", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string(),
                    model = "--trace transformer:layers=2,width=64,heads=2,sequence=32,vocabulary=32 --platform h200 ";
  const std::string question = "simulate --strategy store_all --json --engine event " + model;
  const nlohmann::json none = answer(question);
  CHECK(none["states"].is_null());
  CHECK(none["state_bytes"] == 0);
  const nlohmann::json mixed = answer(question + "--optimizer adam --schedule-out " + file);
  CHECK(mixed["states"] == "fp32");
  const auto kept = mixed["state_bytes"].get<std::int64_t>();
  CHECK(mixed["peak"]["bytes_by_kind"]["parameter"].get<std::int64_t>() * 6 == kept);  // 12 bytes for 2
  CHECK(text_of(file).find("\"states\": \"fp32\"") != std::string::npos);
  const nlohmann::json judged = answer("check --json --schedule " + file + " " + model);
  CHECK(judged["legal"] == true);
  CHECK(judged["peak_bytes"] == mixed["peak_bytes"]);
  const nlohmann::json narrow = answer(question + "--optimizer adam --states as_parameters --schedule-out " + file);
  CHECK(narrow["states"] == "as_parameters");
  CHECK(narrow["state_bytes"].get<std::int64_t>() * 3 == kept);
  CHECK(answer("check --json --schedule " + file + " " + model)["peak_bytes"] == narrow["peak_bytes"]);
  const std::string summary = plimsoll("simulate --strategy store_all --optimizer adam --engine event " + model).out;
  CHECK(summary.find("   of adam, fp32; updates fused\n") != std::string::npos);
  const nlohmann::json single = answer(question + "--optimizer adam --update-kernels single --schedule-out " + file);
  CHECK(single["update_kernels"] == "single");
  CHECK(single["makespan_s"].get<double>() > mixed["makespan_s"].get<double>());
  CHECK(answer("check --json --schedule " + file + " " + model)["makespan_s"] == single["makespan_s"]);
  CHECK(plimsoll("simulate --strategy store_all --update-kernels foreach " + model).err ==
        "--update-kernels: 'foreach' needs an --optimizer, found none\n");
  const nlohmann::json clipped = answer(question + "--optimizer adam --clip-norm --schedule-out " + file);
  CHECK(clipped["clip_norm"] == true);
  CHECK(mixed["clip_norm"].is_null());
  CHECK(clipped["makespan_s"].get<double>() > mixed["makespan_s"].get<double>());
  CHECK(clipped["peak_bytes"] == mixed["peak_bytes"]);
  CHECK(answer("check --json --schedule " + file + " " + model)["makespan_s"] == clipped["makespan_s"]);
  CHECK(plimsoll("simulate --strategy store_all --optimizer adam --clip-norm --engine event " + model)
            .out.find("updates fused, gradients clipped\n") != std::string::npos);
  CHECK(plimsoll("simulate --strategy backward_updates --optimizer adam --clip-norm " + model).exit_code == 2);
  CHECK(plimsoll("simulate --strategy store_all --clip-norm " + model).err.find("an optimizer, found none") !=
        std::string::npos);
  const nlohmann::json averaged = answer(question + "--optimizer adam --ema --schedule-out " + file);
  CHECK(averaged["ema"] == true);
  CHECK(averaged["state_bytes"].get<std::int64_t>() * 3 == kept * 4);  // 4 bytes beside 12
  CHECK(answer("check --json --schedule " + file + " " + model)["peak_bytes"] == averaged["peak_bytes"]);
  CHECK(plimsoll("simulate --strategy store_all --ema " + model).err.find("an optimizer, found none") !=
        std::string::npos);
  const ProgramRun without = plimsoll("simulate --strategy store_all --states fp32 " + model);
  CHECK(without.exit_code == 2);
  CHECK(without.err == "--states: 'fp32' needs an --optimizer, found none\n");
}

TEST_CASE("an evaluation is in text, JSON and schedule file, and wrong words are refused", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "s.json").string(),
                    model = "--trace gpt2:layers=2,width=64,heads=2,sequence=32,vocabulary=32,batch=4 --platform h200 ";
  const std::string question = "simulate --strategy store_all --engine event --optimizer adam " + model;
  const nlohmann::json plain = answer(question + "--json"),
                       evaluated =
                           answer(question + "--json --evaluate every=10,batches=5,samples=400 --schedule-out " + file),
                       half = answer(question + "--json --evaluate every=10,batches=5,samples=200"),
                       own = answer(question + "--json --evaluate every=10");
  CHECK(plain["evaluation"].is_null());
  CHECK(evaluated["evaluation"] == "every=10,batches=5,samples=400");
  CHECK(own["evaluation"] == "every=10,batches=1");
  CHECK(own["peak_bytes"] == plain["peak_bytes"]);
  const auto number = [](const nlohmann::json& of, const char* key) { return of[key].get<double>(); };
  const auto share = [&](const nlohmann::json& of) { return number(of, "makespan_s") - number(plain, "makespan_s"); };
  CHECK(share(own) > 0);  // launches do not grow with samples, all else does
  CHECK((share(evaluated) - share(half)) / 50 == Approx((share(half) - 5 * share(own)) / 49).epsilon(1e-6));
  CHECK(evaluated["peak"]["op"] == "evaluation");
  const auto beside = evaluated["peak"]["bytes_by_kind"]["parameter"].get<std::int64_t>() +
                      evaluated["state_bytes"].get<std::int64_t>();
  CHECK(evaluated["peak_bytes"].get<std::int64_t>() - beside == 2 * (half["peak_bytes"].get<std::int64_t>() - beside));
  const nlohmann::json judged = answer("check --json --schedule " + file + " " + model);
  CHECK(judged["legal"] == true);
  CHECK(judged["peak_bytes"] == evaluated["peak_bytes"]);
  CHECK(judged["makespan_s"] == evaluated["makespan_s"]);
  const std::string summary = plimsoll(question + "--evaluate every=10").out;
  CHECK(summary.find("of each iteration (every=10,batches=1)") != std::string::npos);
  CHECK(summary.find("  evaluation ") != std::string::npos);
  const auto refused = [&](const std::string& words, const std::string& why) {
    const ProgramRun run = plimsoll("simulate --strategy store_all --evaluate " + words + " " + model);
    CHECK(run.exit_code == 2);
    CHECK(run.err == "--evaluate: " + why + "\n");
  };
  refused("batches=2", "expected every=N[,batches=N][,samples=N], found 'batches=2'");
  refused("every=0", "every: expected a whole number from 1 to 1000000, found '0'");
  refused("every=2,often=3", "expected every=N[,batches=N][,samples=N], found 'often=3'");
  refused("every=2,every=3", "every: given twice");
  const ProgramRun unknown =
      plimsoll("simulate -s store_all --evaluate every=2,samples=9 -t resnet18_ops_b8_cpu -p cpu_host");
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err ==
        "--evaluate: samples=9: how many samples a micro-batch of 'resnet18_ops_b8_cpu' has is not known\n");
  const ProgramRun pipeline = plimsoll(
      "simulate -s gpipe --micro-batches 2 --evaluate every=2 -t "
      "transformer:layers=4 -p h100_sxm_8");
  CHECK(pipeline.exit_code == 2);
  CHECK(pipeline.err.find("has only a part of the network") != std::string::npos);
}

// On an H100, where each stage ran without gradients.
TEST_CASE("an evaluation of a measured model asks for what PyTorch asked for", "[program]") {
  const std::string measured = "validate/results/2026-11-26_h100/pytorch_gpt2_";
  const Question question{.trace = measured + "trace.json",
                          .platform = measured + "platform.yaml",
                          .strategy = parse_pipeline("store_all", "test"),
                          .evaluation = Evaluation{},
                          .engine = Engine::event};
  const BudgetedProblem made = budgeted_problem_of(question);
  const Answer plain = answer(question, made.problem, std::span(&made.budget, 1)).front();
  const StepOrders orders = step_orders(made.problem, *plain.schedule);
  REQUIRE(orders.evaluation);
  std::vector<std::int64_t> sizes;
  std::int64_t now = 0, most = 0;
  for (const std::int64_t n : *orders.evaluation) {
    if (n > 0) sizes.push_back(n);
    now += n > 0 ? n : -std::exchange(sizes.at(static_cast<std::size_t>(-n) - 1), 0);
    most = std::max(most, now);
  }
  CHECK(now == 0);
  CHECK(evaluation_bytes(made.problem.graph, Evaluation{}) == Bytes{most});
}

TEST_CASE("an op trace without updates is given them", "[program]") {
  for (const std::string trace : {"gpt4_ops_w256_t128_b4_cpu", "resnet18_ops_b8_cpu"}) {
    const nlohmann::json made = answer(
        "simulate --strategy 'greedy_recompute|zero_offload' --platform cpu_host --json "
        "--engine event --optimizer adam --trace " +
        trace);
    CHECK(made["states"] == "as_parameters");
    const nlohmann::json plain = answer(
        "simulate --strategy store_all --platform cpu_host --json --engine event "
        "--optimizer adam --trace " +
        trace);
    CHECK(plain["peak"]["bytes_by_kind"]["optimizer_state"] == plain["state_bytes"]);
    CHECK(plain["state_bytes"].get<std::int64_t>() ==
          2 * plain["peak"]["bytes_by_kind"]["parameter"].get<std::int64_t>());  // nothing is frozen
  }
}

// 21 parameters, so 20 launches of 3 us more where each has a kernel of its own, and as many for their averages. Shares
// take what those of the same model as a graph take.
TEST_CASE("graphs that are made anew of a chain keep launches and averages of updates", "[program]") {
  const auto planned = [](const std::string& view, const std::string& words) {
    return answer("simulate -t llama:layers=2,width=64,heads=8,sequence=32,batch=4,vocabulary=96,inner=96,view=" +
                  view + " -p h100_sxm_8 --optimizer adam --json --engine event --micro-batches 2 -s " + words);
  };
  const auto time = [](const nlohmann::json& made) { return made["makespan_s"].get<double>(); };
  for (const std::string strategy : {"'zero3(ranks=2)' ", "'seq1f1b(stages=1,slices=2)' "}) {
    CHECK(time(planned("chain", strategy + "--update-kernels single")) - time(planned("chain", strategy)) ==
          Approx(20 * 3e-6));
    CHECK(time(planned("chain", strategy + "--ema --update-kernels single")) -
              time(planned("chain", strategy + "--ema")) ==
          Approx(40 * 3e-6));
  }
  for (const std::string strategy : {"'zero2(ranks=2)' ", "'zero3(ranks=2)' "}) {
    const nlohmann::json chain = planned("chain", strategy + "--ema"), graph = planned("graph", strategy + "--ema");
    CHECK(chain["state_bytes"] == graph["state_bytes"]);
    CHECK(chain["peak_bytes"] == graph["peak_bytes"]);
  }
}

TEST_CASE("a pipeline's part that is planned as a chain of its own keeps its averages", "[program]") {
  const nlohmann::json made = answer(
      "simulate -t llama:lora=4,layers=3,width=64,heads=8,kv_heads=2,sequence=32,batch=4,vocabulary=96,inner=96 "
      "-p h100_sxm_8 -s 'gpipe(stages=3)|pofo' --optimizer adam --micro-batches 2 --engine event --json --ema");
  CHECK(made["promised_peak_bytes"] == made["peak_bytes"]);
}

TEST_CASE("a synthetic transformer runs on every shipped platform in a dtype that it has", "[program]") {
  for (const auto& entry : std::filesystem::directory_iterator("platforms")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string platform = entry.path().stem().string();
    INFO(platform);
    bool runs = false;
    for (const std::string dtype : {"bf16", "fp16", "fp32"}) {
      const ProgramRun run =
          plimsoll("simulate --strategy store_all --engine event --trace transformer:layers=1,dtype=" + dtype +
                   " --platform " + platform);
      CHECK((run.exit_code == 0 || run.err.find("the platform gives no peak for " + dtype) != std::string::npos));
      runs |= run.exit_code == 0;
    }
    CHECK(runs);
  }
  const ProgramRun refused =
      plimsoll("simulate --strategy store_all --trace transformer:layers=1 --platform v100_pcie");
  CHECK(refused.exit_code == 2);
  CHECK(
      refused.err ==
      "trace 'transformer:layers=1' on platform 'v100_pcie': times are of no device and cannot be re-scaled to 'Tesla "
      "V100-PCIE-16GB': the platform gives no peak for bf16, only for fp16, fp32: give the trace one of these "
      "(source.dtype; transformer:...,dtype=)\n");
  CHECK(plimsoll("simulate --strategy store_all --trace transformer:dtype=fp16,dtype_bytes=4 --platform h200").err ==
        "transformer: dtype_bytes: fp16 has 2, found 4\n");
}

TEST_CASE("a trace with a view of its weight is planned, and its view takes no time", "[program]") {
  const TemporaryFolder folder;
  const std::string trace = (folder / "linear.json").string();
  std::ofstream(trace) << R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "linear", "tensors": [
    {"name": "x", "kind": "input", "bytes": 4}, {"name": "w", "kind": "parameter", "bytes": 8, "storage": 7},
    {"name": "wt", "kind": "activation", "bytes": 8, "storage": 7}, {"name": "y", "kind": "activation", "bytes": 4},
    {"name": "g", "kind": "parameter_gradient", "bytes": 8}], "ops": [
    {"name": "t", "phase": "forward", "time_s": 0.5, "inputs": [1], "outputs": [2]},
    {"name": "m", "phase": "forward", "time_s": 1, "inputs": [0, 2], "outputs": [3]},
    {"name": "b", "phase": "backward", "time_s": 1, "inputs": [0, 3], "outputs": [4]}]})";
  const ProgramRun run =
      plimsoll("simulate --strategy store_all --engine event --json --platform ideal --trace " + trace);
  CHECK(run.exit_code == 0);
  CHECK(run.err == "note: views take no time; the 500.00 ms that 'linear' gives for them are left out\n");
  const nlohmann::json made = nlohmann::json::parse(run.out);
  CHECK(made["makespan_s"] == 2.0);
  CHECK(made["peak_bytes"] == 24);
}

}  // namespace
}  // namespace plimsoll
