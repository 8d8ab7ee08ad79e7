// Tapes on streams: devices that alternate, copies that share a link.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

TEST_CASE("two devices whose ops alternate wait for each other action by action", "[lowering]") {
  const Problem problem = problem_of(row_of_ops(6), gpus({.count = 2, .peer_latency = Seconds{0.5}}));
  Partition partition;
  partition.parts.resize(2);
  partition.parts[1].device = DeviceId{1};
  partition.order = {{{PartId{0}, 0, 0}}, {{PartId{1}, 0, 0}}};
  std::vector<Tape> tapes(2);
  for (std::uint32_t o = 0; o < 6; ++o) {
    const std::uint32_t p = o % 2;
    partition.parts[p].ops.push_back(OpId{o});
    if (o > 0) tapes[p].actions.push_back(on_tensor(ActionKind::receive, TensorId{o}));
    tapes[p].actions.push_back(run(OpId{o}));
    if (o < 5) tapes[p].actions.push_back(on_tensor(ActionKind::send, TensorId{o + 1}, PartId{1 - p}));
  }
  for (Tape& tape : tapes) tape = with_drops(problem.graph, tape);
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(schedule, problem.platform);
  CHECK(timeline.makespan == Seconds{6 * 1.0 + 5 * 0.5});
  // What o1 made (4 bytes) arrives while nothing else is left: read 4 + made 4.
  CHECK(timeline.peaks[0].bytes == Bytes{8});
  CHECK(timeline.peaks[1].bytes == Bytes{8});
}

TEST_CASE("a parameter's new value waits for those who still read the old one on another device", "[lowering]") {
  Graph graph;
  graph.name = "read elsewhere";
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{8}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor("x", TensorKind::input), w = tensor("w", TensorKind::parameter);
  const TensorId a = tensor("a", TensorKind::activation), g = tensor("gradient of w", TensorKind::parameter_gradient);
  const TensorId c = tensor("c", TensorKind::activation);
  graph.ops.push_back({.name = "f", .phase = Phase::forward, .duration = Seconds{1}, .inputs = {x, w}, .outputs = {a}});
  graph.ops.push_back({.name = "b", .phase = Phase::backward, .duration = Seconds{1}, .inputs = {a}, .outputs = {g}});
  graph.ops.push_back(
      {.name = "looks", .phase = Phase::forward, .duration = Seconds{10}, .inputs = {x, w}, .outputs = {c}});
  graph.ops.push_back({.name = "update of w",
                       .phase = Phase::update,
                       .duration = Seconds{1},
                       .inputs = {w, g},
                       .mutates = {w},
                       .recomputable = false});
  const Problem problem = problem_of(graph, gpus({.count = 2, .to_peers = BytesPerSecond{8}}));
  Partition partition;
  partition.parts = {{.ops = {OpId{0}, OpId{1}}, .device = DeviceId{0}}, {.ops = {OpId{2}}, .device = DeviceId{1}}};
  partition.order = {{{PartId{0}, 0, 0}}, {{PartId{1}, 0, 0}}};
  std::vector<Tape> tapes(2);
  tapes[0].actions = {run(OpId{0}), run(OpId{1})};
  tapes[1].actions = {run(OpId{2})};
  for (Tape& tape : tapes) tape = with_drops(problem.graph, tape);
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{10 + 1});  // then 8 bytes at 8 B/s
}

// The first part runs again for its second output alone, while it holds the first one still, as does the part that it
// was sent to: when both have dropped it it is gone.
TEST_CASE("a part that makes again what it holds holds it once", "[lowering]") {
  Graph graph = row_of_ops(2);
  graph.tensors.push_back({.name = "beside",
                           .kind = TensorKind::activation,
                           .bytes = Bytes{4},
                           .storage = id_at<StorageId>(graph.storages++)});
  const TensorId sent{1}, beside{3};
  graph.ops[0].outputs.push_back(beside);
  const Problem problem = problem_of(graph, gpus({}));
  Partition partition;
  partition.parts = {{{OpId{0}}, DeviceId{0}}, {{OpId{1}}, DeviceId{0}}};
  partition.order = {{{PartId{0}, 0, 0}, {PartId{1}, 0, 0}}};
  std::vector<Tape> tapes(2);
  tapes[0].actions = {run(OpId{0}), on_tensor(ActionKind::send, sent, PartId{1}), on_tensor(ActionKind::drop, beside),
                      run(OpId{0}), on_tensor(ActionKind::drop, beside),          on_tensor(ActionKind::drop, sent)};
  tapes[1].actions = {on_tensor(ActionKind::receive, sent), run(OpId{1}), on_tensor(ActionKind::drop, sent)};
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  std::size_t frees = 0;
  for (const Step& step : schedule.steps) {
    for (const BufferId b : schedule.buffers_in(step.frees)) frees += schedule[b].tensor == sent ? 1 : 0;
  }
  CHECK(frees == 1);
}

// The first device makes t1 and keeps it for o3. The second one sends it back to another part of the first device,
// which waits for that, reads it and drops it: o3 has it still.
TEST_CASE("what comes back to where another part has it is both parts'", "[lowering]") {
  Graph graph = row_of_ops(4);
  const TensorId kept{1}, read{3};
  graph.ops[2].inputs = {kept};
  graph.ops[3].inputs = {kept, read};
  const Problem problem = problem_of(graph, gpus({.count = 2, .peer_latency = Seconds{0.5}}));
  const PartId first{0}, second{1}, third{2};
  Partition partition;
  partition.parts = {{{OpId{0}, OpId{3}}, DeviceId{0}}, {{OpId{1}}, DeviceId{1}}, {{OpId{2}}, DeviceId{0}}};
  const std::uint32_t backward = number_of(PieceName::backward);
  partition.order = {{{first, 0, 0}, {third, 0, 0}, {first, 0, backward}}, {{second, 0, 0}}};
  std::vector<Tape> tapes(3);
  tapes[0].actions = {run(OpId{0}), on_tensor(ActionKind::send, kept, second), cut_before(PieceName::backward),
                      on_tensor(ActionKind::receive, read), run(OpId{3})};
  tapes[1].actions = {on_tensor(ActionKind::receive, kept), run(OpId{1}), on_tensor(ActionKind::send, kept, third)};
  tapes[2].actions = {on_tensor(ActionKind::receive, kept), run(OpId{2}), on_tensor(ActionKind::send, read, first)};
  for (Tape& tape : tapes) tape = with_drops(problem.graph, tape);
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{1 + 0.5 + 0.5 + 1 + 1});
}

// Each packs t1 and restores it for its own op, the first one when the second has dropped all that it held.
TEST_CASE("a packed form that two parts of a device make is both parts'", "[lowering]") {
  Graph graph = row_of_ops(3);
  const TensorId value{1}, made_of_it{2};
  graph.tensors[1].shape = {16};
  graph.tensors[1].dtype = "float32";
  graph.tensors[1].bytes = Bytes{64};
  graph.ops[2].inputs = {value, made_of_it};
  const Problem problem = problem_of(graph, gpus({}));
  const PartId first{0}, second{1};
  Partition partition;
  partition.parts = {{{OpId{0}, OpId{2}}, DeviceId{0}}, {{OpId{1}}, DeviceId{0}}};
  const std::uint32_t backward = number_of(PieceName::backward);
  partition.order = {{{first, 0, 0}, {second, 0, 0}, {first, 0, backward}}};
  const Form packed{Form::Kind::packed, 0}, restored{Form::Kind::restored, 0};
  const auto drop = [](TensorId t, Form form = {}) { return in_form(form, on_tensor(ActionKind::drop, t)); };
  const auto pack = by_codec(ActionKind::pack, value, 0), unpack = by_codec(ActionKind::unpack, value, 0);
  std::vector<Tape> tapes(2);
  for (Tape& tape : tapes) tape.codecs = {{.kind = CodecKind::quantize, .bits = 8, .group = 16}};
  tapes[0].actions = {run(OpId{0}),
                      on_tensor(ActionKind::send, value, second),
                      pack,
                      drop(value),
                      cut_before(PieceName::backward),
                      on_tensor(ActionKind::receive, made_of_it),
                      unpack,
                      drop(value, packed),
                      run(OpId{2}),
                      drop(value, restored),
                      drop(made_of_it),
                      drop(TensorId{3})};
  tapes[1].actions = {on_tensor(ActionKind::receive, value),
                      pack,
                      drop(value),
                      unpack,
                      drop(value, packed),
                      run(OpId{1}),
                      drop(value, restored),
                      on_tensor(ActionKind::send, made_of_it, first),
                      drop(made_of_it)};
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  CHECK(std::ranges::count(schedule.steps, StepKind::pack, &Step::kind) == 1);
  CHECK(std::ranges::count(schedule.steps, StepKind::unpack, &Step::kind) == 2);
}

TEST_CASE("devices whose orders wait for each other in a circle are refused", "[lowering]") {
  const Problem problem = problem_of(row_of_ops(4), gpus({.count = 2}));
  Partition partition;
  partition.parts = {{{OpId{0}, OpId{2}}, DeviceId{0}}, {{OpId{1}, OpId{3}}, DeviceId{1}}};
  partition.order = {{{PartId{0}, 0, 0}}, {{PartId{1}, 0, 0}}};
  std::vector<Tape> tapes(2);
  tapes[0].actions = {on_tensor(ActionKind::receive, TensorId{2}), run(OpId{2}), run(OpId{0}),
                      on_tensor(ActionKind::send, TensorId{1}, PartId{1})};
  tapes[1].actions = {on_tensor(ActionKind::receive, TensorId{1}), run(OpId{1}),
                      on_tensor(ActionKind::send, TensorId{2}, PartId{0})};
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK(std::get<std::string>(made) ==
        "the devices' orders wait for each other in a circle: part 0 on 'gpu0' waits for what part 1 makes of "
        "micro-batch 0, and part 1 on 'gpu1' waits for what part 0 makes of micro-batch 0");
}

/// o0 makes 4 bytes of which o1 on the second device and o2 on the first make something, in 1, 1 and 2 seconds; a way
/// between the devices takes 1 s a byte.
struct SentAndRead {
  Problem problem;
  Partition partition;
  std::vector<Tape> tapes{2};

  explicit SentAndRead(double bytes_per_second) : problem(problem_of(graph(), platform(bytes_per_second))) {
    partition.parts = {{{OpId{0}, OpId{2}, OpId{3}}, DeviceId{0}}, {{OpId{1}}, DeviceId{1}}};
    partition.order = {{{PartId{0}, 0, 0}}, {{PartId{1}, 0, 0}}};
    tapes[1].actions = {on_tensor(ActionKind::receive, sent), run(OpId{1})};
  }

  static constexpr TensorId sent{1};

  Schedule lowered() {
    for (Tape& tape : tapes) tape = with_drops(problem.graph, tape);
    std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
    REQUIRE(std::holds_alternative<Schedule>(made));
    CHECK(check(std::get<Schedule>(made), problem.graph, problem.platform).empty());
    return std::get<Schedule>(std::move(made));
  }

 private:
  static Graph graph() {
    Graph made;
    made.name = "sent and read";
    const auto tensor = [&](std::string name, TensorKind kind) {
      const auto id = id_at<TensorId>(made.tensors.size());
      made.tensors.push_back(
          {.name = std::move(name), .kind = kind, .bytes = Bytes{4}, .storage = id_at<StorageId>(made.storages++)});
      return id;
    };
    const TensorId x = tensor("x", TensorKind::input), v = tensor("v", TensorKind::activation);
    const auto op = [&](std::string name, double seconds, TensorId in, TensorId out) {
      made.ops.push_back({.name = std::move(name),
                          .phase = Phase::forward,
                          .duration = Seconds{seconds},
                          .inputs = {in},
                          .outputs = {out}});
    };
    op("o0", 1, x, v);
    op("o1", 1, v, tensor("a", TensorKind::activation));
    const TensorId b = tensor("b", TensorKind::activation);
    op("o2", 2, v, b);
    op("o3", 1, b, tensor("c", TensorKind::activation));
    return made;
  }
  static Platform platform(double bytes_per_second) {
    return gpus({.count = 2, .to_peers = BytesPerSecond{bytes_per_second}});
  }
};

Seconds finish_of(OpId op, const Schedule& schedule, const Timeline& timeline) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].op == op) return timeline.steps[s].finish;
  }
  return {};
}

TEST_CASE("what reads a value does not wait until it has been sent, and it is there until both are over",
          "[lowering]") {
  SentAndRead slow(1);
  slow.tapes[0].actions = {run(OpId{0}), on_tensor(ActionKind::send, SentAndRead::sent, PartId{1}), run(OpId{2}),
                           run(OpId{3})};
  const Schedule schedule = slow.lowered();
  const Timeline timeline = simulate_event(schedule, slow.problem.platform);
  CHECK(finish_of(OpId{2}, schedule, timeline) == Seconds{1 + 2});
  CHECK(finish_of(OpId{3}, schedule, timeline) == Seconds{1 + 2 + 1});
  CHECK(finish_of(OpId{1}, schedule, timeline) == Seconds{1 + 4 + 1});
  CHECK(timeline.peaks[0].bytes == Bytes{12});  // v beside what o3 reads and makes
}

TEST_CASE("a value may still be on its way when its last reader starts, or has been sent for sure", "[lowering]") {
  // Sent from 1 s on for 2 s, if nothing else is on the way, and read from 3 s on; or sent for half a second, at most
  // for one.
  for (const auto& [bytes_per_second, steps] : {std::pair{2.0, 6}, std::pair{8.0, 5}}) {
    SentAndRead twice(bytes_per_second);
    twice.problem.graph.ops[3].inputs.push_back(SentAndRead::sent);
    twice.tapes[0].actions = {run(OpId{0}), on_tensor(ActionKind::send, SentAndRead::sent, PartId{1}), run(OpId{2}),
                              run(OpId{3})};
    const Schedule schedule = twice.lowered();
    CHECK(schedule.steps.size() == static_cast<std::size_t>(steps));
    CHECK(simulate_event(schedule, twice.problem.platform).peaks[0].bytes == Bytes{12});
  }
}

TEST_CASE("a value is sent before those that read it earlier are over", "[lowering]") {
  SentAndRead late(1);
  late.tapes[0].actions = {run(OpId{0}), run(OpId{2}), on_tensor(ActionKind::send, SentAndRead::sent, PartId{1}),
                           run(OpId{3})};
  const Schedule schedule = late.lowered();
  const Timeline timeline = simulate_event(schedule, late.problem.platform);
  CHECK(finish_of(OpId{1}, schedule, timeline) == Seconds{1 + 4 + 1});
}

TEST_CASE("two GPUs that offload and prefetch at once share the uplink", "[lowering]") {
  Chain chain = even_chain(2);
  chain.stages[0].saved = Bytes{10 + 1'000'000'000};  // 1 GB of inner tensors
  const Gpus options{.count = 2, .uplink = BytesPerSecond{10e9}};
  const Problem problem = problem_of(chain, gpus(options), {.micro_batches = 2});
  Partition partition;
  partition.order.resize(2);
  const ChainGraph& index = *problem.index;
  const TensorId inner = problem.graph[index.forward[0]].saved.at(0);
  Tape tape;
  tape.actions = {run(index.forward[0]),  along(way::device_to_host, ActionKind::copy, inner),
                  run(index.forward[1]),  run(index.forward[2]),
                  run(index.backward[2]), along(way::host_to_device, ActionKind::move, inner),
                  run(index.backward[1]), run(index.backward[0])};
  tape = with_drops(problem.graph, tape);
  for (std::uint32_t d = 0; d < 2; ++d) {
    Part& part = partition.parts.emplace_back();
    part.device = DeviceId{d};
    for (const OpId op : index.forward) part.ops.push_back(op);
    for (std::size_t i = index.backward.size(); i-- > 0;) part.ops.push_back(index.backward[i]);
    partition.order[d] = {{PartId{d}, d, 0}};
  }
  const std::vector<Tape> tapes{tape, tape};
  const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(schedule, problem.platform);
  std::size_t copies = 0;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (!schedule.steps[s].work.is_transfer()) continue;
    ++copies;
    // Two flows of 1 GB on 10 GB/s in the same direction: 0.2 s each.
    CHECK((timeline.steps[s].finish - timeline.steps[s].start).value == Approx(0.2).epsilon(1e-12));
  }
  CHECK(copies == 4);
  CHECK(timeline.makespan.value == Approx(2 + 4).epsilon(1e-12));  // both copies hide behind the second stage
  CHECK(timeline.peaks[2].bytes == Bytes{2'000'000'000});          // on the host
}

TEST_CASE("a wait for an offloaded tensor that was dropped is also for the step that frees it", "[lowering]") {
  const Problem problem = problem_of(row_of_ops(3), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  Tape tape;
  const TensorId t1{1};
  tape.actions = {run(OpId{0}),
                  along(way::device_to_host, ActionKind::copy, t1),
                  run(OpId{1}),
                  on_tensor(ActionKind::drop, t1),
                  on_copy_at(place::host, ActionKind::wait, t1),
                  run(OpId{2})};
  const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  const Timeline timeline = simulate_event(schedule, problem.platform);
  CHECK(timeline.makespan == Seconds{3});
  // o1 has t0, t1 and t2; o2 has t0, t2 and t3. With t1 still there it would be 16 bytes.
  CHECK(timeline.peaks[0].bytes == Bytes{12});
}

TEST_CASE("a platform without a way to a host is refused by name", "[lowering]") {
  Problem problem = problem_of(even_chain(2), gpus({}));
  problem.platform.links.clear();
  const Partition partition = one_device(problem.graph, 1, 1);
  Tape tape;
  tape.actions = {run(OpId{0}), along(way::device_to_host, ActionKind::copy, TensorId{1})};
  const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  REQUIRE(std::holds_alternative<std::string>(made));
  CHECK(std::get<std::string>(made) == "platform 'test' has no host memory that 'gpu0' can reach");
}

TEST_CASE("gradients appear in the first micro-batch, and updates run once behind the last", "[lowering]") {
  Chain chain = even_chain(2);
  chain.parameters = {{"w", Bytes{7}}};
  chain.stages[0].parameters = chain.stages[1].parameters = {0};
  const Problem problem = problem_of(chain, gpus({}), {.micro_batches = 3, .optimizer = Optimizer::adam});
  const Partition partition = one_device(problem.graph, 3, 1);
  Tape tape;
  for (std::uint32_t o = 0; o < 6; ++o) tape.actions.push_back(run(OpId{o}));
  tape = with_drops(problem.graph, tape);
  const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  CHECK(schedule.steps.size() == 3 * 6 + 1);
  CHECK(schedule.steps.back().kind == StepKind::update);
  CHECK(schedule.resident.size() == 3);  // the parameter, two states
  const Timeline timeline = simulate_event(schedule, problem.platform);
  CHECK(timeline.makespan == Seconds{3 * 6.0});
}

TEST_CASE("who adds to a gradient waits until what it has been is copied", "[lowering]") {
  Graph graph;
  graph.name = "copied between";
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{8}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId w = tensor("w", TensorKind::parameter), a = tensor("a", TensorKind::activation);
  const TensorId g = tensor("gradient of w", TensorKind::parameter_gradient);
  graph.ops.push_back({.name = "f", .phase = Phase::forward, .duration = Seconds{1}, .inputs = {w}, .outputs = {a}});
  graph.ops.push_back({.name = "b", .phase = Phase::backward, .duration = Seconds{1}, .inputs = {a}, .outputs = {g}});
  const Problem problem = problem_of(graph, gpus({.to_host = BytesPerSecond{1}}), {.micro_batches = 2});
  const Partition partition = one_device(problem.graph, 2, 1);
  Tape tape;
  tape.actions = {run(OpId{0}), run(OpId{1}), on_tensor(ActionKind::drop, a),
                  along(way::device_to_host, ActionKind::copy, g)};
  const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  CHECK(check(schedule, problem.graph, problem.platform).empty());
  CHECK(simulate_event(schedule, problem.platform).makespan == Seconds{1 + 1 + 8 + 1 + 8});
}

}  // namespace
}  // namespace plimsoll
