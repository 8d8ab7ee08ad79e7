// The forward in segments against all that may run again; versions of a storage that repairs make anew.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/snapshot/segment_plans.h"
#include "strategies/offloading/snapshot/sequence_memory.h"
#include "strategies/offloading/snapshot/snapshot_cuts.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Its plan in the given order, with what runs again right before it is needed.
SequenceMemory in_order(const OpModel& model, std::uint32_t instant, const Again& again) {
  Evicted evicted(model.values.size(), false);
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    if (!again[o]) continue;
    for (const std::uint32_t v : model.ops[o].ways.front().makes) evicted[v] = true;
  }
  return {model, recompute_order_at(model, evicted, instant).value()};
}

TEST_CASE("segments are never faster than the best that runs again, and mostly as fast", "[snapshot][property]") {
  std::size_t equal = 0, asked = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    const Problem problem = problem_of(random_small_chain(seed, random.between(3, 7)), gpus({}));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel model = op_model(task);
    const auto instant = static_cast<std::uint32_t>(last_forward(model));
    const SnapshotFront front(task, model, instant);
    const SegmentPlans segments(model, instant, front.bends());
    std::vector<SequenceMemory> all;
    for (std::uint32_t set = 0; set < 1U << instant; ++set) {
      Again again(model.ops.size(), false);
      for (std::uint32_t o = 0; o < instant; ++o) again[o] = (set >> o & 1U) != 0 && !model.ops[o].once;
      all.push_back(in_order(model, instant, again));
    }
    const std::int64_t most = all.front().peak().count;
    for (std::int64_t bytes = most - 1; bytes > most / 3; bytes -= std::max<std::int64_t>(most / 12, 1)) {
      CAPTURE(seed, bytes);
      double best = std::numeric_limits<double>::infinity();
      for (const SequenceMemory& each : all) {
        if (each.peak().count <= bytes) best = std::min(best, each.seconds().value);
      }
      if (best == std::numeric_limits<double>::infinity()) continue;
      ++asked;
      for (const bool from_kept : {true, false}) {
        const std::optional<Again> found = segments.within(Bytes{bytes}, from_kept);
        if (!found) continue;
        const SequenceMemory plan = in_order(model, instant, *found);
        if (plan.peak().count > bytes) continue;
        CHECK(plan.seconds().value * (1 + 1e-9) >= best);
        equal += plan.seconds().value <= best * (1 + 1e-9) ? 1 : 0;
        break;
      }
    }
  }
  CHECK(asked > 20);
  CHECK(equal * 10 >= asked * 7);
}

TEST_CASE("of an even chain segments run again as sums say", "[snapshot]") {
  const Problem problem = problem_of(even_chain(30), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const OpModel model = op_model(task);
  const auto instant = static_cast<std::uint32_t>(last_forward(model));
  const SnapshotFront front(task, model, instant);
  const SegmentPlans segments(model, instant, front.bends());
  double before = 0;
  std::size_t fitting = 0;
  for (std::int64_t bytes = 460; bytes >= 140; bytes -= 20) {
    CAPTURE(bytes);
    const std::optional<Again> found = segments.within(Bytes{bytes}, false);
    if (!found) continue;
    const SequenceMemory plan = in_order(model, instant, *found);
    CHECK(plan.peak() <= Bytes{bytes});
    CHECK(plan.seconds().value >= before);
    before = plan.seconds().value;
    ++fitting;
  }
  CHECK(fitting >= 12);
}

/// Cells in a row, each of which makes a value, overwrites it, and reads it for the next; the backward reads it again.
Graph cells_in_place(std::size_t cells) {
  Graph graph;
  graph.name = "cells";
  const auto tensor = [&](TensorKind kind, std::int64_t bytes, std::optional<TensorId> over = {}) {
    const StorageId storage = over ? graph[*over].storage : id_at<StorageId>(graph.storages++);
    graph.tensors.push_back({.name = "t", .kind = kind, .bytes = Bytes{bytes}, .storage = storage});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const auto op = [&](std::string name, Phase phase, std::vector<TensorId> reads, TensorId makes) -> Op& {
    graph.ops.push_back({.name = std::move(name),
                         .phase = phase,
                         .duration = Seconds{1},
                         .inputs = std::move(reads),
                         .outputs = {makes}});
    return graph.ops.back();
  };
  std::vector<TensorId> states, gates;
  states.push_back(tensor(TensorKind::activation, 10));
  op("first", Phase::forward, {}, states.back());
  for (std::size_t k = 0; k < cells; ++k) {
    const TensorId raw = tensor(TensorKind::activation, 100), gate = tensor(TensorKind::activation, 100, raw);
    op("makes" + std::to_string(k), Phase::forward, {states.back()}, raw);
    op("overwrites" + std::to_string(k), Phase::forward, {raw}, gate).mutates = {raw};
    states.push_back(tensor(TensorKind::activation, 10));
    op("reads" + std::to_string(k), Phase::forward, {gate}, states.back());
    gates.push_back(gate);
  }
  TensorId gradient = tensor(TensorKind::gradient, 10);
  op("loss", Phase::backward, {states.back()}, gradient);
  for (std::size_t k = cells; k-- > 0;) {
    const TensorId next = tensor(TensorKind::gradient, 10);
    op("back" + std::to_string(k), Phase::backward, {gradient, gates[k], states[k]}, next);
    gradient = next;
  }
  return graph;
}

TEST_CASE("repairs make values again that were overwritten in place, and leave these runs out again", "[snapshot]") {
  const Problem problem = problem_of(cells_in_place(6), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const OpModel model = op_model(task);
  SequenceMemory plain(model, store_all_ops(task));
  OpSequence sequence = store_all_ops(task);
  const Bytes budget{400};  // two cells run again
  REQUIRE(plain.peak() > budget);
  while (true) {
    const SequenceMemory memory(model, sequence);
    const std::optional<std::size_t> full = memory.fullest_above(budget);
    if (!full) break;
    const std::optional<OpSequence> changed = memory.cut_at(*full, budget);
    REQUIRE(changed);
    REQUIRE(is_runnable(model, *changed));
    sequence = *changed;
  }
  SequenceMemory repaired(model, sequence);
  CHECK(planned_ops(task, sequence).peak == repaired.peak());
  CHECK(repaired.seconds() > plain.seconds());
  const auto again = [&](const std::string& name) {
    return std::ranges::count_if(sequence, [&](const OpRun& run) { return problem.graph[run.op].name == name; }) > 1;
  };
  std::size_t overwritten = 0;
  for (std::size_t k = 0; k < 6; ++k) {
    CHECK(again("makes" + std::to_string(k)) == again("overwrites" + std::to_string(k)));
    overwritten += again("overwrites" + std::to_string(k)) ? 1 : 0;
  }
  CHECK(overwritten >= 2);
  repaired.leave_out(plain.peak());
  CHECK(repaired.sequence() == store_all_ops(task));
  CHECK(repaired.seconds().value == Approx(plain.seconds().value));
  CHECK(repaired.peak() == plain.peak());
}

/// An LSTM of one layer whose gates, states and backward are an op each, in half microseconds and KiB as large as those
/// of `unrolled_lstm` (docs/strategies/rematerialization/snapshot.md). `is_split`: products
/// with words are ops of their own, and words are a quarter as large.
Graph little_lstm(std::size_t steps, bool is_split = false) {
  Graph graph;
  graph.name = "lstm";
  const auto op = [&](std::string name, Phase phase, double time, std::vector<TensorId> reads,
                      std::vector<std::int64_t> makes) {
    std::vector<TensorId> outputs;
    for (const std::int64_t size : makes) {
      graph.tensors.push_back({.name = name,
                               .kind = phase == Phase::forward ? TensorKind::activation : TensorKind::gradient,
                               .bytes = Bytes{size * 1024},
                               .storage = id_at<StorageId>(graph.storages++)});
      outputs.push_back(id_at<TensorId>(graph.tensors.size() - 1));
    }
    graph.ops.push_back({.name = std::move(name),
                         .phase = phase,
                         .duration = Seconds{time},
                         .inputs = std::move(reads),
                         .outputs = outputs});
    return outputs;
  };
  const Phase forward = Phase::forward, backward = Phase::backward;
  const TensorId words =
      op("embedding", forward, 10, {}, {(is_split ? 64 : 256) * static_cast<std::int64_t>(steps)})[0];
  std::vector<TensorId> c{op("zeros", forward, 6, {}, {256})}, h{op("zeros", forward, 6, {}, {256})}, gates, tanh;
  for (std::size_t k = 0; k < steps; ++k) {
    const TensorId product = is_split ? op("product", forward, 24, {words}, {1024})[0] : words;
    gates.push_back(op("gates", forward, is_split ? 24 : 48, {product, h[k]}, {1024})[0]);
    c.push_back(op("cell", forward, 19, {gates[k], c[k]}, {256})[0]);
    tanh.push_back(op("tanh", forward, 6, {c[k + 1]}, {256})[0]);
    h.push_back(op("out", forward, 6, {gates[k], tanh[k]}, {256})[0]);
  }
  const TensorId logits = op("head", forward, 20, {h[steps]}, {500})[0];
  TensorId of_h = op("head backward", backward, 20, {logits}, {256})[0];
  std::optional<TensorId> of_c, sum;
  for (std::size_t k = steps; k-- > 0;) {
    std::vector<TensorId> reads{of_h, gates[k], tanh[k], c[k]};
    if (of_c) reads.push_back(*of_c);
    const std::vector<TensorId> of_cell = op("cell backward", backward, 60, reads, {1024, 256});
    of_c = of_cell[1];
    of_h = op("state gradient", backward, 10, {of_cell[0]}, {256})[0];
    const TensorId weight = op("weight gradient", backward, 16, {of_cell[0], h[k], words}, {1024})[0];
    sum = sum ? op("add", backward, 8, {*sum, weight}, {1024})[0] : weight;
  }
  op("update", backward, 6, {*sum, of_h, *of_c}, {1});
  return graph;
}

TEST_CASE("of a short LSTM bounds are below the optimum, and plans in the given order above it",
          "[snapshot][eleventh-10]") {
  const Problem problem = problem_of(little_lstm(3), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const Bytes budget{plain_training_peak({problem, partition, PartId{0}, 1}).count * 7 / 10};
  const auto planned = [&](const char* spec) {
    return std::get<Plan>(plan(problem, parse_spec(spec, "test"), budget));
  };
  const Plan best = planned("exact"), in_order = planned("checkmate"), found = planned("snapshot(offload=no)");
  REQUIRE(best.gap == 0);      // in any order
  REQUIRE(in_order.gap == 0);  // in the given one
  CHECK(best.makespan.value == Approx(649));
  CHECK(in_order.makespan.value == Approx(655));
  CHECK(found.makespan >= in_order.makespan);
  CHECK(found.makespan.value <= Approx(671));
  const double bound = found.makespan.value / (1 + found.gap.value());
  CHECK(bound <= best.makespan.value * (1 + 1e-9));
  CHECK(bound >= Approx(625));
}

TEST_CASE("of a long LSTM plans in an order of their own are nearer to the bound", "[snapshot][eleventh-6]") {
  const Problem problem = problem_of(little_lstm(64, true), gpus({}));
  REQUIRE(problem.graph.ops.size() > 400);  // no searches for few large values
  const Partition partition = one_device(problem.graph, 1, 1);
  const std::int64_t most = plain_training_peak({problem, partition, PartId{0}, 1}).count;
  for (const std::int64_t percent : {90, 70}) {
    CAPTURE(percent);
    const Bytes budget{most * percent / 100};
    const Plan own = std::get<Plan>(plan(problem, parse_spec("snapshot(offload=no)", "test"), budget)),
               given = std::get<Plan>(plan(problem, parse_spec("snapshot(offload=no, order=given)", "test"), budget));
    CHECK(own.peak <= budget);
    CHECK(own.makespan <= given.makespan);
    if (percent < 90) continue;
    CHECK(own.gap.value() < 0.005);
    CHECK(given.gap.value() > 1.4 * own.gap.value());
  }
}

}  // namespace
}  // namespace plimsoll
