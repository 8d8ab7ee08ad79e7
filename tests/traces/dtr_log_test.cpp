// Logs of DTR's authors: what is read, what each complaint says, and the graph that an import makes.

#include <catch2/catch.hpp>

#include <cstdlib>

#include "tests/bad_input.h"
#include "traces/imports/dtr_graph.h"
#include "traces/imports/dtr_log.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string constant_w = R"({"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"w"}
)";

/// x = f(w), v = view(x), g overwrites x, y = h(v of the old x, x); backward: dw = b(y, w).
const std::string training = R"({"INSTRUCTION":"RELEASE","NAME":"of before"}
{"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
)" + constant_w + R"({"DST":"w2","INSTRUCTION":"COPY","SRC":"w"}
{"ARGS":["w2"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"1000"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"x"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x"}
{"ARGS":["x"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["v"],"TIME":"5"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"v"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"v"}
{"ARGS":["x"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"relu_","TIME":"20"}
{"ARGS":["v","x"],"INSTRUCTION":"CALL","NAME":"h","RESULT":["y"],"TIME":"300"}
{"INSTRUCTION":"MEMORY","MEMORY":"50","NAME":"y"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"y"}
{"INSTRUCTION":"RELEASE","NAME":"v"}
{"INSTRUCTION":"RELEASE","NAME":"x"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["y","w"],"INSTRUCTION":"CALL","NAME":"b","RESULT":["dw","dy"],"TIME":"7000"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"dw"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"dw"}
{"INSTRUCTION":"MEMORY","MEMORY":"50","NAME":"dy"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"dy"}
{"DST":"w2","INSTRUCTION":"COPY_FROM","SRC":"dw"}
{"INSTRUCTION":"RELEASE","NAME":"dw"}
{"INSTRUCTION":"RELEASE","NAME":"dy"}
{"INSTRUCTION":"RELEASE","NAME":"y"}
)";

TEST_CASE("a log is read from its start on", "[dtr]") {
  const OpLog log = parse_dtr_log(training, "net.log");
  CHECK(log.name == "net");
  REQUIRE(log.calls.size() == 6);  // w, f, view, relu_, h, b
  CHECK(log.calls[0].keep == Keep::forever);
  CHECK(log.calls[1].nanoseconds == 1000);
  CHECK(log.calls[3].name == "relu_");
  CHECK(log.calls[4].phase == Phase::forward);
  CHECK(log.calls[5].phase == Phase::backward);
  REQUIRE(log.tensors.size() == 7);  // w, x, v, the new x, y, dw, dy
  CHECK(log.tensors[2].alias_of == TensorId{1});
  CHECK(log.tensors[2].bytes == Bytes{0});
  CHECK(log.tensors[3].name == "x$");
  CHECK(log.tensors[3].bytes == Bytes{100});
  // w2 gives back its reference to w and takes one to dw, whose own name is released.
  REQUIRE(log.kept.size() == 2);
  CHECK(log.kept[0] == TensorId{0});
  CHECK(log.kept[1] == TensorId{5});
}

TEST_CASE("an imported log is a training graph that reads back", "[dtr]") {
  const Graph graph = graph_of_dtr_log(parse_dtr_log(training, "net.log"));
  REQUIRE(graph.ops.size() == 4);
  CHECK(graph.ops[0].name == "f/0");
  CHECK(graph.ops[0].duration == Seconds{1e-6});
  CHECK(graph.ops[2].inputs == std::vector<TensorId>{{1}, {2}});  // through the view: x before and after relu_
  CHECK(graph.ops[3].phase == Phase::backward);
  CHECK(graph.tensors[0].kind == TensorKind::parameter);
  CHECK(graph.tensors[1].kind == TensorKind::activation);
  CHECK(graph.tensors[4].kind == TensorKind::parameter_gradient);
  CHECK(graph.tensors[5].kind == TensorKind::gradient);
  CHECK(graph.source.notes.size() == 6);
  const Trace trace{graph};
  CHECK(parse_trace(trace_text(trace), "net.json") == trace);
}

TEST_CASE("complaints about a log say where", "[dtr]") {
  const std::vector<std::pair<std::string, std::string>> broken{
      {"", "l: no CALL in the log"},
      {"\x1f\x8b", "l: compressed; unpack it first, e.g. with gunzip"},
      {"[]", "l:1:1: expected '{', found '['"},
      {R"({"INSTRUCTION":"CALL")", "l:1:22: expected '}', found the end of the line"},
      {R"({"INSTRUCTION)", "l:1:2: a string without end"},
      {R"({"A":"1","A":"2"})", "l:1:10: A: given twice"},
      {R"({"A":"1"} x)", "l:1:11: expected one object a line, found more"},
      {R"({"A":"1"})", "l:1:1: INSTRUCTION: missing"},
      {R"({"INSTRUCTION":["CALL"]})", "l:1:16: INSTRUCTION: expected a string, found a list"},
      {R"({"INSTRUCTION":"CAL"})", "l:1:16: INSTRUCTION: unknown instruction 'CAL'; did you mean 'CALL'?"},
      {R"({"INSTRUCTION":"CONSTANT","NAME":"w"})", "l:1:16: INSTRUCTION: no MEMORY of 'w' follows"},
      {constant_w + R"({"DST":"w","INSTRUCTION":"COPY","SRC":"w"})", "l:3:8: DST: 'w' exists already"},
      {constant_w + R"({"DST":"a","INSTRUCTION":"COPY","SRC":"x"})", "l:3:39: SRC: no tensor is called 'x'"},
      {constant_w + R"({"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"1.5"})",
       "l:3:69: TIME: expected a whole number up to 2^52, found '1.5'"},
      {constant_w + R"({"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"-1"})",
       "l:3:69: TIME: expected at least 0, found -1"},
      {constant_w + R"({"ARGS":["w"],"INSTRUCTION":"MUTATE","NAME":"f","MUTATE":[1],"TIME":"1"})",
       "l:3:58: MUTATE: 1 is not the index of an argument"},
      {constant_w + R"({"INSTRUCTION":"RELEASE","NAME":"w"}
{"INSTRUCTION":"RELEASE","NAME":"w"})",
       "l:4:33: NAME: 'w' is released more often than it is referred to"},
      {constant_w + R"({"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"x"}
{"ALIAS":"1","INSTRUCTION":"ALIAS","NAME":"x"})",
       "l:5:10: ALIAS: the call has 1 arguments"},
  };
  for (const auto& [text, expected] : broken) {
    INFO(text);
    CHECK(complaint_of([&, &log = text] { parse_dtr_log(log, "l"); }) == expected);
  }
}

}  // namespace
}  // namespace plimsoll
