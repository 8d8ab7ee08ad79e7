// `recompute_ops` with the choice that another program made for a real model: PyTorch's partitioner on Llama-3 8B,
// where
// ../shared is there (PLIMSOLL_SHARED names it).

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/io/byte_source.h"
#include "sim/io/text_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

std::string expanded(const std::filesystem::path& file) {
  ByteSource source(file);
  std::string text;
  for (std::string_view block = source.next(); !block.empty(); block = source.next()) text += block;
  return text;
}

}  // namespace

// Simulated before by others' means, from the same dump: storing all takes 142.5 GB; PyTorch's schedule peaks at 38.24
// GB and takes 15.7 % longer with launches.
TEST_CASE("what PyTorch recomputes of Llama-3 8B needs and takes what is published", "[recompute][published]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no published plan is compared");
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(shared) / "data/llm_graphs";
  const nlohmann::json policy =
      nlohmann::json::parse(expanded(folder / "llama3_8b_fsdp64_pytorch_policy.json.gz"))["pytorch_recomputed"];
  std::string ops;
  for (const auto& op : policy) ops += (ops.empty() ? "" : "+") + op.get<std::string>();
  const TemporaryFolder own;
  const std::filesystem::path trace = own / "trace.json";
  write_text_file(trace, expanded(folder / "llama3_8b_fsdp64_joint.trace.json.gz"));
  const auto simulated = [&](const std::string& spec) {
    const ProgramRun run =
        plimsoll("simulate --json --engine event -p h200 -t " + trace.string() + " -s '" + spec + "'");
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json all = simulated("store_all"), again = simulated("recompute_ops(ops=" + ops + ")");
  CHECK(all["peak_bytes"].get<double>() == Approx(142.5e9).epsilon(0.0004));
  CHECK(again["peak_bytes"].get<double>() == Approx(38.24e9).epsilon(0.0002));
  CHECK(again["makespan_s"].get<double>() / all["makespan_s"].get<double>() == Approx(1.157).epsilon(0.0005));
}

}  // namespace plimsoll
