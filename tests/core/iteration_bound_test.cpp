// Bounds by cuts at an instant, against all schedules of tiny graphs, and by hand.

#include "sim/bound/iteration_bound.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "sim/bound/bound_prices.h"
#include "sim/bound/snapshot_cut.h"
#include "sim/bound/snapshot_model.h"
#include "tests/core/bound_oracle.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

std::vector<OpId> all_ops(const Problem& problem) {
  std::vector<OpId> all;
  for (std::uint32_t o = 0; o < problem.graph.ops.size(); ++o) all.push_back({o});
  return all;
}

std::vector<SnapshotCut> front_at(const SnapshotModel& model, OpId op) {
  return SnapshotCuts(model, instant_at(model, op)).front();
}

/// Kept and counted bytes of all cuts at all ops, and a byte less.
std::set<std::int64_t> bends_of(const Problem& problem) {
  const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
  std::set<std::int64_t> budgets;
  for (const OpId op : all_ops(problem)) {
    if (!model.ops[op.index].is_there) continue;
    const Bytes fixed = instant_at(model, op).bytes;
    for (const SnapshotCut& cut : front_at(model, op)) {
      budgets.insert((fixed + cut.kept_bytes).count);
      budgets.insert((fixed + cut.kept_bytes).count - 1);
    }
  }
  return budgets;
}

TEST_CASE("no schedule of a tiny graph is faster than the bound, at any bend and a byte below", "[bound][property]") {
  std::uint32_t points = 0, repeating = 0, tight = 0;
  for (const RandomCase seed : fewer_cases(1, 660)) {
    constexpr std::uint64_t widest = 572;  // 80 s of trying, with sanitizers
    if (seed == widest && !all_cases()) continue;
    const ProblemOptions options{.gradients = seed % 3 == 0 ? Gradients::existing : Gradients::fresh};
    const Problem problem = problem_of(tiny_graph(seed, 5 + static_cast<std::uint32_t>(seed % 3)), gpus({}), options);
    IterationBounds bounds(problem, DeviceId{0});
    const IterationBound once = bounds.within(std::nullopt);
    for (const std::int64_t budget : bends_of(problem)) {
      const IterationBound bound = bounds.within(Bytes{budget}, all_ops(problem));
      const std::optional<double> fastest = fastest_by_trying(problem, budget);
      CAPTURE(seed, budget, bound.time.value, fastest.value_or(-1));
      if (bound.needs) {
        REQUIRE(!fastest);
        REQUIRE(bound.needs->count > budget);
      }
      if (!fastest) continue;
      ++points;
      REQUIRE(bound.time.value <= *fastest + 1e-9);
      if (*fastest <= once.time.value) continue;
      ++repeating;
      tight += bound.time.value >= *fastest - 1e-6 ? 1 : 0;
    }
  }
  CAPTURE(points, repeating, tight);
  if (!all_cases()) return;
  CHECK(points > cases_of(600U));
  CHECK(repeating > cases_of(200U));
  CHECK(tight > cases_of(44U));  // where the best trades of bytes for time are just affordable
}

TEST_CASE("no schedule of a tiny graph is faster than the bound of whole values, and it is no weaker",
          "[bound][property]") {
  std::uint32_t higher = 0, optimal = 0;
  for (const RandomCase seed : fewer_cases(1, 150)) {
    const Problem problem = problem_of(tiny_graph(seed, 5 + static_cast<std::uint32_t>(seed % 3)), gpus({}));
    IterationBounds bounds(problem, DeviceId{0});
    for (const std::int64_t budget : bends_of(problem)) {
      const IterationBound whole = bounds.within_whole_values(Bytes{budget});
      const IterationBound cut = bounds.within(Bytes{budget}, all_ops(problem));
      const std::optional<double> fastest = fastest_by_trying(problem, budget);
      CAPTURE(seed, budget, whole.time.value, fastest.value_or(-1));
      REQUIRE(whole.needs == cut.needs);
      if (whole.needs) continue;
      REQUIRE(whole.time >= cut.time);
      REQUIRE(bounds.within_whole_values(Bytes{budget}, 2).time <= whole.time);
      if (!fastest) continue;
      REQUIRE(whole.time.value <= *fastest + 1e-9);
      higher += whole.time.value > cut.time.value + 1e-6 ? 1 : 0;
      optimal += whole.time.value >= *fastest - 1e-6 ? 1 : 0;
    }
  }
  CAPTURE(higher, optimal);
  if (!all_cases()) return;
  CHECK(higher > cases_of(20U));
  CHECK(optimal > cases_of(60U));
}

TEST_CASE("a cut costs its flow, and all that runs after the instant finds what it reads", "[bound][property]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    const Problem problem = problem_of(random_graph(seed, 12), gpus({}));
    const BytesPerSecond out{seed % 2 == 0 ? 0.0 : 3.0};
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.out = out, .one_call = false});
    const OpId op{static_cast<std::uint32_t>(seed % problem.graph.ops.size())};
    if (!model.ops[op.index].is_there) continue;
    SnapshotCuts cuts(model, instant_at(model, op));
    const Instant& instant = cuts.instant();
    double weight = 1e18;
    for (const SnapshotCut& cut : cuts.front()) {
      CAPTURE(seed, cut.price);
      REQUIRE(cut.weight < weight);
      weight = cut.weight;
      if (cut.price > 0) REQUIRE(cut.value == Approx(cut.extra.value + cut.price * cut.weight).epsilon(1e-9));
      Bytes kept;
      Seconds extra;
      for (std::size_t v = 0; v < model.values.size(); ++v) kept += cut.kept[v] ? model.values[v].bytes : Bytes{0};
      for (std::size_t o = 0; o < model.ops.size(); ++o) {
        if (cut.again[o]) extra += model.ops[o].again;
        if (cut.again[o]) REQUIRE(!model.ops[o].once);
        if (instant.side[o] == Side::after) REQUIRE((cut.runs[o] || model.ops[o].reads.empty()));
        if (!cut.runs[o]) continue;
        for (const std::uint32_t v : model.ops[o].reads) {
          const std::optional<std::uint32_t> maker = model.values[v].maker;
          const bool made = maker && (cut.runs[*maker] || instant.side[*maker] == Side::itself ||
                                      instant.side[*maker] == Side::after);
          const auto has_run = [&](std::uint32_t r) { return instant.side[r] == Side::before; };
          const bool comes = !maker && std::ranges::none_of(model.values[v].readers, has_run);
          REQUIRE((cut.kept[v] || instant.counted[v] || made || comes));
        }
      }
      CHECK(kept == cut.kept_bytes);
      CHECK(extra.value == Approx(cut.extra.value));
    }
  }
}

TEST_CASE("the bound falls with the budget and the links, to all ops once at plain training's peak", "[bound]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    const Problem problem = problem_of(random_graph(seed, 10), gpus({}));
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    Bytes most;
    for (const OpId op : all_ops(problem)) {
      if (!model.ops[op.index].is_there) continue;
      SnapshotCuts cuts(model, instant_at(model, op));
      most = std::max(most, cuts.instant().bytes + cuts.at(0).kept_bytes);
    }
    std::vector<std::vector<double>> times;  // by link, by budget
    for (const double out : {0.0, 1.0, 3.0, 10.0}) {
      IterationBounds bounds(problem, DeviceId{0}, {.out = {out}});
      times.emplace_back();
      for (std::int64_t tenth = 1; tenth <= 10; ++tenth) {
        const IterationBound bound = bounds.within(Bytes{most.count * tenth / 10}, all_ops(problem));
        CAPTURE(seed, out, tenth);
        times.back().push_back(bound.needs ? 1e9 : bound.time.value);
        if (tenth > 1) CHECK(times.back()[tenth - 1] <= times.back()[tenth - 2] * (1 + 1e-9));
        if (out > 0) CHECK(times.back().back() <= times[times.size() - 2][tenth - 1] * (1 + 1e-9));
      }
      CHECK(times.back().back() == model.base.value);
    }
  }
}

/// a (10 B, 2 s) is read by b (4 B, 3 s) and the last backward; a loss (1 B, 1 s) and two backwards (1 B, 1 s each).
Graph worked_graph(std::int64_t byte = 1) {
  Graph graph;
  graph.name = "worked";
  const auto add = [&](const char* name, Phase phase, std::int64_t bytes, double seconds, std::vector<TensorId> reads) {
    const TensorKind kind = phase == Phase::forward ? TensorKind::activation : TensorKind::gradient;
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{bytes * byte}, .storage = id_at<StorageId>(graph.storages++)});
    const TensorId made = id_at<TensorId>(graph.tensors.size() - 1);
    graph.ops.push_back(
        {.name = name, .phase = phase, .duration = Seconds{seconds}, .inputs = std::move(reads), .outputs = {made}});
    return made;
  };
  const TensorId a = add("a", Phase::forward, 10, 2, {});
  const TensorId b = add("b", Phase::forward, 4, 3, {a});
  const TensorId loss = add("loss", Phase::forward, 1, 1, {b});
  const TensorId g = add("g", Phase::backward, 1, 1, {loss, b});
  add("h", Phase::backward, 1, 1, {g, a});
  return graph;
}

/// Of plain training in one call of autograd: by op what is live, each storage from its maker, or the start, to its
/// last reader, parameters and their gradients to the end.
Bytes peak_of_one_call(const Problem& problem) {
  const Graph& graph = problem.graph;
  std::vector<std::size_t> first(graph.storages, graph.ops.size()), last(graph.storages, 0);
  std::vector<Bytes> bytes(graph.storages);
  for (const Tensor& tensor : graph.tensors) {
    const std::size_t s = tensor.storage.index;
    bytes[s] = tensor.bytes;
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::input) first[s] = 0;
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient)
      last[s] = graph.ops.size();
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      first[graph[t].storage.index] = std::min(first[graph[t].storage.index], o);
      last[graph[t].storage.index] = std::max(last[graph[t].storage.index], o);
    }
    for (const TensorId t : graph.ops[o].inputs)
      last[graph[t].storage.index] = std::max(last[graph[t].storage.index], o);
  }
  Bytes peak;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    Bytes live = op.released_workspace.value_or(op.workspace);
    for (std::size_t s = 0; s < graph.storages; ++s) live += first[s] <= o && o <= last[s] ? bytes[s] : Bytes{0};
    peak = std::max(peak, live);
  }
  return peak;
}

TEST_CASE("where plain training in one call fits, no bound is above its time", "[bound][property]") {
  for (const RandomCase seed : fewer_cases(1, 660)) {
    Random random(seed);
    Chain chain = random_small_chain(seed, random.between(2, 6));
    const Seconds stages = all_alone(chain);
    chain.plain = PlainTraining{0.75 * stages, stages};
    const Problem problem = problem_of(std::move(chain), gpus({}), {});
    const Bytes peak = peak_of_one_call(problem);
    CAPTURE(seed, peak.count);
    IterationBounds bounds(problem, DeviceId{0});
    const double one_call = 0.75 * stages.value * (1 + 1e-12);
    CHECK(bounds.within(peak).time.value <= one_call);
    CHECK(bounds.within(peak, all_ops(problem)).time.value <= one_call);
  }
}

TEST_CASE("a bound by hand", "[bound]") {
  const Problem problem = problem_of(worked_graph(), gpus({}));
  IterationBounds bounds(problem, DeviceId{0});
  CHECK(bounds.within(std::nullopt).time == Seconds{8});
  CHECK(bounds.within(Bytes{16}).time == Seconds{8});
  // Of the 16 bytes when g begins, 10 are those of a, which 2 s make again: 0.2 s a byte.
  const IterationBound less = bounds.within(Bytes{15});
  CHECK(less.time.value == Approx(8.2));
  CHECK(less.price == Approx(0.2));
  CHECK(problem.graph[less.at.value()].name == "g");
  CHECK(bounds.within(Bytes{6}).time.value == Approx(10));
  const IterationBound none = bounds.within(Bytes{5});
  CHECK(none.needs == Bytes{6});
  CHECK(problem.graph[none.at.value()].name == "g");

  const Problem thrice = problem_of(worked_graph(), gpus({}), {.micro_batches = 3});
  CHECK(IterationBounds(thrice, DeviceId{0}).within(Bytes{15}).time.value == Approx(24.6));
}

TEST_CASE("what can leave while ops run need not be kept", "[bound]") {
  const Problem problem = problem_of(worked_graph(), gpus({.to_host = BytesPerSecond{1}}));
  CHECK(ways_out(problem.platform, DeviceId{0}) == BytesPerSecond{1});
  IterationBounds bounds(problem, DeviceId{0}, {.out = ways_out(problem.platform, DeviceId{0})});
  CHECK(bounds.within(Bytes{10}).time.value == Approx(8));  // a, b and the loss take 6 s before g
  CHECK(bounds.within(Bytes{9}).time.value == Approx(8.2));
  CHECK(bounds.within_whole_values(Bytes{9}).time.value == Approx(8.2));  // parts of values may leave
  Graph with_other = worked_graph();  // an op of 3 s beside them, whose byte the last one reads
  with_other.tensors.push_back({.name = "n", .bytes = Bytes{1}, .storage = id_at<StorageId>(with_other.storages++)});
  const TensorId other = id_at<TensorId>(with_other.tensors.size() - 1);
  with_other.ops.insert(with_other.ops.begin(), {.name = "n", .duration = Seconds{3}, .outputs = {other}});
  with_other.ops.back().inputs.push_back(other);
  const Problem beside = problem_of(with_other, gpus({.to_host = BytesPerSecond{1}}));
  IterationBounds beside_bounds(beside, DeviceId{0}, {.out = {1}});
  CHECK(beside_bounds.within(Bytes{8}).time.value == Approx(11));  // 9 s before g
  CHECK(beside_bounds.within(Bytes{7}).time.value == Approx(11.2));
  CHECK(IterationBounds(beside, DeviceId{0}).within(Bytes{16}).time == Seconds{11});  // it may run after g

  const Platform with_disk = gpus({.to_host = BytesPerSecond{4}, .to_disk = BytesPerSecond{2}});
  CHECK(ways_out(with_disk, DeviceId{0}) == BytesPerSecond{4});  // the disk lies behind the host
  CHECK(ways_out(gpus({}), DeviceId{0}) == unlimited_bandwidth);
}

TEST_CASE("tied storages, versions in place and packed forms are counted as they are kept", "[bound]") {
  Graph graph = worked_graph();
  graph.tensors.push_back(
      {.name = "a, tied", .kind = TensorKind::activation, .bytes = Bytes{10}, .storage = graph.tensors[0].storage});
  graph.ops[0].outputs.push_back(id_at<TensorId>(graph.tensors.size() - 1));
  graph.ops[4].inputs.push_back(id_at<TensorId>(graph.tensors.size() - 1));  // reads both names of one storage
  const Problem tied = problem_of(graph, gpus({}));
  CHECK(IterationBounds(tied, DeviceId{0}).within(Bytes{16}).time == Seconds{8});
  CHECK(IterationBounds(tied, DeviceId{0}).within(Bytes{15}).time.value == Approx(8.2));

  Graph in_place = worked_graph();
  in_place.tensors[2].storage = in_place.tensors[1].storage;  // the loss overwrites b
  in_place.tensors[2].bytes = Bytes{4};
  in_place.ops[2].mutates = {TensorId{1}};
  in_place.ops[3].inputs = {TensorId{2}};
  const Problem overwriting = problem_of(in_place, gpus({}));
  const SnapshotModel model = snapshot_model(overwriting, DeviceId{0});
  CHECK(instant_at(model, OpId{2}).bytes == Bytes{4});
  CHECK(IterationBounds(overwriting, DeviceId{0}).within(Bytes{15}).time == Seconds{8});
  CHECK(IterationBounds(overwriting, DeviceId{0}).within(Bytes{14}).time.value == Approx(8.2));
}

TEST_CASE("an op that saves may have run without saving, and others have read the rest", "[bound]") {
  Graph graph;
  graph.name = "saving";
  for (const std::int64_t bytes : {10, 1, 5, 1, 1}) {
    graph.tensors.push_back({.name = "t", .bytes = Bytes{bytes}, .storage = id_at<StorageId>(graph.storages++)});
  }
  const TensorId v{0}, x{1}, saved{2}, y{3}, g{4};
  graph.ops = {
      {.name = "v", .duration = Seconds{2}, .outputs = {v}},
      {.name = "c", .duration = Seconds{1}, .nograd_duration = Seconds{0}, .outputs = {x, saved}, .saved = {saved}},
      {.name = "e", .duration = Seconds{1}, .inputs = {v, x}, .outputs = {y}},
      {.name = "g", .phase = Phase::backward, .duration = Seconds{1}, .inputs = {y, saved}, .outputs = {g}}};
  const Problem problem = problem_of(graph, gpus({}));
  // Within 15 bytes c saves after e, for which it has run without.
  CHECK(fastest_by_trying(problem, 15) == 5.0);
  CHECK(IterationBounds(problem, DeviceId{0}).within(Bytes{15}, all_ops(problem)).time == Seconds{5});
}

TEST_CASE("without a backward the instant is where plain training is fullest", "[bound]") {
  const Problem problem = problem_of(row_of_ops(4), gpus({}));
  const IterationBound bound = IterationBounds(problem, DeviceId{0}).within(Bytes{8});
  CHECK(bound.time == Seconds{4});
  CHECK(problem.graph[bound.at.value()].name == "o0");
  CHECK(IterationBounds(problem, DeviceId{0}).within(Bytes{7}).needs == Bytes{8});
}

TEST_CASE("nobody waits for the update of a parameter, and updates hand values on, by hand", "[bound]") {
  Graph graph;
  graph.name = "clipped";
  const auto add = [&](const char* name, TensorKind kind, std::int64_t bytes) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{bytes}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = add("x", TensorKind::input, 4), w = add("w", TensorKind::parameter, 8);
  const TensorId y = add("y", TensorKind::activation, 4), dw = add("dw", TensorKind::parameter_gradient, 8);
  const TensorId norm = add("norm", TensorKind::activation, 4);
  const auto run = [&](const char* name, Phase phase, std::vector<TensorId> reads, TensorId makes) {
    graph.ops.push_back(
        {.name = name, .phase = phase, .duration = Seconds{1}, .inputs = std::move(reads), .outputs = {makes}});
  };
  run("forward", Phase::forward, {x, w}, y);
  run("backward", Phase::backward, {y, x}, dw);
  run("norm", Phase::update, {dw}, norm);
  run("step", Phase::update, {dw, norm}, w);
  const Problem problem = problem_of(graph, gpus({}));
  IterationBounds bounds(problem, DeviceId{0});
  CHECK(bounds.within(std::nullopt).time == Seconds{4});
  CHECK(bounds.within(Bytes{24}).time == Seconds{4});
  CHECK(bounds.within(Bytes{23}).needs == Bytes{24});  // x, w, y and dw
}

TEST_CASE("what more memory, links and a faster host save, by hand", "[bound][prices]") {
  constexpr std::int64_t gb = 1'000'000'000;
  const auto saves = [&](const Platform& platform, std::int64_t budget, bool copies) {
    const Problem problem = problem_of(worked_graph(gb), platform);
    const BytesPerSecond out = copies ? ways_out(platform, DeviceId{0}) : BytesPerSecond{};
    return bound_prices(problem, DeviceId{0}, {.out = out}, Bytes{budget});
  };
  const Platform slow_link = gpus({.to_host = BytesPerSecond{1e9}});
  CHECK(saves(slow_link, 15 * gb, false).memory.value == Approx(0.2));      // a makes 10 GB again in 2 s
  CHECK(saves(slow_link, 31 * gb / 2, false).memory.value == Approx(0.1));  // half a GB more is enough
  CHECK(saves(slow_link, 16 * gb, false).memory == Seconds{0});
  CHECK(!saves(slow_link, 15 * gb, false).links);
  CHECK(!saves(slow_link, 15 * gb, false).host);
  CHECK(saves(slow_link, 9 * gb, true).memory.value == Approx(0.2));
  CHECK(saves(slow_link, 9 * gb, true).links->value == Approx(0.2));
  CHECK(saves(slow_link, 16 * gb, true).links == Seconds{0});  // all fits: nothing leaves
  CHECK(!saves(slow_link, 9 * gb, true).host);

  Platform slow_host = slow_link;
  slow_host.memories[1].bandwidth = BytesPerSecond{0.5e9};
  CHECK(ways_out(slow_host, DeviceId{0}) == BytesPerSecond{0.5e9});
  CHECK(saves(slow_host, 10 * gb, true).host->value == Approx(0.6));  // 3 GB more leave in the 6 s before g
  CHECK(saves(slow_host, 10 * gb, true).links == Seconds{0});
  const Platform slow_uplink = gpus({.to_host = BytesPerSecond{4}, .uplink = BytesPerSecond{2}});
  CHECK(ways_out(slow_uplink, DeviceId{0}) == BytesPerSecond{2});
}

TEST_CASE("the budgets at which other cuts are the best, by hand", "[bound][prices]") {
  const Problem problem = problem_of(worked_graph(), gpus({}));
  IterationBounds bounds(problem, DeviceId{0});
  const auto is_of_a = [&](const std::optional<BoundBend>& bend) {
    REQUIRE(bend);
    CHECK(bend->budget == Bytes{16});
    CHECK(bend->flip == Flip::repeats);
    CHECK(bend->ops == std::vector{OpId{0}});
    CHECK(bend->time.value == Approx(2));
    CHECK(bend->bytes == Bytes{10});
    CHECK(problem.graph[bend->at.value()].name == "g");
  };
  is_of_a(bounds.bends(Bytes{15}).above);
  is_of_a(bounds.bends(Bytes{16}).below);
  is_of_a(bounds.bends(Bytes{1000}).below);
  CHECK(!bounds.bends(Bytes{16}).above);
  const BoundBends least = bounds.bends(Bytes{13});  // b reads 10 and makes 4
  CHECK(!least.below);
  CHECK(least.above->flip == Flip::nothing);
  CHECK(bounds.bends(Bytes{15}).below->flip == Flip::nothing);
  CHECK(bounds.bends(Bytes{15}).below->budget == Bytes{14});
  CHECK(problem.graph[bounds.bends(Bytes{15}).below->at.value()].name == "b");

  // Where half a byte a second leaves, 3 leave before g, and less memory than 13 bytes is for no schedule.
  IterationBounds copying(problem, DeviceId{0}, {.out = {0.5}});
  CHECK(copying.bends(Bytes{14}).below->budget == Bytes{14});
  CHECK(!copying.bends(Bytes{14}).above);
}

TEST_CASE("a price is the bound's slope, falls as memory grows, and changes at the bends of the front only",
          "[bound][prices][property]") {
  std::uint32_t sloping = 0, bends_seen = 0;
  for (const RandomCase seed : fewer_cases(1, 200)) {
    const Problem problem = problem_of(random_graph(seed, 10), gpus({}));
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    const Bytes least = lower_bounds(problem, 1).memory;
    IterationBounds bounds(problem, DeviceId{0});
    const Seconds once = bounds.within(std::nullopt).time;
    double price = 1e18;
    for (const std::int64_t budget : bends_of(problem)) {
      const IterationBound here = bounds.within(Bytes{budget}), more = bounds.within(Bytes{budget + 1}),
                           less = bounds.within(Bytes{budget - 1});
      if (here.needs || here.time <= once) continue;
      CAPTURE(seed, budget);
      const double gain = (here.time - more.time).value, loss = less.needs ? 1e18 : (less.time - here.time).value;
      REQUIRE(here.price >= gain - 1e-9);
      REQUIRE(here.price <= loss + 1e-9);
      REQUIRE(here.price <= price + 1e-9);
      price = here.price;
      if (loss - gain < 1e-9) ++sloping;

      const std::vector<SnapshotCut> front = front_at(model, *here.at);
      const Bytes fixed = instant_at(model, *here.at).bytes;
      const auto first_within =
          std::ranges::find_if(front, [&](const SnapshotCut& cut) { return fixed + cut.kept_bytes <= Bytes{budget}; });
      if (Bytes{budget} < least) continue;
      const BoundBends bends = bounds.bends(Bytes{budget});
      REQUIRE(first_within != front.end());
      REQUIRE(first_within != front.begin());
      const SnapshotCut& over = *(first_within - 1);
      REQUIRE(bends.above.has_value());
      REQUIRE(bends.above->budget == fixed + over.kept_bytes);
      REQUIRE(bends.above->time.value == Approx((first_within->extra - over.extra).value));
      REQUIRE(bends.above->bytes == over.kept_bytes - first_within->kept_bytes);
      REQUIRE(bends.below->budget == std::max(least, fixed + first_within->kept_bytes));
      ++bends_seen;
    }
  }
  if (!all_cases()) return;
  CHECK(sloping > 0);
  CHECK(bends_seen > cases_of(100U));
}

TEST_CASE("where values may leave, the bound is straight up to the bend above", "[bound][prices][property]") {
  std::uint32_t straight = 0;
  for (const RandomCase seed : fewer_cases(1, 100)) {
    const Problem problem = problem_of(random_graph(seed, 10), gpus({.to_host = BytesPerSecond{0.1}}));
    const Bytes least = lower_bounds(problem, 1).memory;
    const BoundRules rules{.out = ways_out(problem.platform, DeviceId{0})};
    IterationBounds bounds(problem, DeviceId{0}, rules);
    const Seconds once = bounds.within(std::nullopt).time;
    for (Bytes budget = least;; budget += Bytes{1}) {
      const IterationBound here = bounds.within(budget);
      if (here.time <= once) break;
      CAPTURE(seed, budget.count);
      const BoundBends bends = bounds.bends(budget);
      REQUIRE(bends.above->budget > budget);
      const IterationBound there = bounds.within(bends.above->budget);
      const double bytes = static_cast<double>((bends.above->budget - budget).count);
      const double line = here.time.value - here.price * bytes;
      REQUIRE(there.time.value >= line - 1e-9);
      if (there.at != here.at || there.time <= once) continue;
      REQUIRE(there.time.value <= line + here.price + 1e-9);  // bends lie at parts of bytes
      const BoundPrices prices = bound_prices(problem, DeviceId{0}, rules, budget);
      REQUIRE(prices.links.value() >= Seconds{0});
      REQUIRE(prices.memory >= Seconds{0});
      ++straight;
    }
  }
  CAPTURE(straight);
  if (all_cases()) CHECK(straight > cases_of(50U));
}

}  // namespace
}  // namespace plimsoll
