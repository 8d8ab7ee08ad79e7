// `recompute_ops` with the choice that another program made for a real model: PyTorch's partitioner on Llama-3 8B, from
// the dump that the shipped trace is from (traces/shipped.md).

#include <nlohmann/json.hpp>
#include <string>

#include "sim/io/text_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {

// Simulated before by others' means, from the same dump: storing all takes 142.5 GB; PyTorch's schedule peaks at 38.24
// GB and takes 15.7 % longer with launches.
TEST_CASE("what PyTorch recomputes of Llama-3 8B needs and takes what others have simulated",
          "[recompute][published]") {
  const nlohmann::json policy =
      nlohmann::json::parse(read_text_file("tests/experiments/export/llama3_8b_pytorch_policy.json.gz"));
  std::string ops;
  for (const auto& op : policy["pytorch_recomputed"]) ops += (ops.empty() ? "" : "+") + op.get<std::string>();
  const auto simulated = [&](const std::string& spec) {
    const ProgramRun run = plimsoll("simulate --json --engine event -p h200 -t llama3_8b_fsdp64 -s '" + spec + "'");
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json all = simulated("store_all"), again = simulated("recompute_ops(ops=" + ops + ")");
  CHECK(all["peak_bytes"].get<double>() == Approx(142.5e9).epsilon(0.0004));
  CHECK(again["peak_bytes"].get<double>() == Approx(38.24e9).epsilon(0.0002));
  CHECK(again["makespan_s"].get<double>() / all["makespan_s"].get<double>() == Approx(1.157).epsilon(0.0005));
}

}  // namespace plimsoll
