// plimsoll export: what each format says of a schedule, read again by readers that share nothing with its writers.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/export/chakra_files.h"
#include "experiments/export/dot_file.h"
#include "experiments/export/perfetto.h"
#include "experiments/export/steps_csv.h"
#include "experiments/study/choice/several_devices.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/core/collective_op.h"
#include "tests/experiments/run_program.h"
#include "traces/imports/dot_graph.h"

namespace plimsoll {
namespace {

AnsweredQuestion planned(Question question) {
  BudgetedProblem made = budgeted_problem_of(question);
  Answer answered = std::move(answer(question, made.problem, std::span(&made.budget, 1)).front());
  REQUIRE(answered.schedule);
  return {std::move(question), std::move(made.problem), std::move(answered)};
}

Question question_about(const std::string& trace, const std::string& platform, const std::string& strategy) {
  return {.trace = trace, .platform = platform, .strategy = parse_pipeline(strategy, "test"), .engine = Engine::event};
}

/// Cells of a row; quoted ones hold commas.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      all.emplace_back();
    else
      all.back() += c;
  }
  return all;
}

TEST_CASE("the table of steps has every step with its dates, bytes and waits", "[export]") {
  Question question = question_about("gpt12_w768_t256_b4_cpu", "h200", "offload_greedy");
  question.memory = Share{70};
  const AnsweredQuestion of = planned(question);
  const Schedule& schedule = *of.answer.schedule;
  std::istringstream csv(steps_csv(of.problem, schedule, *of.answer.timeline, "made by a test"));
  std::string line;
  REQUIRE(std::getline(csv, line));
  CHECK(line == "# made by a test");
  REQUIRE(std::getline(csv, line));
  const std::vector<std::string> names = cells(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(csv, line)) {
    const std::vector<std::string> values = cells(line);
    REQUIRE(values.size() == names.size());
    for (std::size_t c = 0; c < names.size(); ++c)
      rows.resize(rows.size() + (c == 0 ? 1 : 0)), rows.back()[names[c]] = values[c];
  }
  REQUIRE(rows.size() == schedule.steps.size());
  double last = 0;
  std::int64_t moved = 0, allocated = 0, freed = 0, dying = 0, made = 0, resident = 0;
  for (std::size_t s = 0; s < rows.size(); ++s) {
    CHECK(rows[s]["step"] == std::to_string(s));
    const double start = std::stod(rows[s]["start_s"]);
    last = std::max(last, std::stod(rows[s]["finish_s"]));
    moved += std::stoll(rows[s]["moved_bytes"]);
    allocated += std::stoll(rows[s]["allocated_bytes"]);
    freed += std::stoll(rows[s]["freed_bytes"]);
    for (const BufferId b : schedule.buffers_in(schedule.steps[s].frees)) dying += schedule[b].bytes.count;
    std::istringstream waits(rows[s]["waits"]);
    for (std::size_t wait = 0; waits >> wait;) {
      CHECK(wait < s);
      CHECK(std::stod(rows[wait]["finish_s"]) <= start);
    }
    CHECK((rows[s]["from"].empty() == (rows[s]["moved_bytes"] == "0")));
    if (rows[s]["kind"] == "offload" && !rows[s]["from"].empty()) CHECK(rows[s]["from"] + rows[s]["to"] == "gpuhost");
  }
  for (const Buffer& buffer : schedule.buffers) made += buffer.bytes.count;
  for (const BufferId b : schedule.resident) resident += schedule[b].bytes.count;
  CHECK(last == of.answer.metrics->makespan.value);
  CHECK(moved == of.answer.metrics->moved.count);
  CHECK(moved > 0);
  CHECK(allocated == made - resident);
  CHECK(freed <= made);
  CHECK(freed == dying);
}

/// A message of protocol buffers as a reader of the schema sees it: numbers and texts by field.
struct ProtoFields {
  std::map<int, std::vector<std::uint64_t>> numbers;
  std::map<int, std::vector<std::string>> texts;
};

std::uint64_t read_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE(!text.empty());
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 127U} << static_cast<unsigned>(shift);
    if (byte < 128) return value;
  }
}

std::string_view read_piece(std::string_view& text) {
  const std::size_t length = read_varint(text);
  REQUIRE(length <= text.size());
  const std::string_view piece = text.substr(0, length);
  text.remove_prefix(length);
  return piece;
}

ProtoFields read_message(std::string_view text) {
  ProtoFields read;
  while (!text.empty()) {
    const std::uint64_t tag = read_varint(text);
    if ((tag & 7U) == 0) {
      read.numbers[static_cast<int>(tag >> 3U)].push_back(read_varint(text));
    } else {
      REQUIRE((tag & 7U) == 2);
      read.texts[static_cast<int>(tag >> 3U)].emplace_back(read_piece(text));
    }
  }
  return read;
}

struct ReadNode {
  std::uint64_t id = 0, type = 0;
  std::string name;
  std::vector<std::uint64_t> needs;
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string, std::string> words;
};

std::vector<ReadNode> read_nodes(std::string_view text) {
  const ProtoFields metadata = read_message(read_piece(text));
  CHECK(metadata.texts.at(1) == std::vector<std::string>{"0.0.4"});
  std::vector<ReadNode> nodes;
  while (!text.empty()) {
    const ProtoFields read = read_message(read_piece(text));
    ReadNode node{.id = read.numbers.at(1).at(0), .type = read.numbers.at(3).at(0), .name = read.texts.at(2).at(0)};
    for (const int field : {4, 5}) {
      if (!read.texts.contains(field)) continue;
      std::string_view packed = read.texts.at(field).at(0);
      while (!packed.empty()) node.needs.push_back(read_varint(packed));
    }
    for (const std::string& each : read.texts.at(10)) {
      const ProtoFields attribute = read_message(each);
      const std::string& name = attribute.texts.at(1).at(0);
      for (const auto& [field, values] : attribute.numbers) node.numbers[name] = values.at(0);
      for (const auto& [field, values] : attribute.texts) {
        if (field != 1) node.words[name] = values.at(0);
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

constexpr std::uint64_t comm_send = 5, comm_receive = 6, comm_collective = 7;

/// Replays the files as ASTRA-sim would with given times: a node begins when all that it needs has ended, a receive
/// ends with its send. Each then ends when the simulation has it end.
void check_replay(const std::map<std::uint64_t, std::vector<ReadNode>>& ranks) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> ends;                  // by rank and node: ns
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::uint64_t> sent;  // by sender, receiver, tag
  std::map<std::uint64_t, std::size_t> at;
  std::size_t left = 0, steps = 0;
  for (const auto& [rank, nodes] : ranks) left += nodes.size();
  for (bool moves = true; moves && left > 0;) {
    moves = false;
    for (const auto& [rank, nodes] : ranks) {
      for (std::size_t& n = at[rank]; n < nodes.size(); ++n, --left, moves = true) {
        const ReadNode& node = nodes[n];
        std::uint64_t start = 0;
        for (const std::uint64_t need : node.needs) {
          REQUIRE(ends.contains({rank, need}));
          start = std::max(start, ends.at({rank, need}));
        }
        std::uint64_t end = start + node.numbers.at("duration_ns");
        if (node.type == comm_send) {
          CHECK(node.numbers.at("comm_src") == rank);
          sent[{rank, node.numbers.at("comm_dst"), node.numbers.at("comm_tag")}] = end;
        }
        if (node.type == comm_receive) {
          CHECK(node.numbers.at("comm_dst") == rank);
          const auto message = sent.find({node.numbers.at("comm_src"), rank, node.numbers.at("comm_tag")});
          if (message == sent.end()) break;
          end = message->second;
        }
        ++steps;
        CHECK(ends.emplace(std::pair(rank, node.id), end).second);
        const auto planned = static_cast<double>(node.numbers.at("start_ns") + node.numbers.at("duration_ns"));
        CHECK(static_cast<double>(end) == Approx(planned).margin(2.0 * static_cast<double>(steps)));
      }
    }
  }
  CHECK(left == 0);
}

TEST_CASE("Chakra's traces replay to the dates of the simulation, rank by rank", "[export]") {
  struct Case {
    const char *trace, *platform, *strategy;
    std::uint32_t micro_batches;
    std::size_t ranks;
  };
  const auto each = GENERATE(Case{"gpt12_w768_t256_b4_cpu", "h100_sxm_8", "1f1b(stages=4)", 4, 4},
                             Case{"gpt12_w768_t256_b4_cpu", "h100_sxm_8", "chimera(stages=4)", 4, 4},
                             Case{"gpt12_w768_t256_b4_cpu", "h100_sxm_8", "1f1b(stages=2)|offload_greedy", 4, 2},
                             Case{"gpt12_w768_t256_b4_cpu", "h200", "zero_offload", 1, 1},
                             Case{"transformer:view=graph,layers=2,width=64,heads=4,sequence=32,vocabulary=100",
                                  "h100_sxm_8", "megatron(tensor=4)", 1, 4});
  CAPTURE(each.strategy);
  Question question = question_about(each.trace, each.platform, each.strategy);
  question.micro_batches = each.micro_batches;
  if (std::string(each.strategy) == "zero_offload") question.optimizer = Optimizer::adam;
  const AnsweredQuestion of = planned(question);
  std::map<std::uint64_t, std::vector<ReadNode>> ranks;
  nlohmann::json groups;
  for (const ChakraFile& file : chakra_files(of.problem, *of.answer.schedule, *of.answer.timeline, "a test")) {
    if (file.suffix == ".groups.json") {
      groups = nlohmann::json::parse(file.content);
    } else {
      ranks[std::stoull(file.suffix.substr(1))] = read_nodes(file.content);
    }
  }
  CHECK(ranks.size() == each.ranks);
  check_replay(ranks);
  std::map<std::string, std::size_t> in_group;
  std::size_t nodes = 0, received = 0;
  for (const auto& [rank, of_rank] : ranks) {
    nodes += of_rank.size();
    for (const ReadNode& node : of_rank) {
      if (node.type == comm_receive) ++received;
      if (node.type != comm_collective) continue;
      const auto members = groups.at(node.words.at("pg_name")).get<std::vector<std::uint64_t>>();
      CHECK(std::ranges::count(members, rank) == 1);
      ++in_group[node.words.at("pg_name")];
    }
  }
  const std::size_t repeated = of.problem.mesh ? of.problem.mesh->ranks() : 1;
  std::size_t messages = 0;
  for (const auto& [rank, of_rank] : ranks) {
    messages += static_cast<std::size_t>(std::ranges::count_if(
        of_rank, [](const ReadNode& node) { return node.name == "wait" && node.numbers.contains("comm_tag"); }));
  }
  const bool has_empty_messages = messages > 0;
  if (!has_empty_messages) CHECK(nodes - received == repeated * of.answer.schedule->steps.size());
  for (const auto& [group, members] : groups.items()) CHECK(in_group[group] % members.size() == 0);
}

/// What the language can say of a graph: its ops, and the bytes on its edges.
struct Said {
  std::vector<std::tuple<std::string, Phase, double, std::int64_t>> ops;  ///< name, phase, seconds, parameters
  std::map<std::pair<std::string, std::string>, std::int64_t> edges;
  friend bool operator==(const Said&, const Said&) = default;
};

Said said_by(const Graph& graph) {
  Said said;
  for (const Op& op : graph.ops) {
    std::int64_t parameters = 0;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) parameters += graph[t].bytes.count;
      for (const Op& maker : graph.ops) {
        const bool makes = std::ranges::find(maker.outputs, t) != maker.outputs.end();
        if (makes) said.edges[{maker.name, op.name}] += graph[t].bytes.count;
      }
    }
    said.ops.emplace_back(op.name, is_backward(op.phase) ? Phase::backward : Phase::forward, op.duration->value,
                          parameters);
  }
  std::ranges::sort(said.ops);
  return said;
}

Problem ideal_problem(Graph graph) {
  Platform platform = load_platform("ideal");
  return std::get<Problem>(make_problem(std::move(graph), std::move(platform), {}));
}

TEST_CASE("a graph in Graphviz's language is imported as the same ops, times, edges and bytes", "[export]") {
  const Graph first = parse_dot_graph(
      "digraph g { a [time=\"3 ms\", parameters=12]; b [time=\"1.25 ms\", label=\"the \\\"b\\\"\"]; c [time=7, "
      "phase=backward, device=host, colocate=x]; d [time=1, colocate=x, size=3]; a -> b [bytes=100]; a -> c "
      "[bytes=200]; b -> c [bytes=30]; c -> d [bytes=4]; }",
      "test");
  const std::string text = dot_text(ideal_problem(first), "made by a test");
  const Graph again = parse_dot_graph(text, "test");
  CHECK(said_by(again) == said_by(first));
  CHECK(again.colocate == first.colocate);
  CHECK(again.ops[2].attributes == first.ops[2].attributes);
  CHECK(dot_text(ideal_problem(again), "made by a test") == text);

  const Trace shipped = load_model("gpt4_ops_w256_t128_b4_cpu");
  const Graph& ops = std::get<Graph>(shipped.model);
  const Graph read = parse_dot_graph(dot_text(ideal_problem(ops), "x"), "test");
  std::map<std::pair<std::string, std::string>, std::int64_t> edges = said_by(ops).edges;
  CHECK(said_by(read).edges == edges);
  CHECK(read.ops.size() == ops.ops.size());
  CHECK(bytes_of_kind(read, TensorKind::parameter) == bytes_of_kind(ops, TensorKind::parameter));
}

TEST_CASE("an exported trace is the model that was asked about, and answers as it does", "[export]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "model.json").string();
  for (const std::string trace :
       {"gpt12_w768_t256_b4_cpu", "gpt4_ops_w256_t128_b4_cpu", "uniform:7", "rnn:layers=3", "resnet50_b8_cpu"}) {
    CAPTURE(trace);
    const std::string on = " -p ideal -s store_all";
    REQUIRE(plimsoll("export trace -t " + trace + on + " -o " + file).exit_code == 0);
    CHECK(read_trace(file) == load_model(trace));
  }
  // What a transform makes of it is a graph of its own.
  const std::string asks = " -t gpt4_ops_w256_t128_b4_cpu -p h200 -s 'sparse_update|store_all'";
  REQUIRE(plimsoll("export trace" + asks + " -o " + file).exit_code == 0);
  const auto figures = [](const std::string& of) {
    const nlohmann::json json = nlohmann::json::parse(plimsoll("simulate --json" + of).out);
    return std::pair(json["makespan_s"], json["peak_bytes"]);
  };
  CHECK(figures(" -t " + file + " -p h200 -s store_all") == figures(asks));
  CHECK(figures(asks) != figures(" -t gpt4_ops_w256_t128_b4_cpu -p h200 -s store_all"));
  // Launches and traffic of updates have keys.
  const std::string with_updates = " --optimizer adam" + asks;
  REQUIRE(plimsoll("export trace" + with_updates + " -o " + file).exit_code == 0);
  CHECK(figures(" -t " + file + " -p h200 -s store_all") == figures(with_updates));
  const ProgramRun refused =
      plimsoll("export trace --optimizer adam -t gpt12_w768_t256_b4_cpu -p h200 -s 'sparse_update|store_all'");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("what 'sparse_update|store_all' makes of 'gpt12_w768_t256_b4_cpu' has costs that trace "
                         "files have no keys for\n") != std::string::npos);
}

/// Without the line or key that says what made it.
std::string without_maker(std::string text) {
  const std::size_t from = text.find("plimsoll 0"), until = std::min(text.find('\n', from), text.find("\",", from));
  return from == std::string::npos ? text : text.erase(from, until - from);
}

TEST_CASE("a schedule's file is exported as the question that made it, and perfetto is --timeline", "[export]") {
  const TemporaryFolder folder;
  const std::string asks = " -t gpt12_w768_t256_b4_cpu -p h200 -s offload_greedy -m '70 %'";
  const std::string plan = (folder / "plan.json").string(), line = (folder / "line.json").string();
  REQUIRE(plimsoll("plan" + asks + " -o " + plan).exit_code == 0);
  for (const char* format : {"perfetto", "csv", "dot", "trace", "torchtitan"}) {
    CAPTURE(format);
    const ProgramRun of_question = plimsoll(std::string("export ") + format + asks);
    const ProgramRun of_file = plimsoll(std::string("export ") + format + " --schedule " + plan);
    CHECK(of_question.exit_code == of_file.exit_code);
    CHECK(without_maker(of_question.out) == without_maker(of_file.out));
  }
  REQUIRE(plimsoll("simulate" + asks + " --timeline " + line).exit_code == 0);
  CHECK(without_maker(text_of(line)) == without_maker(plimsoll("export perfetto" + asks).out));
  const auto snapshot = [&](const std::string& of) {
    const std::string file = (folder / "snapshot.pickle").string();
    REQUIRE(plimsoll("export memory-snapshot --allocator cuda " + of + " -o " + file).exit_code == 0);
    return text_of(file);
  };
  CHECK(snapshot(asks) == snapshot("--schedule " + plan));
}

TEST_CASE("collectives have lanes of their own, with arrows to what reads them", "[export]") {
  const AnsweredQuestion of =
      planned(question_about("transformer:view=graph,layers=2,width=64,heads=4,sequence=32,vocabulary=100",
                             "h100_sxm_8", "megatron(tensor=4)"));
  const nlohmann::json made =
      nlohmann::json::parse(perfetto_timeline(of.problem, *of.answer.schedule, *of.answer.timeline, "test"));
  std::map<int, std::string> lanes;
  std::set<int> arrows;
  for (const auto& event : made["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "s") arrows.insert(event["tid"].get<int>());
  }
  std::size_t collectives = 0, slices = 0;
  for (const auto& event : made["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++slices;
    const bool is_one = collective_of(of.problem.graph.ops[event["args"]["op"].get<std::size_t>()]).has_value();
    collectives += is_one ? 1 : 0;
    CHECK(is_one == ((lanes.at(event["tid"]).find("collectives") != std::string::npos)));
  }
  CHECK(collectives > 4);
  CHECK(slices == of.answer.schedule->steps.size());
  for (const auto& [tid, name] : lanes) {
    if (name.find("collectives") != std::string::npos) CHECK(arrows.contains(tid));
  }
}

TEST_CASE("export refuses by name what a format has no words for", "[export]") {
  const std::string asks = " -t uniform:4 -p ideal -s store_all";
  const auto refusal = [&](const std::string& words) {
    const ProgramRun run = plimsoll("export " + words);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  CHECK(refusal("perfeto" + asks) ==
        "export: unknown format 'perfeto', expected perfetto, chakra, csv, dot, trace, memory-snapshot, pipeline-csv, "
        "recompute-ops, torchtitan or deepcompile; did you mean 'perfetto'?\n");
  CHECK(refusal("chakra" + asks) ==
        "export: chakra is a file for each rank; expected -o and the begin of their names\n");
  CHECK(refusal("pipeline-csv --schedule x.json") ==
        "--schedule: pipeline-csv is of a strategy's turns, expected --strategy\n");
  CHECK(refusal("csv --schedule none.json").find("none.json") == 0);
}

}  // namespace
}  // namespace plimsoll
