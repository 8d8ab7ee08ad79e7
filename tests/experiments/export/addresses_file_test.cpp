// The file of addresses against the schedule's file: on one stream, step by step, what is there shares no byte.

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/io/schedule/schedule_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

using AddressRange = std::pair<std::int64_t, std::int64_t>;  // from, end

/// By number of a buffer, or of a step with a workspace.
std::map<std::size_t, AddressRange> ranges_of(const nlohmann::json& list, const char* number) {
  std::map<std::size_t, AddressRange> ranges;
  for (const nlohmann::json& each : list) {
    const std::int64_t from = each["offset_bytes"];
    ranges[each[number]] = {from, from + each["bytes"].get<std::int64_t>()};
  }
  return ranges;
}

bool share_bytes(const AddressRange& a, const AddressRange& b) {
  return a.first < b.second && b.first < a.second;
}

TEST_CASE("plan --addresses writes offsets of which no two share bytes, as few as are live", "[addresses][program]") {
  const TemporaryFolder folder;
  const std::string plan = (folder / "plan.json").string(), file = (folder / "addresses.json").string();
  const ProgramRun run =
      plimsoll("plan -t gpt12_w768_t256_b4_cpu -p h200 -s rotor -m '70 %' -o " + plan + " --addresses " + file);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json made = nlohmann::json::parse(text_of(file));
  const Schedule schedule = read_schedule(plan);
  const auto buffers = ranges_of(made["buffers"], "buffer"), workspaces = ranges_of(made["workspaces"], "step");
  std::map<std::size_t, AddressRange> there;
  std::int64_t live = 0, most = 0;
  const auto begin = [&](BufferId b) {
    const auto found = buffers.find(b.index);
    if (found == buffers.end()) return;
    for (const auto& [other, range] : there) CHECK_FALSE(share_bytes(range, found->second));
    CHECK(found->second.second <= made["blocks"][0]["bytes"]);
    there.insert(*found);
    live += schedule[b].bytes.count;
  };
  for (const BufferId b : schedule.resident) begin(b);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    for (const BufferId b : schedule.buffers_in(step.allocates)) begin(b);
    const auto workspace = workspaces.find(s);
    if (workspace != workspaces.end()) {
      for (const auto& [other, range] : there) CHECK_FALSE(share_bytes(range, workspace->second));
    }
    most = std::max(most, live + std::max<std::int64_t>(0, step.workspace.count));
    for (const BufferId b : schedule.buffers_in(step.frees)) {
      live -= there.contains(b.index) ? schedule[b].bytes.count : 0;
      there.erase(b.index);
    }
  }
  const std::int64_t block = made["blocks"][0]["bytes"];
  CHECK(block >= most);
  CHECK(static_cast<double>(block) < 1.001 * static_cast<double>(most));
  CHECK(run.err.find("addresses: the largest block has " + std::to_string(block) + " B") != std::string::npos);
}

TEST_CASE("a block above the budget ends with 1, and a plan for PyTorch has no addresses", "[addresses][program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "addresses.json").string();
  const ProgramRun tight = plimsoll("plan -t transformer:layers=8 -p h100_sxm_8 -s '1f1b|rotor' --micro-batches 4 -m " +
                                    std::string("'660 MB' -o /dev/null --addresses ") + file);
  CHECK(tight.exit_code == 1);
  CHECK(tight.err.find("infeasible: its addresses take ") != std::string::npos);
  const ProgramRun both = plimsoll("plan -t uniform:4 -p ideal -s store_all --for pytorch --addresses " + file);
  CHECK(both.exit_code == 2);
}

}  // namespace
}  // namespace plimsoll
