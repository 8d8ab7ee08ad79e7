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
  const auto simulated = [&](const std::string& spec) {
    const ProgramRun run = plimsoll("simulate --json --engine event -p h200 -t llama3_8b_fsdp64 -s '" + spec + "'");
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json all = simulated("store_all"),
                       again = simulated("recompute_ops(file=experiments/papers/llama3_8b/pytorch.txt)");
  CHECK(all["peak_bytes"].get<double>() == Approx(142.5e9).epsilon(0.0004));
  CHECK(again["peak_bytes"].get<double>() == Approx(38.24e9).epsilon(0.0002));
  CHECK(again["makespan_s"].get<double>() / all["makespan_s"].get<double>() == Approx(1.157).epsilon(0.0005));
}

TEST_CASE("a list of ops to recompute names each line that is no op's name", "[recompute]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "ops.txt").string(),
                    command = "simulate -p h200 -t llama3_8b_fsdp64 -s 'recompute_ops(file=" + file + ")'";
  write_text_file(file, "mm\n\nmm_1x\nno_such_op");
  const ProgramRun run = plimsoll(command);
  CHECK(run.exit_code == 2);
  CHECK(run.err.find(file +
                     ":3:1: no forward op of 'llama3_8b_fsdp64_seq8192_b2' is called 'mm_1x'; did you mean 'mm_1") !=
        std::string::npos);
  CHECK(run.err.find(file + ":4:1: no forward op of 'llama3_8b_fsdp64_seq8192_b2' is called 'no_such_op'") !=
        std::string::npos);
  write_text_file(file, "\n");
  CHECK(plimsoll(command).err.find("'" + file + "' names no op") != std::string::npos);
  CHECK(plimsoll("simulate -p h200 -t llama3_8b_fsdp64 -s 'recompute_ops(file=" + file + "x)'").exit_code == 2);
}

}  // namespace plimsoll
