// What `import fx` makes of graphs that PyTorch 2.6 printed (tests/traces/foreign) and of lists of measured operators.

#include "traces/imports/pytorch/fx_graph.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "traces/imports/pytorch/fx_extent.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string foreign = "tests/traces/foreign/";

Graph printed(const std::string& text, const std::string& file, const std::vector<std::string>& sizes = {}) {
  ImportNumbers given(sizes);
  const Graph graph = parse_fx_graph(text, file, given);
  given.refuse_unused();
  return graph;
}

double flops_in(const Graph& graph, Phase phase) {
  double sum = 0;
  for (const Op& op : graph.ops) sum += op.phase == phase ? op.flops->count : 0;
  return sum;
}

/// Bytes of the storages that the forward makes and the backward reads.
std::int64_t saved_bytes(const Graph& graph) {
  std::vector<bool> made(graph.storages, false), counted(graph.storages, false), given(graph.storages, false);
  for (const Tensor& tensor : graph.tensors) {
    if (is_given(tensor.kind)) given[tensor.storage.index] = true;
  }
  std::int64_t sum = 0;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) {
      for (const TensorId t : op.outputs) made[graph[t].storage.index] = !given[graph[t].storage.index];
      continue;
    }
    for (const TensorId t : op.inputs) {
      const std::uint32_t storage = graph[t].storage.index;
      if (made[storage] && !counted[storage]) sum += graph[t].bytes.count;
      counted[storage] = true;
    }
  }
  return sum;
}

// Linear(16, 32), ReLU, LayerNorm(32), Linear(32, 10), cross entropy, 8 samples.
// Forward 2 (8 16 32 + 8 32 10) = 13,312 flops; backward both gradients of the second layer, weights alone of the
// first: 2 (2 8 32 10 + 8 16 32) = 18,432. Saved: ReLU's result 1,024 B, the norm's 1,024, mean and deviation 32 each,
// log softmax 320, the weight of the loss 4: 2,436, which the exporter records of the same model in PyTorch 2.6, too.
TEST_CASE("a printed forward with its backward becomes one iteration, as the exporter records it", "[fx]") {
  const Graph graph = printed(read_text_file(foreign + "mlp_aot_graphs.txt"), "mlp.txt");
  CHECK(flops_in(graph, Phase::forward) == 13'312);
  CHECK(flops_in(graph, Phase::backward) == 18'432);
  CHECK(saved_bytes(graph) == 2'436);
  CHECK(bytes_of_kind(graph, TensorKind::parameter) == Bytes{4 * (16 * 32 + 32 + 32 + 32 + 32 * 10 + 10)});
  CHECK(bytes_of_kind(graph, TensorKind::parameter_gradient) == bytes_of_kind(graph, TensorKind::parameter));
  CHECK(bytes_of_kind(graph, TensorKind::input) == Bytes{4 * 8 * 16 + 8 * 8});
  CHECK(graph.source.dtype == "fp32");
  CHECK(parse_trace(trace_text(Trace{graph}), "again") == Trace{graph});
}

TEST_CASE("a joint graph is the iteration that its halves are", "[fx]") {
  const Graph halves = printed(read_text_file(foreign + "mlp_aot_graphs.txt"), "mlp.txt");
  const Graph joint = printed(read_text_file(foreign + "mlp_joint_graph.txt"), "mlp.txt");
  for (const Phase phase : {Phase::forward, Phase::backward}) CHECK(flops_in(joint, phase) == flops_in(halves, phase));
  CHECK(saved_bytes(joint) == saved_bytes(halves));
  for (const TensorKind kind : {TensorKind::input, TensorKind::parameter, TensorKind::parameter_gradient}) {
    CHECK(bytes_of_kind(joint, kind) == bytes_of_kind(halves, kind));
  }
}

const std::string forward_text =
    "def forward(self, primals_1: \"f32[4, 2]\", primals_2: \"f32[3, 4]\"):\n"
    "    exp: \"f32[4, 2]\" = torch.ops.aten.exp.default(primals_1);  primals_1 = None\n"
    "    mm: \"f32[3, 2]\" = torch.ops.aten.mm.default(primals_2, exp)\n"
    "    return (mm, primals_2, exp)\n";
const std::string backward_text =
    "def forward(self, primals_2: \"f32[3, 4]\", exp: \"f32[4, 2]\", tangents_1: \"f32[3, 2]\"):\n"
    "    t: \"f32[4, 3]\" = torch.ops.aten.t.default(primals_2);  primals_2 = None\n"
    "    mm_1: \"f32[4, 2]\" = torch.ops.aten.mm.default(t, tangents_1);  t = tangents_1 = None\n"
    "    mul: \"f32[4, 2]\" = torch.ops.aten.mul.Tensor(mm_1, exp);  mm_1 = exp = None\n"
    "    return (mul, None)\n";

std::string complaint(const std::string& text) {
  return complaint_of([&] { printed(text, "g.txt"); });
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// Printed of the same model with a dynamic batch: with 8 samples it is the one that was printed with 8.
TEST_CASE("axes with a name take the size that is given", "[fx]") {
  const Graph fixed = printed(read_text_file(foreign + "mlp_aot_graphs.txt"), "mlp.txt");
  const std::string text = read_text_file(foreign + "mlp_dynamic_graphs.txt");
  const Graph of_eight = printed(text, "dynamic.txt", {"s0=8"});
  for (const Phase phase : {Phase::forward, Phase::backward})
    CHECK(flops_in(of_eight, phase) == flops_in(fixed, phase));
  CHECK(saved_bytes(of_eight) == saved_bytes(fixed));
  for (const TensorKind kind : {TensorKind::input, TensorKind::parameter, TensorKind::parameter_gradient}) {
    CHECK(bytes_of_kind(of_eight, kind) == bytes_of_kind(fixed, kind));
  }
  CHECK(flops_in(printed(text, "dynamic.txt", {"s0=24"}), Phase::forward) == 3 * 13'312);
  CHECK(complaint_of([&] { printed(text, "dynamic.txt"); }).find("give it by --set s0=N") != std::string::npos);
  CHECK(complaint_of([&] {
          printed(text, "dynamic.txt", {"s0=8", "s1=2"});
        }) == "--set: s1: the file has no such number, expected s0; did you mean 's0'?");
}

TEST_CASE("extents that are computed from axes are those of Python", "[fx]") {
  const auto size_of = [](std::string_view axis) {
    return axis == "s0" ? std::optional<std::int64_t>(7) : axis == "s1" ? std::optional<std::int64_t>(3) : std::nullopt;
  };
  const std::pair<const char*, std::int64_t> known[] = {{"12", 12},
                                                        {"s0", 7},
                                                        {"2*s0 + 1", 15},
                                                        {"s0*s1 - 1", 20},
                                                        {"((s0 - 1)//2) + 1", 4},
                                                        {"s0**2", 49},
                                                        {"-s0**2 + 72", 23},
                                                        {"2**s1**2", 512},
                                                        {"s0**--2", 49},
                                                        {"s0 + 2*-s1", 1},
                                                        {"-(-s0//s1)", 3},
                                                        {"Max(1, s0)", 7},
                                                        {"Min(s0, s1)", 3},
                                                        {"FloorDiv(s0, 2)", 3},
                                                        {"Mod(s0, s1)", 1},
                                                        {"Mod(-s0, s1)+5", 7},
                                                        {"CeilDiv(s0, s1)", 3},
                                                        {"2*(s0 + s1)", 20},
                                                        {"Sym(s1)", 3}};
  for (const auto& [text, value] : known) {
    INFO(text);
    CHECK(fx_extent(text, size_of).fault.empty());
    CHECK(fx_extent(text, size_of).value == value);
  }
  for (const char* text : {"u0", "s0 +", "(s0", "s0)", "s0//0", "1 - s0", "s0**99", "1099511627776*s0", "Foo(s0)", "",
                           "1.5", "99999999999999999999", "s0 s1"}) {
    INFO(text);
    CHECK(!fx_extent(text, size_of).fault.empty());
  }
  CHECK(!fx_extent(std::string(10'000, '('), size_of).fault.empty());
  std::string tower = "1";
  for (int k = 0; k < 10'000; ++k) tower += "**1";
  CHECK(!fx_extent(tower, size_of).fault.empty());
}

TEST_CASE("what a partitioner computes again in the backward is the forward's op", "[fx]") {
  const Graph plain = printed(forward_text + backward_text, "g.txt");
  const std::string again =
      changed(backward_text, "exp: \"f32[4, 2]\", tangents_1", "primals_1: \"f32[4, 2]\", tangents_1");
  const std::string exp = "    exp: \"f32[4, 2]\" = torch.ops.aten.exp.default(primals_1)\n    t: ";
  const Graph recomputed = printed(forward_text + changed(again, "    t: ", exp), "g.txt");
  CHECK(recomputed.ops == plain.ops);
  CHECK(recomputed.source.notes.back().first == "joined");
}

TEST_CASE("graphs of Dynamo's are passed over, and refused where there are no others", "[fx]") {
  const std::string dynamo =
      "def forward(self, s0: \"Sym(s0)\", L_x_: \"f32[s0, 2]\"):\n    l_x_ = L_x_\n"
      "    y: \"f32[s0, 2]\" = torch._C._nn.gelu(l_x_)\n    return (y,)\n";
  CHECK(printed(dynamo + forward_text + backward_text, "g.txt") == printed(forward_text + backward_text, "g.txt"));
  CHECK(complaint(dynamo) ==
        "g.txt:1:1: a graph as Dynamo captured it, without a backward, expected what TORCH_LOGS=aot_graphs prints");
}

TEST_CASE("an op moves what it reads and writes, and a view nothing", "[fx]") {
  const Graph graph = printed(forward_text + backward_text, "g.txt");
  REQUIRE(graph.ops.size() == 6);
  CHECK(graph.ops[0].bytes_moved == Bytes{2 * 32});        // exp: 4 x 2 floats in, as many out
  CHECK(graph.ops[1].bytes_moved == Bytes{48 + 32 + 24});  // mm
  CHECK(graph.ops[1].flops->count == 2 * 3 * 4 * 2);
  CHECK(graph.ops[3].bytes_moved == Bytes{0});  // t
  CHECK(graph[graph.ops[3].outputs[0]].storage == graph[graph.ops[3].inputs[0]].storage);
  CHECK(graph[graph.ops[1].inputs[0]].kind == TensorKind::parameter);  // frozen: no gradient
}

TEST_CASE("graphs that say too little are refused with their place", "[fx]") {
  const std::string both = forward_text + backward_text;
  CHECK(complaint("no graph") ==
        "g.txt:1:1: no graph, expected 'def forward(...)' and lines 'NAME: \"f32[8]\" = torch.ops...'");
  CHECK(complaint(forward_text) ==
        "g.txt:1:1: a forward graph without its backward graph: dump a model in training mode, and put both into one "
        "file");
  CHECK(
      complaint(changed(both, "f32[4, 2]", "f32[s0, 2]")) ==
      "g.txt:1:35: primals_1: expected an extent, found 's0': 's0' is an axis without a size, give it by --set s0=N or "
      "compile with dynamic=False");
  CHECK(complaint(changed(both, "torch.ops.aten.exp.default(primals_1)", "primals_1 * primals_1")) ==
        "g.txt:2:24: exp: expected an op of the dispatcher (torch.ops...), as TORCH_LOGS=aot_graphs prints, found "
        "'primals_1 * primals_1'");
  CHECK(complaint(changed(both, "exp: \"f32[4, 2]\" = ", "exp = ")) ==
        "g.txt:2:5: exp: has no shape, expected 'NAME: \"f32[8, 16]\" = ...' as print_readable() writes");
  CHECK(complaint(changed(both, "aten.exp.default", "mine.exp.default")) ==
        "g.txt:2:5: exp: no rule for what 'mine.exp.default' computes; known are the ops of aten, prims, "
        "_c10d_functional, inductor or rngprims");
  CHECK(complaint(changed(both, "aten.exp.default", "aten.lstm.default")) ==
        "g.txt:2:5: exp: no rule for the flops of 'aten.lstm.default'");
  CHECK(complaint(changed(both, "f32[3, 4]", "f9[3, 4]")) == "g.txt:1:54: primals_2: unknown type of numbers 'f9'");
  CHECK(complaint(changed(both, "default(primals_2, exp)", "default(primals_3, exp)")) ==
        "g.txt:3:49: no such value: 'primals_3'");
  CHECK(complaint(changed(both, "torch.ops.aten.exp.default", "torch.exp")) ==
        "g.txt:2:24: exp: expected an op of the dispatcher (torch.ops...), as TORCH_LOGS=aot_graphs prints, found "
        "'torch.exp'");
  CHECK(complaint(both.substr(0, both.rfind("    return"))) ==
        "g.txt:9:1: the graph ends without 'return', after 6 lines");
}

std::string list_text() {
  return read_text_file(foreign + "two_layers.csv");
}

Graph listed(const std::string& text, const std::vector<std::string>& numbers = {}) {
  ImportNumbers given(numbers);
  const Graph graph = parse_fx_list(text, "list.csv", given);
  given.refuse_unused();
  return graph;
}

double microseconds(const Graph& graph) {
  return std::accumulate(graph.ops.begin(), graph.ops.end(), 0.0,
                         [](double sum, const Op& op) { return sum + op.duration->value * 1e6; });
}

// Events take 7 us. Table 10 + 20 + 2, head 20 + 40 + 10, a layer 30 + 50 + 10 and 5 + 6.
TEST_CASE("a list of measured operators takes the sum of their times, a layer as often as asked", "[fx]") {
  CHECK(microseconds(listed(list_text())) == Approx(32 + 70 + 101));
  CHECK(microseconds(listed(list_text(), {"layers=5"})) == Approx(32 + 70 + 5 * 101));
  const Graph graph = listed(list_text(), {"layers=3"});
  CHECK(bytes_of_kind(graph, TensorKind::parameter) == Bytes{4 * (3 * (16 + 4) + 40 + 10)});
  CHECK(bytes_of_kind(graph, TensorKind::parameter_gradient) == bytes_of_kind(graph, TensorKind::parameter));
  CHECK(parse_trace(trace_text(Trace{graph}), "again").model == Trace{graph}.model);
  CHECK(complaint_of([&] { listed(list_text(), {"layerz=3"}); }) ==
        "--set: layerz: the file has no such number, expected layers; did you mean 'layers'?");
}

TEST_CASE("a wrong list of operators is refused line by line", "[fx]") {
  CHECK(complaint_of([&] { listed(changed(list_text(), "37.0", "fast")); }) ==
        "list.csv:5:1: forward_us: expected microseconds from 0 to 1000000000, found 'fast'");
  CHECK(complaint_of([&] { listed(changed(list_text(), "Linear,table", "Linear,tabel")); }) ==
        "list.csv:5:1: inputs: no such op before this one: 'tabel'");
}

}  // namespace
}  // namespace plimsoll
