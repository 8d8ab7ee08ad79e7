#include "traces/trace_file.h"

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

const Chain& chain_of(const Trace& trace) {
  return std::get<Chain>(trace.model);
}

Chain chain_with(const std::string& stage_keys, const std::string& top = "") {
  return chain_of(parse_trace(R"({"format": "plimsoll.trace.v1", "kind": "chain", "name": "n", "input_bytes": 4,)" +
                                  top +
                                  R"("stages": [{"name": "a", "forward_s": 1, "backward_s": 2, "output_bytes": 3,
                                     "saved_bytes": 7)" +
                                  stage_keys + R"(}, {"name": "loss", "forward_s": 0,
                                     "backward_s": 1, "output_bytes": 0, "saved_bytes": 5}]})",
                              "t.json"));
}

}  // namespace

TEST_CASE("what a chain leaves out has the stated default", "[traces]") {
  const Chain chain = chain_with("");
  const Stage& stage = chain.stages.front();
  CHECK(stage.forward_nograd == Seconds{1});
  CHECK(stage.input_gradient == Bytes{4});
  CHECK(chain.stages[1].input_gradient == Bytes{3});
  CHECK(stage.forward_workspace == Bytes{0});
  CHECK(stage.forward_nograd_workspace == Bytes{0});
  CHECK(stage.backward_workspace == Bytes{0});
  CHECK(stage.backward_accumulate_workspace == Bytes{0});
  CHECK(stage.parameters.empty());
  CHECK(!stage.parameter_gradient);
  CHECK(!stage.weight_saved);
  CHECK(!stage.has_backward_weight);
  CHECK(!stage.forward_flops);
  CHECK(stage.keeps_input);
  CHECK(stage.keeps_output);
  CHECK(stage.recomputable);
  CHECK(chain.source == Source{});
}

TEST_CASE("defaults of a chain follow what is given", "[traces]") {
  const Chain chain = chain_with(R"(, "forward_workspace_bytes": 5, "backward_workspace_bytes": 6)");
  CHECK(chain.stages[0].forward_nograd_workspace == Bytes{5});
  CHECK(chain.stages[0].backward_accumulate_workspace == Bytes{6});
}

TEST_CASE("what plain training takes is read beside what its stages take, each alone", "[traces]") {
  CHECK(!chain_with("").plain);
  const Chain chain = chain_with("", R"("plain_iteration_s": 3, )");
  REQUIRE(chain.plain);
  CHECK(chain.plain->iteration == Seconds{3});
  CHECK(chain.plain->stages == Seconds{4});
}

TEST_CASE("what a chain says of the two parts of a backward is read as it is written", "[traces]") {
  const Chain plain = chain_with("");
  CHECK(plain.stages[0].weight_keeps_gradient);
  CHECK(plain.stages[0].weight_keeps_input);
  CHECK(!plain.stages[0].weight_keeps_output);
  CHECK(!plain.stages[0].backward_input_workspace);
  const Chain chain = chain_with(R"(, "backward_weight_s": 0.5, "weight_saved_bytes": 9, "weight_made_bytes": 6,
      "weight_keeps_gradient": false, "weight_keeps_input": false, "weight_keeps_output": true,
      "backward_input_workspace_bytes": 1, "backward_weight_workspace_bytes": 2,
      "backward_weight_accumulate_workspace_bytes": 3)");
  const Stage& stage = chain.stages[0];
  CHECK(stage.weight_saved == Bytes{9});
  CHECK(stage.weight_made == Bytes{6});
  CHECK(!stage.weight_keeps_gradient);
  CHECK(!stage.weight_keeps_input);
  CHECK(stage.weight_keeps_output);
  CHECK(stage.backward_input_workspace == Bytes{1});
  CHECK(stage.backward_weight_workspace == Bytes{2});
  CHECK(stage.backward_weight_accumulate_workspace == Bytes{3});
  CHECK(parse_trace(trace_text(Trace{chain}), "again") == Trace{chain});
}

TEST_CASE("what loading an input takes is read as it is written, of a chain and of a graph", "[traces]") {
  CHECK(chain_with("").stages[0].load == Seconds{0});
  const Chain chain = chain_with(R"(, "load_s": 0.25)");
  CHECK(chain.stages[0].load == Seconds{0.25});
  CHECK(parse_trace(trace_text(Trace{chain}), "again") == Trace{chain});
  const Graph graph = std::get<Graph>(parse_trace(R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "g",
      "tensors": [{"name": "x", "kind": "input", "bytes": 4}, {"name": "y", "kind": "activation", "bytes": 4}],
      "ops": [{"name": "f", "phase": "forward", "stage": 0, "time_s": 2, "load_s": 0.5, "inputs": [0], "outputs": [1]}]})",
                                                  "g")
                                          .model);
  CHECK(graph.ops[0].load == Seconds{0.5});
  CHECK(parse_trace(trace_text(Trace{graph}), "again") == Trace{graph});
}

TEST_CASE("what a stage lists of what it saves is read as it is written", "[traces]") {
  CHECK(!lists_saved(chain_with("")));
  const Chain chain =
      chain_with(R"(, "saved_tensors": [{"id": 0, "bytes": 2, "name": "h", "shape": [1, 2], "dtype": "int8",
      "uses": ["conv3x3.input", "relu.output"]}, {"bytes": 0}])");
  CHECK(lists_saved(chain));
  const std::vector<InnerTensor>& inner = chain.stages[0].inner;
  REQUIRE(inner.size() == 2);
  CHECK(inner[0] ==
        InnerTensor{.name = "h",
                    .bytes = Bytes{2},
                    .shape = {1, 2},
                    .dtype = "int8",
                    .uses = {{.by = SavedBy::conv, .kernel = 3}, {.by = SavedBy::relu, .is_result = true}}});
  CHECK(inner[1] == InnerTensor{.name = "tensor1", .bytes = Bytes{0}});
  CHECK(parse_trace(trace_text(Trace{chain}), "again") == Trace{chain});
}

TEST_CASE("which parameters of a chain are trained is read as it is written", "[traces]") {
  const Chain chain = chain_with(R"(, "parameters": [0, 1], "parameter_gradient_bytes": 8)",
                                 R"("parameters": [{"bytes": 8}, {"bytes": 9, "trained": false}],)");
  CHECK(chain.parameters[0].trained);
  CHECK(!chain.parameters[1].trained);
  CHECK(parse_trace(trace_text(Trace{chain}), "again") == Trace{chain});
}

TEST_CASE("parameter_bytes is an anonymous parameter behind the listed ones", "[traces]") {
  const Chain chain = chain_with(R"(, "parameter_bytes": 9)", R"("parameters": [{"id": 0, "bytes": 8}],)");
  REQUIRE(chain.parameters.size() == 2);
  CHECK(chain.parameters[0] == Parameter{"parameter0", Bytes{8}});
  CHECK(chain.parameters[1] == Parameter{"a.parameters", Bytes{9}});
  CHECK(chain.stages[0].parameters == std::vector<std::uint32_t>{1});
  CHECK(chain_with(R"(, "parameter_bytes": 0)").parameters.empty());
}

TEST_CASE("every element of a list may say its index, and is held to it", "[traces]") {
  // A list of each kind of trace, with the element at index 1 to be told which it is.
  const std::vector<std::pair<std::string, std::string>> files{
      {"chain",
       R"("input_bytes": 1, "stages": [{"name": "a", "forward_s": 0, "backward_s": 0, "output_bytes": 1, "saved_bytes": 1},
        {@"name": "b", "forward_s": 0, "backward_s": 0, "output_bytes": 0, "saved_bytes": 0}])"},
      {"chain", R"("input_bytes": 1, "parameters": [{"bytes": 1}, {@"bytes": 1}],
        "stages": [{"name": "a", "forward_s": 0, "backward_s": 0, "output_bytes": 0, "saved_bytes": 0, "parameters": [0, 1]}])"},
      {"chain", R"("input_bytes": 2, "tensors": [{"bytes": 1}, {@"bytes": 1}], "boundaries": [[0, 1], []],
        "stages": [{"name": "a", "forward_s": 0, "backward_s": 0, "output_bytes": 0, "saved_bytes": 0}])"},
      {"graph",
       R"("tensors": [{"name": "x", "kind": "input", "bytes": 1}, {@"name": "y", "kind": "activation", "bytes": 1}],
        "ops": [{"name": "f", "phase": "forward", "time_s": 1, "inputs": [0], "outputs": [1]}])"},
      {"graph",
       R"("tensors": [{"name": "y", "kind": "activation", "bytes": 1}, {"name": "z", "kind": "activation", "bytes": 1}],
        "ops": [{"name": "f", "phase": "forward", "time_s": 1, "outputs": [0]},
        {@"name": "g", "phase": "forward", "time_s": 1, "inputs": [0], "outputs": [1]}])"}};
  for (const auto& file : files) {
    const std::string &kind = file.first, &lists = file.second;
    INFO(lists);
    const auto complaint_with = [&](const std::string& id) {
      std::string text = R"({"format": "plimsoll.trace.v1", "kind": ")" + kind + R"(", "name": "n", )" + lists + "}";
      text.replace(text.find('@'), 1, id);
      return complaint_of([&] { parse_trace(text, "t.json"); });
    };
    CHECK(complaint_with("") == "no complaint");
    CHECK(complaint_with(R"("id": 1, )") == "no complaint");
    CHECK(complaint_with(R"("id": 0, )").find(".id: expected 1, the place in the list, found 0") != std::string::npos);
    CHECK(complaint_with(R"("id": "1", )").find(".id: expected ") != std::string::npos);
  }
}

TEST_CASE("the order of keys and escapes in them do not matter", "[traces]") {
  const Trace trace = parse_trace(R"({"stages": [{"saved_bytes": 1, "output_bytes": 0, "backward_s": 0, "forward_s": 0,
    "n\u0061me": "\u00e9"}], "input_bytes": 1, "name": "n", "kind": "chain", "format": "plimsoll.trace.v1"})",
                                  "t.json");
  CHECK(chain_of(trace).stages[0].name == "\u00e9");
}

TEST_CASE("the source keeps its free keys as written", "[traces]") {
  const Chain chain = chain_with("", R"("source": {"kind": "measured", "device": "D", "dtype": "bf16",
    "versions": {"torch": "1.13",  "n": [1, 2.50, null]}, "date": "2026-11-21", "threads": 1, "ok": true},)");
  CHECK(chain.source.kind == Source::Kind::measured);
  CHECK(chain.source.device == "D");
  CHECK(chain.source.dtype == "bf16");
  CHECK(chain.source.notes ==
        std::vector<std::pair<std::string, std::string>>{{"versions", R"({"torch":"1.13","n":[1,2.50,null]})"},
                                                         {"date", "2026-11-21"},
                                                         {"threads", "1"},
                                                         {"ok", "true"}});
}

TEST_CASE("storages are numbered as the file does, or in order of appearance", "[traces]") {
  const auto graph = [](const std::string& a, const std::string& b, const std::string& c) {
    const auto tensor = [](const std::string& name, const std::string& kind, const std::string& storage) {
      return R"({"name": ")" + name + R"(", "kind": ")" + kind + R"(", "bytes": 4)" +
             (storage.empty() ? "" : R"(, "storage": )" + storage) + "}";
    };
    return std::get<Graph>(parse_trace(R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "n", "tensors": [)" +
                                           tensor("a", "input", a) + "," + tensor("b", "activation", b) + "," +
                                           tensor("c", "activation", c) + R"(], "ops": [{"name": "f", "phase":
                                           "forward", "time_s": 1, "inputs": [0], "outputs": [1, 2]}]})",
                                       "t.json")
                               .model);
  };
  const auto storages = [](const Graph& g) {
    return std::vector<std::uint32_t>{g.tensors[0].storage.index, g.tensors[1].storage.index,
                                      g.tensors[2].storage.index};
  };
  CHECK(storages(graph("", "", "")) == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(storages(graph("1", "0", "1")) == std::vector<std::uint32_t>{1, 0, 1});
  CHECK(storages(graph("7", "", "7")) == std::vector<std::uint32_t>{0, 1, 0});
  CHECK(graph("7", "", "7").storages == 2);
}

TEST_CASE("every shipped trace reads, and reads back the same after writing", "[traces]") {
  const std::vector<std::string> names = shipped_traces();
  CHECK(names.size() >= 1);
  for (const std::string& name : names) {
    INFO(name);
    const Trace trace = load_trace(name);
    CHECK(parse_trace(trace_text(trace), "again") == trace);
    CHECK(trace_text(parse_trace(trace_text(trace), "again")) == trace_text(trace));
  }
}

TEST_CASE("a graph with everything in it reads back the same after writing", "[traces]") {
  const auto seconds = [](double s) { return Seconds{s}; };
  Graph graph;
  graph.name = "all";
  graph.source.notes = {{"formula", "a \"quoted\" \\ text\n"}, {"number", "1.50"}, {"list", "[1,2]"}};
  graph.tensors = {{"x", TensorKind::input, Bytes{4}, {0}, {2, 2}, "int8"},
                   {"w", TensorKind::parameter, Bytes{8}, {1}, {}, "fp32"},
                   {"y", TensorKind::activation, Bytes{4}, {2}, {}, ""},
                   {"y'", TensorKind::activation, Bytes{4}, {2}, {}, ""},
                   {"dw", TensorKind::parameter_gradient, Bytes{8}, {3}, {}, ""},
                   {"m", TensorKind::optimizer_state, Bytes{8}, {4}, {}, ""}};
  graph.storages = 5;
  Op f{.name = "f", .kind = "mm", .duration = seconds(0.1), .nograd_duration = seconds(1.0 / 3)};
  f.kernels = 2.5;
  f.launches = 3;
  f.traffic = 0.5;
  f.flops = Flops{1e12};
  f.bytes_moved = Bytes{12};
  f.workspace = Bytes{1};
  f.nograd_workspace = Bytes{2};
  f.accumulate_workspace = Bytes{3};
  f.inputs = {{0}, {1}};
  f.outputs = {{2}};
  f.saved = {{2}};
  f.recomputable = false;
  f.alternatives = {{.name = "lean", .duration = seconds(0.25), .workspace = Bytes{0}},
                    {.name = "fast", .flops = Flops{5}, .bytes_moved = Bytes{6}, .workspace = Bytes{7}}};
  f.attributes = {{"axis", "-1"}, {"mode", "nearest"}};
  Op relu{.name = "relu", .stage = 1, .duration = seconds(0), .inputs = {{2}}, .outputs = {{3}}, .mutates = {{2}}};
  Op b{.name = "b", .phase = Phase::backward_weight, .duration = seconds(1e-9), .inputs = {{3}, {0}}, .outputs = {{4}}};
  Op u{.name = "u", .phase = Phase::update, .bytes_moved = Bytes{24}, .inputs = {{4}, {1}, {5}}, .mutates = {{1}, {5}}};
  graph.ops = {f, relu, b, u};
  graph.colocate = {{{0}, {2}}};

  const Trace trace{graph};
  CHECK(parse_trace(trace_text(trace), "again") == trace);

  const std::filesystem::path file = std::filesystem::temp_directory_path() / "plimsoll_trace_file_test.json";
  write_trace(file, trace);
  CHECK(read_trace(file) == trace);
  std::filesystem::remove(file);
  CHECK(output_complaint_of([&] { write_trace("/nowhere/t.json", trace); }) ==
        "/nowhere/t.json: cannot write: No such file or directory");
}

TEST_CASE("allocations of a chain's passes are read as they are written", "[traces]") {
  const std::string text = read_text_file("tests/traces/allocations.json");
  const Trace trace = parse_trace(text, "allocations.json");
  REQUIRE(trace.allocations);
  const StageAllocations& first = trace.allocations->stages.at(0);
  CHECK(first.forward == PassAllocations{{40, 8, 16, -2}, {3}, {{1, 1}}, {}});
  CHECK(first.forward_nograd == PassAllocations{{40, 8, -2}, {}, {{1, 1}}, {}});
  CHECK(first.backward == PassAllocations{{24, 8, -1, -3}, {}, {}, {{2, 0}}});
  CHECK(first.backward_accumulate.order == AllocationOrder{24, -1, -2});
  CHECK(trace.allocations->stages.at(1).backward == PassAllocations{{40, -1}, {}, {{2, 1}}, {}});
  CHECK(trace.allocations->plain->fresh == std::vector<AllocationOrder>{{40, 16}, {4}, {40, -3, -1}, {24, -4, -2}});
  CHECK(trace.allocations->plain->accumulate.at(3) == AllocationOrder{24, -4, -5, -2});
  const std::string written = trace_text(trace);
  CHECK(parse_trace(written, "again") == trace);
  CHECK(written.find(R"("allocations": )") != std::string::npos);
}

TEST_CASE("a gradient in an allocation may be smaller than its tensor where the stage says so", "[traces]") {
  std::string text = read_text_file("tests/traces/allocations.json");
  const auto replace = [&](const std::string& old, const std::string& by) {
    for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + by.size()))
      text.replace(at, old.size(), by);
  };
  replace(R"("order": [40, -1], "tensors": [[2, 1]])", R"("order": [4, -1], "tensors": [[2, 1]])");
  CHECK(complaint_of([&] { parse_trace(text, "t.json"); }).find("expected the 40 B of tensor 1, found 4") !=
        std::string::npos);
  replace(R"("saved_bytes": 4})", R"("saved_bytes": 4, "input_gradient_bytes": 4})");
  CHECK(parse_trace(text, "t.json").allocations.has_value());
}
