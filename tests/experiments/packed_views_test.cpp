// Packed forms in what a user looks at: what fills the memory, and which values were packed in vain.

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

nlohmann::json answer_of(const std::string& spec, const std::string& more = "") {
  const ProgramRun run =
      plimsoll("simulate --json --platform h200 --trace resnet18:batch=2,size=64 --strategy '" + spec + "' " + more);
  INFO(spec << ": " << run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("what is packed has a kind of its own at the peak, and names its codec", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "peak.json").string();
  const nlohmann::json answer = answer_of("pool(k=2,relu=keep)", "--memory-profile " + file);
  const nlohmann::json& kinds = answer["peak"]["bytes_by_kind"];
  std::int64_t sum = 0;
  for (const nlohmann::json& bytes : kinds) sum += bytes.get<std::int64_t>();
  CHECK(sum == answer["peak_bytes"]);
  CHECK(kinds["packed"] > 0);
  CHECK(answer_of("store_all")["peak"]["bytes_by_kind"]["packed"] == 0);

  const nlohmann::json profile = nlohmann::json::parse(text_of(std::filesystem::path(file)));
  const nlohmann::json& memory = profile["memories"][0];
  CHECK(memory["bytes_by_kind"] == kinds);
  std::int64_t packed = 0;
  for (const nlohmann::json& tensor : memory["tensors"]) {
    if (!tensor.contains("codec")) continue;
    CHECK(tensor["codec"] == "pool(type=average,window=2)");
    packed += tensor["bytes"].get<std::int64_t>();
  }
  CHECK(packed == kinds["packed"]);
}

TEST_CASE("a timeline counts packed forms by themselves", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "timeline.json").string();
  const nlohmann::json answer = answer_of("quantize(bits=4)", "--timeline " + file);
  const nlohmann::json timeline = nlohmann::json::parse(text_of(std::filesystem::path(file)));
  std::int64_t most = 0, fullest = 0;
  for (const nlohmann::json& event : timeline["traceEvents"]) {
    if (event["ph"] != "C") continue;
    std::int64_t sum = 0;
    for (const nlohmann::json& bytes : event["args"]) sum += bytes.get<std::int64_t>();
    if (event["args"].contains("packed")) most = std::max(most, event["args"]["packed"].get<std::int64_t>());
    fullest = std::max(fullest, sum);
  }
  CHECK(most > 0);
  CHECK(fullest == answer["peak_bytes"]);
}

TEST_CASE("values that are packed in vain are named with those who keep them whole", "[program]") {
  // A ReLU that keeps its output is the next convolution's input, which is pooled: as PyTorch's would be.
  const nlohmann::json stock = answer_of("pool(k=2,relu=keep)");
  REQUIRE_FALSE(stock["kept_whole"].empty());
  for (const nlohmann::json& kept : stock["kept_whole"]) {
    INFO(kept.dump());
    CHECK(kept["codec"] == "pool(type=average,window=2)");
    CHECK(kept["bytes"] > 0);
    REQUIRE_FALSE(kept["holders"].empty());
    for (const nlohmann::json& holder : kept["holders"]) {
      CHECK(holder.get<std::string>().find("threshold_backward") != std::string::npos);
    }
  }
  // With one bit for each sign nothing is in vain; plain training packs nothing.
  CHECK(answer_of("pool(k=2)")["kept_whole"].empty());
  CHECK(answer_of("store_all")["kept_whole"].empty());

  const ProgramRun text =
      plimsoll("simulate --platform h200 --trace resnet18:batch=2,size=64 --strategy 'pool(k=2,relu=keep)'");
  CHECK(text.out.find("values saves nothing, and takes") != std::string::npos);
  CHECK(text.out.find("threshold_backward") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
