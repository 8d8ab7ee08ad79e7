// Plans for PyTorch: one by hand, rules that every plan obeys by a second reader, and what cannot be said in one.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

using nlohmann::json;

json stage(const char* name, int output, int saved, bool loss = false) {
  json made{{"name", name},           {"forward_s", 1.0},     {"backward_s", 2.0},
            {"output_bytes", output}, {"saved_bytes", saved}, {"keeps_output", false}};
  if (loss) made["input_gradient_bytes"] = 100;
  return made;
}

/// Four stages of which the last is the loss; boundaries of 100 B, and 40 B that each stage saves beside.
json small_trace() {
  json trace{{"format", "plimsoll.trace.v1"}, {"kind", "chain"}, {"name", "small"}, {"input_bytes", 10}};
  trace["stages"] = {stage("a", 100, 140), stage("b", 100, 140), stage("c", 100, 140), stage("loss", 0, 40, true)};
  trace["tensors"] = {{{"name", "x0"}, {"bytes", 10}},
                      {{"name", "x1"}, {"bytes", 100}},
                      {{"name", "x2"}, {"bytes", 100}},
                      {{"name", "x3"}, {"bytes", 100}}};
  trace["boundaries"] = {{0}, {1}, {2}, {3}, json::array()};
  json& pytorch = trace["source"]["pytorch"];
  for (const char* name : {"a", "b", "c", "loss"}) pytorch["stages"].push_back({{"name", name}});
  pytorch["boundaries"] = {{"input"}, {"a"}, {"b"}, {"c"}, {"loss"}};
  pytorch["tensors"] = {{0}, {1}, {2}, {3}, json::array()};
  pytorch["fingerprint"] = json::array({json::array({"", "Sequential", json::array()})});
  return trace;
}

std::string file_of(const TemporaryFolder& folder, const json& trace) {
  const std::string path = (folder / "trace.json").string();
  std::ofstream(path) << trace;
  return path;
}

ProgramRun planned(const json& trace, const std::string& strategy, const std::string& more = "",
                   const std::string& platform = "ideal") {
  const TemporaryFolder folder;
  return plimsoll("plan --for pytorch -p " + platform + " -t " + file_of(folder, trace) + " -s '" + strategy + "' " +
                  more);
}

/// Walks a plan as an executor does and says what is wrong with it: what is read without being there, dropped without
/// being there, or left; and where live bytes are not the sum of what is there. Knows nothing of schedules.
class Reader {
 public:
  explicit Reader(const json& plan, const json& trace) : plan_(plan), trace_(trace) {
    for (const json& value : plan["values"]) bytes_[value["name"]] = value["bytes"];
    live_ = plan["predicted"]["resident_bytes"];
  }

  std::string complaint() {
    for (const json& action : plan_["actions"]) {
      const std::string wrong = wrong_with(action);
      if (!wrong.empty()) return action.dump() + ": " + wrong;
    }
    if (!there_.empty() || !on_host_.empty()) return "left at the end: " + there_.begin()->second;
    if (plan_["predicted"]["host_peak_bytes"] != host_peak_)
      return "on the host there are " + std::to_string(host_peak_) + " B";
    if (backwards_ != trace_["stages"].size() * plan_["micro_batches"].get<std::size_t>())
      return "backwards are missing";
    return "";
  }

 private:
  using Key = std::pair<int, std::string>;

  std::string wrong_with(const json& action) {
    const int micro_batch = action["micro_batch"];
    const std::string what = action["do"];
    const auto add = [&](const std::string& name) {
      if (there_.emplace(Key{micro_batch, name}, name).second) live_ += bytes_.at(name);
    };
    const auto is_there = [&](const std::string& name) { return there_.contains({micro_batch, name}); };
    if (what == "forward" || what == "backward") {
      const std::size_t k = action["stage"];
      const std::string saved = "saved by " + trace_["stages"][k]["name"].get<std::string>();
      if (k == 0 && what == "forward") add("x0");
      for (const json& t : trace_["boundaries"][k]) {
        const std::string name = trace_["tensors"][t.get<std::size_t>()]["name"];
        if (what == "forward" && !is_there(name)) return name + " is not there";
        if (what == "backward") {
          if (k > 0 && !is_there(name)) return name + " is not there";
          add("gradient of " + name);
        }
      }
      if (what == "forward") {
        for (const json& name : action["makes"]) add(name);
        if (action["saves"]) add(saved);
      } else {
        ++backwards_;
        if (!is_there(saved)) return saved + " is not there";
        for (const json& t : trace_["boundaries"][k + 1]) {
          const std::string name = "gradient of " + trace_["tensors"][t.get<std::size_t>()]["name"].get<std::string>();
          if (!is_there(name)) return name + " is not there";
        }
      }
    } else if (what == "copy") {
      const std::string name = action["value"];
      const bool outward = action["to"] == "host";
      if (outward ? !is_there(name) : !on_host_.contains({micro_batch, name}))
        return name + " is not where it is copied from";
      if (outward) on_host_[{micro_batch, name}] += action.value("bytes", bytes_.at(name));
      host_peak_ = std::max(host_peak_, host_bytes());
      if (!outward) add(name);
    }
    if (action["peak_bytes"] < live_) return "its peak is below what is there, " + std::to_string(live_);
    for (const json& name : action.value("drops", json::array())) {
      if (there_.erase({micro_batch, name}) == 0) return name.get<std::string>() + " is dropped and not there";
      live_ -= bytes_.at(name);
    }
    for (const json& name : action.value("drops_on_host", json::array())) {
      if (on_host_.erase({micro_batch, name}) == 0)
        return name.get<std::string>() + " is dropped on the host and not there";
    }
    return action["after_bytes"] == live_ ? "" : "after it there are " + std::to_string(live_) + " B";
  }

  long host_bytes() const {
    long sum = 0;
    for (const auto& [key, bytes] : on_host_) sum += bytes;
    return sum;
  }

  const json &plan_, &trace_;
  std::map<std::string, long> bytes_;
  std::map<Key, std::string> there_;
  std::map<Key, long> on_host_;  ///< bytes that have been copied
  long host_peak_ = 0;
  std::size_t backwards_ = 0;
  long live_ = 0;
};

}  // namespace

TEST_CASE("plain training takes what the trace measured of it, and what runs stage by stage what its stages take alone",
          "[program][pytorch]") {
  const TemporaryFolder folder;
  json trace = small_trace();
  const auto simulated = [&](const std::string& asked) {
    const ProgramRun run = plimsoll("simulate --json -p ideal -t " + file_of(folder, trace) + " -s " + asked);
    REQUIRE(run.exit_code == 0);
    return json::parse(run.out);
  };
  CHECK(simulated("store_all")["cutting_s"].is_null());
  trace["plain_iteration_s"] = 9.0;  // of 12 s in stages
  const json plain = simulated("store_all"), checkpointed = simulated("rotor -m '390 B'");
  CHECK(plain["makespan_s"] == 9.0);
  CHECK(plain["lower_bound_s"] == 9.0);
  CHECK(plain["cutting_s"] == 0.0);
  CHECK(checkpointed["makespan_s"] == 14.0);  // a and b again
  CHECK(checkpointed["lower_bound_s"] == 9.0);
  CHECK(checkpointed["cutting_s"] == 14.0 / 4);
  CHECK(simulated("rotor")["makespan_s"] == 9.0);
  const json whole = trace["stages"];
  for (json& stage : trace["stages"]) stage["backward_weight_s"] = 0.5;
  const json in_two_parts = simulated("zb_h1");
  CHECK(in_two_parts["makespan_s"] == 12.0);
  CHECK(in_two_parts["cutting_s"] == 3.0);
  trace["stages"] = whole;
  const json plan = json::parse(planned(trace, "rotor", "-m '390 B'").out);
  CHECK(plan["predicted"]["plain_s"] == 9.0);
  CHECK(json::parse(planned(trace, "store_all").out)["backward"] == "in_one_call");
  CHECK(plimsoll("bounds --json -p ideal -t " + file_of(folder, trace)).out.find("\"lower_bound_s\": 9.0") !=
        std::string::npos);
  // Slower than its stages is noise; and a schedule of another device's times has none of it.
  trace["plain_iteration_s"] = 15.0;
  CHECK(simulated("store_all")["makespan_s"] == 12.0);
  CHECK(simulated("store_all")["cutting_s"] == 0.0);
}

TEST_CASE("stages that PyTorch calls otherwise than the trace say what they are there", "[program][pytorch]") {
  json trace = small_trace();
  trace["source"]["pytorch"]["stages"][0] = {{"name", "read"}, {"in_trace", "a"}};
  const ProgramRun run = planned(trace, "rotor", "-m '390 B'");
  REQUIRE(run.exit_code == 0);
  CHECK(json::parse(run.out)["model"]["stages"][0]["name"] == "read");
  trace["source"]["pytorch"]["stages"][0] = {{"name", "a"}, {"in_trace", "read"}};
  CHECK(planned(trace, "rotor", "-m '390 B'").err.find("source.pytorch.stages[0] of the trace is not its stage 'a'") !=
        std::string::npos);
}

TEST_CASE("a plan for PyTorch by hand: a and b run without saving, and again from the input", "[program][pytorch]") {
  // x0 10, x1..x3 100, saved 40 each. Forward keeps nothing of a and b; c saves. Least is at the backward of c:
  // x0 10 + x2 100 + saved 40 + gradients of x3 and x2 200 = 350.
  const ProgramRun run = planned(small_trace(), "rotor", "-m '390 B'");
  REQUIRE(run.exit_code == 0);
  const json plan = json::parse(run.out);
  CHECK(plan["format"] == "plimsoll.plan.v1");
  CHECK(plan["backward"] == "by_stage");
  CHECK(plan["memory_budget_bytes"] == 390);
  CHECK(plan["model"]["fingerprint"] == small_trace()["source"]["pytorch"]["fingerprint"]);
  CHECK(plan["predicted"]["plain_s"] == 12.0);
  CHECK(plan["predicted"]["input_bytes"] == 10);
  std::string order;
  for (const json& action : plan["actions"]) {
    const bool forward = action["do"] == "forward";
    order += std::string(forward ? action["saves"] ? "S" : "F" : "B") + std::to_string(action["stage"].get<int>());
    if (forward && action["again"]) order += "'";
    order += ' ';
  }
  CHECK(order == "F0 F1 S2 S3 B3 B2 S0' S1' B1 B0 ");
  const json& again = plan["actions"][6];
  CHECK(again["makes"] == json{"x1"});
  CHECK(again["peak_bytes"] == 10 + 100 + 100 + 40);  // x0, gradient of x2, x1, saved by a
  const json& of_c = plan["actions"][5];
  CHECK(of_c["drops"] == json{"gradient of x3", "saved by c", "x2"});
  CHECK(Reader(plan, small_trace()).complaint() == "");
}

TEST_CASE("every plan for PyTorch runs through a second reader, its live bytes to the byte",
          "[program][pytorch][turn-10]") {
  const json trace = small_trace();
  const std::string plain = planned(trace, "store_all").out;
  CHECK(json::parse(plain)["predicted"]["one_after_the_other_s"] == 12.0);
  int tried = 0;
  for (const std::string strategy :
       {"rotor", "chen_sqrt", "dtr", "revolve", "save_on_cpu", "rotor|offload_greedy", "pofo"}) {
    for (const int budget : {360, 400, 440, 480, 560, 1000}) {
      for (const char* micro_batches : {"1", "2"}) {
        const ProgramRun run =
            planned(trace, strategy, "-m '" + std::to_string(budget) + " B' --micro-batches " + micro_batches,
                    "tests/experiments/one_host.yaml");
        if (run.exit_code == 1) continue;
        const bool is_whole =
            strategy.find("pofo") == std::string::npos && strategy.find("greedy") == std::string::npos;
        const bool cuts = run.err.find("frees values in parts") != std::string::npos;
        CHECK_FALSE((cuts && is_whole));
        if (cuts || run.err.find("where copies do not overlap with computation") != std::string::npos) continue;
        INFO(strategy << " within " << budget << ": " << run.err);
        REQUIRE(run.exit_code == 0);
        const json plan = json::parse(run.out);
        CHECK(Reader(plan, trace).complaint() == "");
        CHECK(plan["predicted"]["one_after_the_other_peak_bytes"] <= budget);
        CHECK(plan["predicted"]["one_after_the_other_peak_bytes"] <= plan["predicted"]["peak_bytes"]);
        ++tried;
      }
    }
  }
  CHECK(tried > 40);
}

/// A trace of ops as the exporter writes it, of two stages 's' and 't'.
struct OpsTrace {
  json trace{{"format", "plimsoll.trace.v1"}, {"kind", "graph"}, {"name", "ops"}};

  OpsTrace() {
    trace["source"]["buffers_changed"] = json::array();
    for (const char* name : {"s", "t"}) {
      trace["source"]["pytorch"]["stages"].push_back({{"name", name}, {"modules", {name}}});
    }
  }
  /// `storage`: of an earlier tensor; its own if below 0.
  void tensor(const char* name, int bytes, const char* kind, int storage = -1) {
    const auto own = static_cast<int>(trace["tensors"].size());
    trace["tensors"].push_back(
        {{"name", name}, {"bytes", bytes}, {"kind", kind}, {"storage", storage < 0 ? own : storage}});
  }
  json& op(const char* kind, const char* phase, int stage, std::vector<int> in, std::vector<int> out) {
    trace["ops"].push_back({{"name", std::string(kind) + phase},
                            {"kind", kind},
                            {"phase", phase},
                            {"stage", stage},
                            {"time_s", 1.0},
                            {"inputs", in},
                            {"outputs", out}});
    return trace["ops"].back();
  }
};

TEST_CASE("a graph's plan says which ops of each stage are saved, and what a policy cannot do", "[program][pytorch]") {
  // a makes 60 B and b 60 B in stage 0, c 10 B in stage 1; the backward of c reads b and c, that of b reads a.
  OpsTrace of;
  of.tensor("x", 10, "input");
  of.tensor("a", 60, "activation");
  of.tensor("b", 60, "activation");
  of.tensor("c", 10, "activation");
  of.tensor("dc", 10, "gradient");
  of.tensor("db", 60, "gradient");
  of.tensor("da", 60, "gradient");
  of.op("mm", "forward", 0, {0}, {1});
  of.op("relu", "forward", 0, {1}, {2});
  of.op("sum", "forward", 1, {2}, {3});
  of.op("loss", "backward", 1, {3}, {4});
  of.op("sum", "backward", 1, {4, 2}, {5});
  of.op("relu", "backward", 0, {5, 1}, {6});
  // All kept, the peak is at the backward of sum: a 60, b 60, dc 10, db 60 = 190. Without a, which is made again from x
  // behind it, the peak is at the backward of relu: a 60, db 60, da 60 = 180.
  const ProgramRun run = planned(of.trace, "greedy_recompute", "-m '185 B'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json plan = json::parse(run.out);
  CHECK(plan["format"] == "plimsoll.policy.v1");
  REQUIRE(plan["stages"].size() == 1);
  CHECK(plan["stages"][0]["name"] == "s");
  CHECK(plan["stages"][0]["modules"] == json{"s"});
  CHECK(plan["stages"][0]["runs_again"] == "some");
  CHECK(plan["stages"][0]["ops"] == json{{{"op", "mm"}, {"save", false}}, {{"op", "relu"}, {"save", true}}});
  CHECK(plan["remains"] == json{{"makespan_s", 7.0}, {"peak_bytes", 180}});
  CHECK(plan["predicted"] == plan["remains"]);
  CHECK(plan["lost"].empty());
}

TEST_CASE("a policy keeps what is overwritten as the last op leaves it, and who reads it before",
          "[program][pytorch]") {
  // y is made, doubled, and overwritten; the plan makes all three again, but stage t reads what is left of y: it stays.
  OpsTrace of;
  of.tensor("x", 10, "input");
  of.tensor("y", 60, "activation");
  of.tensor("twice", 60, "activation");
  of.tensor("left", 60, "activation", 1);
  of.tensor("c", 10, "activation");
  of.tensor("dc", 10, "gradient");
  of.tensor("dy", 60, "gradient");
  of.tensor("dx", 60, "gradient");
  of.op("mm", "forward", 0, {0}, {1});
  of.op("mul", "forward", 0, {1}, {2});
  of.op("relu_", "forward", 0, {1}, {3})["mutates"] = {1};
  of.op("sum", "forward", 1, {3}, {4});
  of.op("loss", "backward", 1, {4}, {5});
  of.op("sum", "backward", 1, {5}, {6})["workspace_bytes"] = 300;
  of.op("relu_", "backward", 0, {6, 3, 2}, {7});
  const auto lost = [&] {
    const ProgramRun run = planned(of.trace, "greedy_recompute", "-m '440 B'");
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(json::parse(run.out)["remains"]["makespan_s"] == 7.0);
    return json::parse(run.out)["lost"];
  };
  CHECK(lost() == json{"1 values that other stages read and that are made again: they stay",
                       "1 ops on storages that other ops overwrite: they stay",
                       "1 ops that read values overwritten later: they stay"});
  of.trace["source"].erase("buffers_changed");
  const ProgramRun old = planned(of.trace, "greedy_recompute", "-m '440 B'");
  CHECK(old.exit_code == 2);
  CHECK(old.err ==
        "--for pytorch: the trace 'ops' does not say which buffers its ops change (source.buffers_changed): it was "
        "measured by an older exporter\n");
}

TEST_CASE("a portfolio's plan for PyTorch leaves updates to its optimizer", "[program][pytorch]") {
  const ProgramRun run = planned(small_trace(), "portfolio", "--optimizer adam");
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(json::parse(run.out)["strategy"] == "portfolio");
}

TEST_CASE("what a plan for PyTorch cannot say is refused with the reason", "[program][pytorch]") {
  const json trace = small_trace();
  const auto answer = [&](const json& of, const std::string& strategy, const std::string& platform = "ideal",
                          const std::string& more = "") {
    const ProgramRun run = planned(of, strategy, more, platform);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  CHECK(answer(trace, "gpipe", "tests/experiments/two_devices.yaml") ==
        "--for pytorch: gpipe uses several devices, and a plan is for one\n");
  CHECK(answer(trace, "store_all", "tests/experiments/two_devices.yaml") ==
        "--for pytorch: platform 'two_devices' has several devices, and a plan is for one\n");
  json old = trace;
  old.erase("source");
  CHECK(answer(old, "store_all") ==
        "--for pytorch: the trace 'small' does not say which modules its stages are (source.pytorch): it was measured "
        "by an "
        "older exporter, or not in PyTorch\n");
  json other = trace;
  other["source"]["pytorch"]["stages"][1]["name"] = "z";
  CHECK(answer(other, "store_all") == "--for pytorch: source.pytorch.stages[1] of the trace is not its stage 'b'\n");
  json far = trace;
  far["source"]["pytorch"]["tensors"][1] = {7};
  CHECK(answer(far, "store_all") ==
        "--for pytorch: source.pytorch.tensors[1] of the trace: expected one of its tensors for each of the names in "
        "source.pytorch.boundaries[1]\n");
  json bare = trace;
  bare["source"]["pytorch"].erase("tensors");
  CHECK(answer(bare, "store_all") ==
        "--for pytorch: source.pytorch.tensors of the trace is missing: it was measured by an older exporter\n");
  const TemporaryFolder folder;
  const ProgramRun graph = plimsoll("plan --for pytorch -p ideal -t rnn:layers=2,steps=2 -s store_all");
  CHECK(graph.exit_code == 2);
  CHECK(graph.err.find("does not say which modules its stages are (source.pytorch)") != std::string::npos);
  const ProgramRun word = plimsoll("plan --for tensorflow -p ideal -t uniform:4 -s store_all");
  CHECK(word.exit_code == 2);
}

}  // namespace plimsoll
