// Versions of parameters: the schedules that lowering makes of updates within an iteration are legal, and each reader
// of another version is named.

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "sim/measure/lower_bounds.h"
#include "tests/core/draft.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

/// Stages of a second forward and two backward, each with a parameter of its own; then the loss.
Chain trained_chain(std::size_t stages) {
  Chain chain = even_chain(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{8}});
    chain.stages[s].parameters = {static_cast<std::uint32_t>(s)};
  }
  return chain;
}

/// Each op of the part once, in order, cut where the partition wants it, and everything dropped after its last use.
Tape plain_tape_of(const Problem& problem, const Partition& partition, std::size_t p) {
  Tape tape;
  const Part& part = partition.parts[p];
  const Graph& graph = problem.graph;
  const std::size_t parts = partition.parts.size();
  const TensorId in = graph[part.ops.front()].inputs[0];
  bool backward = false;
  TensorId returned = in;
  if (p > 0) tape.actions.push_back(on_tensor(ActionKind::receive, in));
  for (const OpId op : part.ops) {
    if (is_backward(graph[op].phase) && !backward) {
      backward = true;
      if (p + 1 < parts) {
        const TensorId out = graph[partition.parts[p + 1].ops.front()].inputs[0];
        tape.actions.push_back(on_tensor(ActionKind::send, out, id_at<PartId>(p + 1)));
        tape.actions.push_back(cut_before(PieceName::backward));
        for (const TensorId t : graph[op].inputs) {
          if (graph[t].kind == TensorKind::gradient) tape.actions.push_back(on_tensor(ActionKind::receive, t));
        }
      }
    }
    tape.actions.push_back(run(op));
    for (const TensorId t : graph[op].outputs) {
      if (graph[t].kind == TensorKind::gradient) returned = t;
    }
  }
  if (p > 0) tape.actions.push_back(on_tensor(ActionKind::send, returned, id_at<PartId>(p - 1)));
  return with_drops(graph, tape);
}

struct Made {
  Problem problem;
  Schedule schedule;

  std::vector<Violation> judged() const { return check(schedule, problem.graph, problem.platform); }

  /// The k-th step of an op that the part on the device runs in this phase, of a micro-batch or update.
  StepId step(Phase phase, std::uint32_t device, std::uint32_t number) const {
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      if (step.op == no_op || problem.graph[step.op].phase != phase || step.micro_batch != number) continue;
      if (schedule[step.stream].device == DeviceId{device}) return id_at<StepId>(s);
    }
    FAIL("no such step");
    return {};
  }

  BufferId of_kind(TensorKind kind, Slice slice) const {
    for (const BufferId b : schedule.buffers_in(slice)) {
      if (problem.graph[schedule[b].tensor].kind == kind) return b;
    }
    FAIL("no such buffer");
    return {};
  }
  void put_in(Slice& slice, BufferId b) {
    std::vector<BufferId> list(schedule.buffers_in(slice).begin(), schedule.buffers_in(slice).end());
    list.push_back(b);
    replace(slice, list);
  }
  void take_out(Slice& slice, BufferId b) {
    std::vector<BufferId> list(schedule.buffers_in(slice).begin(), schedule.buffers_in(slice).end());
    REQUIRE(std::erase(list, b) == 1);
    replace(slice, list);
  }
  void replace(Slice& slice, const std::vector<BufferId>& list) {
    slice = {static_cast<std::uint32_t>(schedule.buffer_list.size()), static_cast<std::uint32_t>(list.size())};
    schedule.buffer_list.insert(schedule.buffer_list.end(), list.begin(), list.end());
  }

  /// Which of the step's buffers holds a parameter.
  BufferId& parameter(StepId s) {
    const Slice slice = schedule.steps[s.index].reads;
    for (std::uint32_t i = slice.first; i < slice.first + slice.count; ++i) {
      const BufferId b = schedule.buffer_list[i];
      if (problem.graph[schedule[b].tensor].kind == TensorKind::parameter) return schedule.buffer_list[i];
    }
    FAIL("it reads no parameter");
    return schedule.buffer_list[0];
  }
};

/// A stage a device, on `devices` of them, in the order of 1F1B.
Made made_with(Updates updates, std::uint32_t devices, std::uint32_t micro_batches,
               Optimizer optimizer = Optimizer::momentum) {
  Problem problem = problem_of(trained_chain(devices), gpus({.count = devices, .adam = BytesPerSecond{8}}),
                               {.micro_batches = micro_batches, .optimizer = optimizer});
  std::vector<std::size_t> cuts;
  for (std::size_t d = 0; d < devices; ++d) cuts.push_back(d);
  Partition partition = one_forward_one_backward(problem, cuts);
  partition.updates = updates;
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < devices; ++p) tapes.push_back(plain_tape_of(problem, partition, p));
  std::variant<Schedule, std::string> lowered = lower(problem, partition, tapes);
  if (const auto* why = std::get_if<std::string>(&lowered)) FAIL(*why);
  return {std::move(problem), std::move(std::get<Schedule>(lowered))};
}

constexpr Updates stashed{Versions::stashed, 1};

std::string first_of(const std::vector<Violation>& found) {
  return found.empty() ? "legal" : found[0].what;
}

TEST_CASE("updates within an iteration: legal for any number of devices, micro-batches and groups", "[versions]") {
  for (const std::uint32_t devices : {1U, 2U, 3U, 4U}) {
    for (const std::uint32_t micro_batches : {1U, 2U, 4U, 7U, 12U}) {
      INFO(devices << " devices, " << micro_batches << " micro-batches");
      const Made one = made_with(stashed, devices, micro_batches);
      CHECK(first_of(one.judged()) == "legal");
      CHECK(one.schedule.staleness == std::min(devices, micro_batches) - 1);
      for (const std::uint32_t every : {1U, 2U, 3U, 4U, 6U}) {
        if (micro_batches % every != 0) continue;
        INFO("an update every " << every);
        CHECK(first_of(made_with({Versions::stashed, every}, devices, micro_batches).judged()) == "legal");
        if (every < devices) continue;
        const Made two = made_with({Versions::double_buffered, every}, devices, micro_batches);
        CHECK(first_of(two.judged()) == "legal");
        CHECK(two.schedule.staleness == (micro_batches > every ? 1 : 0));
      }
    }
  }
}

TEST_CASE("a backward that reads another version than its forward is a wrong value", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  const StepId other = made.step(Phase::backward, 0, 5), late = made.step(Phase::backward, 0, 4);
  const BufferId newer = made.parameter(other);
  REQUIRE(newer != made.parameter(late));
  made.parameter(late) = newer;  // alive: micro-batch 5 reads it
  const std::vector<Violation> found = made.judged();
  CHECK(reports(found, Rule::wrong_value, late.index, newer));
  CHECK(first_of(found) ==
        "step " + std::to_string(late.index) +
            " ('stage 0 backward', micro-batch 4) needs version 2 of 'w0' but reads version 3 in buffer " +
            std::to_string(newer.index) + " ('w0', micro-batch 0)");
}

TEST_CASE("a forward that reads another version than the newest is a wrong value", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  const StepId forward = made.step(Phase::forward, 0, 5);
  const BufferId older = made.parameter(made.step(Phase::forward, 0, 4));
  REQUIRE(older != made.parameter(forward));
  made.parameter(forward) = older;
  CHECK(reports(made.judged(), Rule::wrong_value, forward.index, older));
}

TEST_CASE("an update of another version than the newest is a wrong value", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  const StepId update = made.step(Phase::update, 0, 4);
  const BufferId older = made.parameter(made.step(Phase::backward, 0, 5));
  REQUIRE(older != made.parameter(update));
  made.parameter(update) = older;
  CHECK(reports(made.judged(), Rule::wrong_value, update.index, older));
}

TEST_CASE("double-buffered: a version that is newer or older by an update is a wrong value", "[versions]") {
  Made made = made_with({Versions::double_buffered, 3}, 3, 12);
  SECTION("too new, in a forward") {
    const StepId forward = made.step(Phase::forward, 2, 6);
    made.parameter(forward) = made.parameter(made.step(Phase::forward, 2, 9));
    CHECK(reports(made.judged(), Rule::wrong_value, forward.index));
  }
  SECTION("too old, in a backward") {
    const StepId backward = made.step(Phase::backward, 0, 6);
    made.parameter(backward) = made.parameter(made.step(Phase::backward, 0, 3));
    CHECK(!made.judged().empty());
  }
  SECTION("what stashing would read") {
    Made other = made_with({Versions::stashed, 3}, 3, 12);
    other.schedule.updates.versions = Versions::double_buffered;
    CHECK(reports(other.judged(), Rule::wrong_value));
  }
  SECTION("declared as stashed") {
    made.schedule.updates.versions = Versions::stashed;
    CHECK(reports(made.judged(), Rule::wrong_value));
  }
}

TEST_CASE("the header declares staleness: more is a wrong value, less is malformed", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  REQUIRE(made.schedule.staleness == 2);
  made.schedule.staleness = 1;
  const std::vector<Violation> found = made.judged();
  CHECK(reports(found, Rule::wrong_value, made.step(Phase::forward, 0, 2).index));
  CHECK(first_of(found).ends_with("reads 'w0' without 2 of the updates before its own; the header declares 1"));
  made.schedule.staleness = 3;
  CHECK(first_of(made.judged()) == "the header declares that 3 updates are not read, but 2 are at most");
}

TEST_CASE("headers of updates within an iteration that cannot be", "[versions]") {
  Made made = made_with(stashed, 2, 4);
  SECTION("groups that do not divide the micro-batches") {
    made.schedule.updates.every = 3;
    CHECK(first_of(made.judged()) == "an update every 3 micro-batches does not take 4");
  }
  SECTION("nothing said of groups") {
    made.schedule.updates.every = 0;
    CHECK(first_of(made.judged()) == "an update every 0 micro-batches does not take 4");
  }
  SECTION("synchronous") {
    made.schedule.updates.versions = Versions::synchronous;
    CHECK(first_of(made.judged()).starts_with("the header states what only updates within an iteration have"));
  }
  SECTION("gradients from the start") {
    made.schedule.gradients = Gradients::existing;
    CHECK(first_of(made.judged()).starts_with("gradients that exist from the start"));
  }
  CHECK(reports(made.judged(), Rule::malformed));
}

TEST_CASE("an update within an iteration that is left out, made twice or of another one's gradients", "[versions]") {
  Made made = made_with({Versions::stashed, 2}, 2, 6);
  const StepId update = made.step(Phase::update, 1, 1);
  SECTION("its number is another's") {
    made.schedule.steps[update.index].micro_batch = 0;
    const std::vector<Violation> found = made.judged();
    CHECK(reports(found, Rule::repeated, update.index));
    CHECK(reports(found, Rule::wrong_value, update.index));
    CHECK(reports(found, Rule::incomplete));
  }
  SECTION("every micro-batch makes one") {
    made.schedule.updates.every = 1;
    CHECK(!made.judged().empty());
  }
  SECTION("it has a contribution too many") {
    const StepId first = made.step(Phase::backward, 0, 2);
    Step &earlier = made.schedule.steps[made.step(Phase::update, 0, 0).index], &adds = made.schedule.steps[first.index];
    const BufferId taken = made.of_kind(TensorKind::parameter_gradient, earlier.frees);
    made.take_out(earlier.frees, taken);
    made.take_out(adds.allocates, made.of_kind(TensorKind::parameter_gradient, adds.allocates));
    made.put_in(adds.writes, taken);
    const std::vector<Violation> found = made.judged();
    CHECK(reports(found, Rule::wrong_value, first.index, taken));
    CHECK(first_of(found).find("adds to what update 0 takes, in") != std::string::npos);
  }
}

// f and b of each micro-batch, and an update behind each; then what the first update has taken is added to what the
// second one takes.
TEST_CASE("a gradient that one update has taken may not be added to what the next one takes", "[versions]") {
  const Graph graph = small_graph();
  const auto found_with = [&](bool adds, bool back) {
    ScheduleBuilder builder;
    const StreamId compute = builder.stream(DeviceId{0}, way::compute);
    const auto buffer = [&](TensorId t, std::uint32_t micro_batch) {
      return builder.buffer({.tensor = t, .micro_batch = micro_batch, .memory = MemoryId{0}, .bytes = Bytes{8}});
    };
    const BufferId weight = buffer(Draft::w, 0);
    builder.resident(weight);
    std::vector<BufferId> gradients;
    for (const std::uint32_t m : {0U, 1U}) {
      const BufferId x = buffer(Draft::x, m), a = buffer(Draft::a, m), g = buffer(Draft::g, 0);
      gradients.push_back(g);
      const auto run = [&](StepKind kind, OpId op, double seconds) {
        return NewStep{.kind = kind, .stream = compute, .op = op, .micro_batch = m, .work = {.seconds = {seconds}}};
      };
      NewStep forward = run(StepKind::forward, Draft::f, 1), backward = run(StepKind::backward, Draft::b, 2),
              update = run(StepKind::update, Draft::update, 1);
      forward.reads = {weight};
      forward.allocates = {x, a};
      backward.reads = {a, x};
      backward.allocates = {g};
      update.reads = {g};
      update.writes = {weight};
      builder.add(forward);
      builder.add(backward);
      if (adds && m == 1) {
        const BufferId from = gradients[back ? 1 : 0], to = gradients[back ? 0 : 1];
        builder.add({.kind = StepKind::pack, .stream = compute, .reads = {from}, .writes = {to}});
      }
      builder.add(update);
    }
    Schedule made = builder.finish();
    made.micro_batches = 2;
    made.updates = stashed;
    const auto why = [&](const Violation& v) {
      return v.what.find("adds what another update takes to") != std::string::npos;
    };
    const std::vector<Violation> found = check(made, graph, gpus({}));
    if (!adds) CHECK(first_of(found) == "legal");
    return std::ranges::count_if(found, why);
  };
  CHECK(found_with(false, false) == 0);
  CHECK(found_with(true, false) == 1);
  CHECK(found_with(true, true) == 1);
}

TEST_CASE("a packed form of the newest version is not what the next iteration begins with", "[versions]") {
  Graph graph = small_graph();
  graph.tensors[Draft::w.index].shape = {2};
  ScheduleBuilder builder;
  const StreamId compute = builder.stream(DeviceId{0}, way::compute);
  const auto buffer = [&](TensorId t) { return builder.buffer({.tensor = t, .bytes = Bytes{8}}); };
  const BufferId weight = buffer(Draft::w), newer = buffer(Draft::w), x = buffer(Draft::x), a = buffer(Draft::a),
                 g = buffer(Draft::g);
  const BufferId packed = builder.buffer(
      {.tensor = Draft::w, .bytes = Bytes{2}, .range_length = Bytes{8}, .codec = CodecId{0}, .lossy = true});
  builder.resident(weight);
  const auto op = [&](StepKind kind, OpId id, double seconds, std::vector<BufferId> reads,
                      std::vector<BufferId> makes) {
    builder.add({.kind = kind,
                 .stream = compute,
                 .op = id,
                 .work = {.seconds = Seconds{seconds}},
                 .reads = std::move(reads),
                 .allocates = std::move(makes)});
  };
  op(StepKind::forward, Draft::f, 1, {weight}, {x, a});
  op(StepKind::backward, Draft::b, 2, {a, x}, {g});
  op(StepKind::update, Draft::update, 1, {weight, g}, {newer});
  builder.add({.kind = StepKind::pack, .stream = compute, .reads = {newer}, .allocates = {packed}});
  Schedule made = builder.finish();
  made.updates = stashed;
  made.codecs = {{.kind = CodecKind::quantize, .bits = 8}};
  CHECK(!reports(check(made, graph, gpus({})), Rule::incomplete));
  made.steps[3].frees = {static_cast<std::uint32_t>(made.buffer_list.size()), 1};
  made.buffer_list.push_back(newer);
  CHECK(reports(check(made, graph, gpus({})), Rule::incomplete, {}, weight));
}

TEST_CASE("a version that is freed too early, or the newest one, is not there when it is read", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  const StepId last = made.step(Phase::backward, 0, 5), before = made.step(Phase::forward, 0, 6);
  const BufferId version = made.parameter(last);
  made.take_out(made.schedule.steps[last.index].frees, version);
  made.put_in(made.schedule.steps[before.index].frees, version);
  CHECK(reports(made.judged(), Rule::not_resident, last.index, version));
}

TEST_CASE("an older version in place of the newest one is not what the next iteration begins with", "[versions]") {
  Made made = made_with(stashed, 3, 8);
  const StepId last_reader = made.step(Phase::backward, 0, 7), last = made.step(Phase::update, 0, 7);
  const BufferId older = made.of_kind(TensorKind::parameter, made.schedule.steps[last_reader.index].frees);
  const BufferId newest = made.of_kind(TensorKind::parameter, made.schedule.steps[last.index].writes);
  made.take_out(made.schedule.steps[last_reader.index].frees, older);
  CHECK(first_of(made.judged()) == "legal");  // it only takes room
  made.put_in(made.schedule.steps[last.index].frees, newest);
  CHECK(reports(made.judged(), Rule::incomplete));
}

TEST_CASE("no bound counts what leaves with an update within an iteration", "[versions]") {
  const Made made = made_with(stashed, 1, 4), once = made_with({}, 1, 4);
  CHECK(stays_in(once.schedule, once.problem.graph, once.problem.platform) == Stays::all);
  CHECK(stays_in(made.schedule, made.problem.graph, made.problem.platform) == Stays::parameters);
}

TEST_CASE("lowering refuses versions of what two parts use, or a tape moves", "[versions]") {
  const auto refusal = [](bool shares, bool moves) -> std::string {
    Chain chain = trained_chain(2);
    if (shares) chain.stages[1].parameters = {0};
    const Problem problem = problem_of(chain, gpus({.count = 2, .adam = BytesPerSecond{8}}),
                                       {.micro_batches = 4, .optimizer = Optimizer::sgd});
    Partition partition = one_forward_one_backward(problem, {0, 1});
    partition.updates = stashed;
    std::vector<Tape> tapes{plain_tape_of(problem, partition, 0), plain_tape_of(problem, partition, 1)};
    if (moves) tapes[0].homes = {{problem.graph.ops.back().inputs[0], {place::host}}};
    const std::variant<Schedule, std::string> made = lower(problem, partition, tapes);
    const auto* why = std::get_if<std::string>(&made);
    return why == nullptr ? "nothing" : *why;
  };
  CHECK(refusal(false, false) == "nothing");
  CHECK(refusal(true, false) ==
        "two parts of the pipeline use 'w0': updates within an iteration need parameters that one part alone uses");
  CHECK(refusal(false, true) ==
        "updates within an iteration run on the device, and a tape keeps or updates parameters, gradients or states "
        "elsewhere");
}

}  // namespace
}  // namespace plimsoll
