// The file of addresses against the schedule's file: on one stream, step by step, what is there shares no byte.

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/io/schedule/schedule_file.h"
#include "sim/io/text_file.h"
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

/// A plan with its addresses, whose file a test changes.
struct PlanWithAddresses {
  TemporaryFolder folder;
  std::string plan = (folder / "plan.json").string(), addresses = (folder / "addresses.json").string();

  explicit PlanWithAddresses(const std::string& question) {
    REQUIRE(plimsoll("plan " + question + " -o " + plan + " --addresses " + addresses).exit_code == 0);
  }
  nlohmann::json read() const { return nlohmann::json::parse(text_of(addresses)); }
  ProgramRun check_with(const nlohmann::json& changed) const {
    write_text_file(addresses, changed.dump(1));
    return plimsoll("check --schedule " + plan + " --addresses " + addresses);
  }
};

const std::string small_question = "-t gpt:layers=2 -p ideal -s rotor";

TEST_CASE("a written file of addresses is judged again, and replayed from one block", "[addresses][program]") {
  const PlanWithAddresses files(small_question);
  const std::int64_t block = files.read()["blocks"][0]["bytes"];
  const ProgramRun judged = plimsoll("check --schedule " + files.plan + " --addresses " + files.addresses);
  CHECK(judged.exit_code == 0);
  CHECK(judged.out.find("addresses: the largest block has " + std::to_string(block) + " B") != std::string::npos);
  const auto replayed = [&](const std::string& how) {
    const ProgramRun run = plimsoll("replay --backend cpu --repetitions 1 --json --schedule " + files.plan + " " + how);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json without = replayed(""), from_file = replayed("--addresses " + files.addresses),
                       planned_anew = replayed("--arena");
  CHECK(from_file["trained"] == without["trained"]);
  CHECK(planned_anew["trained"] == without["trained"]);
  CHECK(from_file["devices"][0]["peak_reserved_bytes"] == block);
  CHECK(planned_anew["devices"][0]["peak_reserved_bytes"] == block);
  CHECK_FALSE(without["devices"][0].contains("peak_reserved_bytes"));
}

TEST_CASE("wrong files of addresses are refused at their place, and nothing runs", "[addresses][program]") {
  const PlanWithAddresses files(small_question);
  const nlohmann::json good = files.read();
  const auto says = [&](const std::function<void(nlohmann::json&)>& change, const std::string& what) {
    INFO(what);
    nlohmann::json changed = good;
    change(changed);
    const ProgramRun run = files.check_with(changed);
    CHECK(run.exit_code == 2);
    INFO(run.err);
    CHECK(run.err.find(files.addresses + ":") != std::string::npos);
    CHECK(run.err.find(what) != std::string::npos);
  };
  using nlohmann::json;
  says([](json& j) { j["format"] = "plimsoll.addresses.v9"; }, "format: expected plimsoll.addresses.v1, found");
  says([](json& j) { j["strategy"] = "store_all"; }, "strategy: addresses of 'store_all', the schedule has 'rotor'");
  says([](json& j) { j["blocks"][0]["memory"] = "attic"; }, "blocks: no block of '");
  says([](json& j) { j["blocks"].push_back(j["blocks"][0]); }, "blocks: expected one of each of 1 devices, found 2");
  says([](json& j) { j["buffers"][1]["offset_bytes"] = j["buffers"][0]["offset_bytes"]; },
       "may be live together with buffer 0, with which it shares bytes");
  says([](json& j) { j["buffers"][0]["offset_bytes"] = -512; },
       "buffers[0].offset_bytes: expected an offset in a block");
  says([](json& j) { j["buffers"][0]["offset_bytes"] = j["blocks"][0]["bytes"]; },
       "buffers[0].offset_bytes: buffer 0 lies outside its block");
  says([](json& j) { j["buffers"].erase(2); }, "buffers: buffer 2 has no address");
  says([](json& j) { j["buffers"][2]["buffer"] = 100'000; }, "buffers[2].buffer: expected below ");
  says([](json& j) { j["buffers"][2]["buffer"] = 1; }, "buffers[2].buffer: 1 again");
  says([](json& j) { j["buffers"][0]["bytes"] = 1; }, "buffers[0].bytes: expected ");
  says([](json& j) { j["workspaces"].erase(0); }, "workspaces: the workspace of step ");
  says([](json& j) { j["workspaces"][0]["memory"] = "cpu"; }, "workspaces[0].memory: expected '");
  says([](json& j) { j["hue"] = 1; }, "hue: ");
  const ProgramRun replay =
      plimsoll("replay --backend cpu --schedule " + files.plan + " --addresses " + files.addresses);
  CHECK(replay.exit_code == 2);
}

TEST_CASE("addresses of another schedule are refused", "[addresses][program]") {
  const PlanWithAddresses files(small_question);
  const PlanWithAddresses other("-t gpt:layers=2 -p ideal -s rotor -m '75 %'");
  const ProgramRun run = plimsoll("check --schedule " + other.plan + " --addresses " + files.addresses);
  CHECK(run.exit_code == 2);
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
