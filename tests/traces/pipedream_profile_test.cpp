// Profiles of PipeDream: what the import makes of them, and what each complaint says.

#include <catch2/catch.hpp>

#include "tests/bad_input.h"
#include "traces/imports/pipedream_profile.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const std::string profile =
    "node1 -- Input0 -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=50.0, "
    "parameter_size=0.000\n"
    "node2 -- Conv2d(3, 4) -- forward_compute_time=1.500, backward_compute_time=2.000, activation_size=100.000, "
    "parameter_size=8.000\n"
    "node3 -- LSTM(4 -- 5) -- forward_compute_time=2.000, backward_compute_time=4.000, activation_size=[60.0; 20.0], "
    "parameter_size=16.000\n"
    "node4 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=20.0, "
    "parameter_size=0.000\n"
    "node5 -- __getitem__(0) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=60.0, "
    "parameter_size=0.000\n"
    "node6 -- Linear -- forward_compute_time=1.000, backward_compute_time=1.000, activation_size=4.0, "
    "parameter_size=32.000\n"
    "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode3 -- node5\n\tnode5 -- node6\n";

TEST_CASE("a profile's nodes become stages, without inputs and results that nobody reads", "[pipedream_profile]") {
  const Chain chain = parse_pipedream_profile(profile, "folder/net.txt");
  CHECK(chain.name == "net");
  REQUIRE(chain.stages.size() == 4);
  CHECK(chain.stages[0].name == "node2 Conv2d(3, 4)");
  const Stage &conv = chain.stages[0], &lstm = chain.stages[1], &item = chain.stages[2], &linear = chain.stages[3];
  CHECK(lstm.name == "node3 LSTM(4 -- 5)");
  CHECK(lstm.forward.value == Approx(2e-3));
  CHECK(lstm.backward.value == Approx(4e-3));
  REQUIRE(lstm.parameters.size() == 1);
  CHECK(chain.parameters[lstm.parameters[0]] == Parameter{.name = lstm.name, .bytes = Bytes{16}});
  CHECK(chain.parameters.size() == 3);  // none of the item
  // What an edge carries is a tensor on the boundaries up to its last reader.
  CHECK(chain.boundaries == std::vector<std::vector<std::uint32_t>>{{}, {0}, {1}, {2}, {}});
  CHECK(chain.tensors[1].bytes == Bytes{80});
  CHECK(conv.output == Bytes{100});
  CHECK(lstm.saved == Bytes{80});
  CHECK(item.input_gradient == Bytes{80});
  CHECK(lstm.tensors == StageTensors{{0, 1}, {0}});
  // Nobody reads the last one's, which it keeps all the same.
  CHECK(linear.output == Bytes{0});
  CHECK(linear.saved == Bytes{4});
  CHECK(parse_trace(trace_text(Trace{chain}), "written.json") == Trace{chain});
}

TEST_CASE("what a node of a profile makes passes by all stages up to its last reader", "[pipedream_profile]") {
  const Chain chain = parse_pipedream_profile(profile + "\tnode2 -- node6\n", "net.txt");
  CHECK(chain.boundaries == std::vector<std::vector<std::uint32_t>>{{}, {0}, {0, 1}, {0, 2}, {}});
  CHECK(chain.stages[2].output == Bytes{100 + 60});
  CHECK(chain.stages[2].saved == Bytes{100 + 60});
  CHECK(chain.stages[2].tensors == StageTensors{{1, 2}, {1}});
  CHECK(chain.stages[3].input_gradient == Bytes{100 + 60});
  CHECK(parse_trace(trace_text(Trace{chain}), "written.json") == Trace{chain});
}

std::string profile_complaint(const std::string& what, const std::string& instead) {
  std::string text = profile;
  text.replace(text.find(what), what.size(), instead);
  return complaint_of([&] { parse_pipedream_profile(text, "net.txt"); });
}

TEST_CASE("malformed profiles are refused where they are wrong", "[pipedream_profile]") {
  CHECK(profile_complaint("forward_compute_time=1.500", "forward_compute_time=-1") ==
        "net.txt:2:47: forward_compute_time: expected a number from 0 to 1000000000000, found '-1'");
  CHECK(profile_complaint("=1.500", "=nan") ==
        "net.txt:2:47: forward_compute_time: expected a number from 0 to 1000000000000, found 'nan'");
  CHECK(profile_complaint("backward_compute_time=2.000, ", "") ==
        "net.txt:2:54: backward_compute_time: missing, expected the keys in their order");
  CHECK(profile_complaint("parameter_size=8.000", "parameter_size=8.000, x=1") ==
        "net.txt:2:130: expected the end of the line");
  CHECK(profile_complaint("[60.0; 20.0]", "[60.0; 20.0") == "net.txt:3:99: activation_size: a list without its end");
  CHECK(profile_complaint("[60.0; 20.0]", "[60.0; twenty]") ==
        "net.txt:3:106: activation_size: expected a number from 0 to 4503599627370496, found 'twenty'");
  CHECK(profile_complaint("[60.0; 20.0]", "[4503599627370496; 1]") ==
        "net.txt:3:118: activation_size: sizes of 4503599627370497 together");
  CHECK(profile_complaint("node6 -- Linear", "node5 -- Linear") == "net.txt:6:1: node5: a second node of this name");
  CHECK(profile_complaint("node6 -- Linear -- ", "node6 -- ") ==
        "net.txt:6:1: expected a node, 'name -- description -- forward_compute_time=..., ...'");
  CHECK(profile_complaint("\tnode5 -- node6", "\tnode5 -- node7") == "net.txt:11:11: no node 'node7'");
  CHECK(profile_complaint("\tnode5 -- node6", "\tnode5, node6") == "net.txt:11:2: expected an edge, 'node1 -- node2'");
  CHECK(profile_complaint("\tnode5 -- node6", "\tnode2 -- node3") ==
        "net.txt:11:2: a second edge from 'node2' to 'node3'");
  CHECK(profile_complaint("\tnode5 -- node6", "\tnode5 -- node2") == "net.txt: edges form a circle");
  CHECK(complaint_of([] { parse_pipedream_profile("\n", "net.txt"); }) == "net.txt: no node that computes");
}

}  // namespace
}  // namespace plimsoll
