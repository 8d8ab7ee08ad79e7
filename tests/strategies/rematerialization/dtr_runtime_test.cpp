// The runtime of dynamic tensor rematerialization against its paper's numbers and against the same rules by the letter.

#include <catch2/catch.hpp>

#include <cmath>

#include "strategies/rematerialization/dtr/dtr_banishing.h"
#include "strategies/rematerialization/dtr/dtr_runtime.h"
#include "tests/generate/dtr_oracle.h"
#include "tests/generate/op_logs.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

const std::vector<std::string> all_heuristics{"dtr", "dtr_eq", "local", "lru", "size", "msps"};

std::string name_of(DtrEnd end) {
  return end == DtrEnd::finished ? "finished" : end == DtrEnd::thrashing ? "thrashing" : "out of memory";
}

void check_equal(const OpLog& log, std::optional<std::int64_t> budget, const std::string& heuristic,
                 std::optional<std::int64_t> limit, bool banishing = false) {
  DtrOptions options;
  if (budget) options.budget = Bytes{*budget};
  options.heuristic = *from_name<DtrHeuristic>(heuristic);
  options.rematerialization_limit = limit;
  const DtrRun run = banishing ? run_dtr_banishing(log, options) : run_dtr(log, options);
  const OracleRun oracle = oracle_dtr(log, budget, heuristic, limit, banishing);
  INFO(log.name << (banishing ? ", banishing, " : ", ") << heuristic << ", budget " << budget.value_or(-1));
  REQUIRE(name_of(run.end) == oracle.end);
  REQUIRE(run.clock == oracle.clock);
  REQUIRE(run.evictions == oracle.evictions);
  REQUIRE(run.eager_evictions == oracle.eager_evictions);
  REQUIRE(run.rematerializations == oracle.rematerializations);
  REQUIRE(run.rematerialization_time == oracle.rematerialization_time);
  REQUIRE(run.peak.count == oracle.peak);
  std::vector<std::uint32_t> calls;
  calls.reserve(run.calls.size());
  for (const OpId op : run.calls) calls.push_back(op.index);
  REQUIRE(calls == oracle.calls);
}

TEST_CASE("a quotient of whole numbers is rounded once", "[dtr]") {
  CHECK(eviction_cost(1, 3, 1) == 1.0 / 3.0);
  CHECK(eviction_cost(0, 3, 1) == 0);
  CHECK(std::isinf(eviction_cost(1, 0, 1)));
  CHECK(std::isinf(eviction_cost(1, 3, 0)));
  CHECK(eviction_cost(-1, 2, 1) == -0.5);
  // 2^53 + 1 over 1 lies halfway between 2^53 and 2^53 + 2: to the even one.
  CHECK(eviction_cost((std::int64_t{1} << 53) + 1, 1, 1) == 0x1p53);
  CHECK(eviction_cost((std::int64_t{1} << 53) + 3, 1, 1) == 0x1p53 + 4);
  Random random(1);
  for (int k = 0; k < 5'000; ++k) {
    const auto number = [&](unsigned bits) {
      return static_cast<std::int64_t>(random.unit() * std::ldexp(1.0, static_cast<int>(random.between(1, bits)))) + 1;
    };
    const std::int64_t weight = number(60), bytes = number(45), staleness = number(55);
    INFO(weight << " / (" << bytes << " * " << staleness << ")");
    REQUIRE(eviction_cost(weight, bytes, staleness) == oracle_quotient(weight, bytes, staleness));
  }
}

TEST_CASE("on a uniform linear network of 400 layers within 2 sqrt(400) bytes DTR runs 1160 ops, LRU 5325", "[dtr]") {
  const OpLog log = linear_op_log(400);
  const auto ops = [&](DtrHeuristic h) {
    const DtrRun run = run_dtr(log, {.budget = Bytes{40}, .heuristic = h, .seed = 0, .rematerialization_limit = {}});
    CHECK(run.end == DtrEnd::finished);
    CHECK(run.peak <= Bytes{40});
    CHECK(run.clock == 1 + static_cast<std::int64_t>(run.calls.size()));
    return run.calls.size();
  };
  CHECK(ops(DtrHeuristic::dtr) == 1160);
  CHECK(ops(DtrHeuristic::lru) == 5325);
}

TEST_CASE("clock, evictions and rematerialisations follow the rules by the letter", "[dtr]") {
  const Views views = GENERATE(Views::of_several, Views::of_one);
  for (const RandomCase seed : fewer_cases(1, 200)) {
    const OpLog log = random_op_log(seed, 5 + seed / 2, seed % 2 == 0 ? 9 : 400'000'000, views);
    const DtrBaseline baseline = dtr_baseline(log);
    CHECK(baseline.memory.count == oracle_banishing_peak(log));
    for (const std::string& heuristic : all_heuristics) {
      check_equal(log, std::nullopt, heuristic, std::nullopt);
      for (const std::int64_t tenths : {9, 7, 5, 4}) {
        check_equal(log, baseline.memory.count * tenths / 10, heuristic, 4 * baseline.compute);
      }
    }
  }
}

struct KnownRun {
  std::string log;
  std::int64_t percent = 0, clock = 0, evictions = 0, rematerializations = 0;
};

// The numbers are those of an implementation that kept every neighbourhood as a set at every step. It took 14 s, 4 s
// and 6 s of CPU time for them; a search of whole neighbourhoods would again.
TEST_CASE("on long logs the neighbourhoods are those of sets kept at every step", "[dtr]") {
  const auto known =
      GENERATE(KnownRun{"dense", 50, 7134182912, 502, 502}, KnownRun{"recurrent", 25, 3067574835, 10475, 8477},
               KnownRun{"linear", 2, 36291, 12290, 12290});
  const OpLog log = known.log == "dense"    ? dense_op_log(9'700)
                    : known.log == "linear" ? linear_op_log(12'000)
                                            : recurrent_op_log(8'000);
  const DtrReplay replay =
      replay_dtr_log(log, Bytes{dtr_baseline(log).memory.count * known.percent / 100}, DtrHeuristic::dtr);
  INFO(known.log);
  CHECK(replay.run.clock == known.clock);
  CHECK(replay.run.evictions == known.evictions);
  CHECK(replay.run.rematerializations == known.rematerializations);
}

// Results not made yet and views that make an evicted storage dearer are rare: it takes many programs to meet them.
// The numbers, of all and of an eleventh, are those of the same implementation.
TEST_CASE("on longer random programs every decision is that of sets kept at every step", "[dtr][eleventh-6]") {
  std::uint64_t all = 0;
  for (const RandomCase seed : fewer_cases(1, 600)) {
    const Views views = seed % 4 == 0 ? Views::of_several : Views::of_one;
    const OpLog log = random_op_log(seed, 50 + seed, seed % 2 == 0 ? 9 : 400'000'000, views);
    const DtrBaseline baseline = dtr_baseline(log);
    for (const DtrHeuristic heuristic : {DtrHeuristic::dtr, DtrHeuristic::msps}) {
      for (const std::int64_t tenths : {8, 6, 5, 4, 3}) {
        const DtrRun run = run_dtr(log, {.budget = Bytes{baseline.memory.count * tenths / 10},
                                         .heuristic = heuristic,
                                         .seed = 0,
                                         .rematerialization_limit = 6 * baseline.compute});
        std::uint64_t hash = 14695981039346656037U;  // FNV-1a over the calls
        for (const OpId call : run.calls) hash = (hash ^ call.index) * 1099511628211U;
        all ^= hash;
      }
    }
  }
  if (all_cases()) CHECK(all == (every_case() ? 0x306B778D4820BEE8U : 0xD1D3C2D8DD0AFC77U));
}

TEST_CASE("the rules hold on logs with the shape of networks", "[dtr][eleventh-5]") {
  for (const OpLog& log : {dense_op_log(120), recurrent_op_log(150), linear_op_log(60)}) {
    const DtrBaseline baseline = dtr_baseline(log);
    for (const std::string& heuristic : all_heuristics) {
      for (const std::int64_t tenths : {8, 6, 5, 3}) {
        check_equal(log, baseline.memory.count * tenths / 10, heuristic, 2 * baseline.compute);
      }
    }
  }
}

TEST_CASE("banishing follows its rules by the letter, and without a budget peaks at the baseline", "[dtr]") {
  std::int64_t evictions = 0, banished = 0;
  const auto follow = [&](const OpLog& log) {
    const DtrBaseline baseline = dtr_baseline(log);
    const DtrRun free = run_dtr_banishing(
        log, {.budget = {}, .heuristic = DtrHeuristic::lru, .seed = 0, .rematerialization_limit = {}});
    CHECK(free.end == DtrEnd::finished);
    CHECK(free.peak == baseline.memory);
    for (const std::string heuristic : {"local", "lru", "size"}) {
      for (const std::int64_t tenths : {9, 7, 5, 4}) {
        check_equal(log, baseline.memory.count * tenths / 10, heuristic, 4 * baseline.compute, true);
      }
    }
    const DtrRun tight = run_dtr_banishing(log, {.budget = Bytes{baseline.memory.count * 7 / 10},
                                                 .heuristic = DtrHeuristic::local,
                                                 .seed = 0,
                                                 .rematerialization_limit = 4 * baseline.compute});
    CHECK(tight.peak <= Bytes{baseline.memory.count * 7 / 10});
    evictions += tight.evictions;
    banished += tight.eager_evictions;
  };
  for (const RandomCase seed : random_cases(1, 150)) follow(random_op_log(seed, 5 + seed / 2, 9));
  if (!all_cases()) return;
  for (const OpLog& log : {dense_op_log(120), recurrent_op_log(150), linear_op_log(60)}) follow(log);
  CHECK(evictions > 100);
  CHECK(banished > 100);
}

// a -> b -> c -> d of 1 byte and 1 ns each; only a is released, before c is made. With eager eviction b can be evicted
// for d, since a can be computed again. Banishing kills a for good, so b must stay and d finds no room in 2 bytes.
TEST_CASE("what was made of a banished storage stays", "[dtr]") {
  OpLog log;
  for (const char* name : {"a", "b", "c", "d"}) log.tensors.push_back({name, Bytes{1}, {}});
  for (std::uint32_t t = 0; t < 4; ++t) {
    LoggedCall call{.name = "f", .nanoseconds = 1, .workspace = {}, .arguments = {}, .results = {TensorId{t}}};
    if (t > 0) call.arguments = {TensorId{t - 1}};
    log.calls.push_back(call);
  }
  using enum OpLog::EventKind;
  log.events = {{call, 0}, {call, 1}, {release, 0}, {call, 2}, {call, 3}};
  const DtrOptions options{
      .budget = Bytes{2}, .heuristic = DtrHeuristic::lru, .seed = 0, .rematerialization_limit = {}};
  const DtrRun eager = run_dtr(log, options);
  CHECK(eager.end == DtrEnd::finished);
  CHECK(eager.evictions == 1);
  const DtrRun banishing = run_dtr_banishing(log, options);
  CHECK(banishing.end == DtrEnd::out_of_memory);
  CHECK(banishing.eager_evictions == 1);
  CHECK(banishing.clock == 4);
}

// Of b and c, evicted, only a knows; a is released. Then b is computed again, which nobody asks a for: what is needed
// next is d, which was used later than a, so a goes.
TEST_CASE("with banishing what nobody refers to does not count as used when it is read again", "[dtr]") {
  OpLog log;
  const auto add = [&](const char* name, std::vector<TensorId> arguments) {
    log.events.push_back({OpLog::EventKind::call, static_cast<std::uint32_t>(log.calls.size())});
    const auto t = id_at<TensorId>(log.tensors.size());
    log.tensors.push_back({name, Bytes{1}, {}});
    log.calls.push_back(
        {.name = "f", .nanoseconds = 1, .workspace = {}, .arguments = std::move(arguments), .results = {t}});
    return t;
  };
  const auto release = [&](TensorId t) { log.events.push_back({OpLog::EventKind::release, t.index}); };
  const TensorId a = add("a", {}), b = add("b", {a});
  add("c", {a});
  const TensorId d = add("d", {a});  // b goes
  release(add("e", {a}));            // c goes
  release(a);
  release(add("f", {d}));
  add("g", {b});  // b again, by a
  add("h", {d});
  for (const char* heuristic : {"lru", "local"}) check_equal(log, 3, heuristic, {}, true);
  const DtrRun run = run_dtr_banishing(
      log, {.budget = Bytes{3}, .heuristic = DtrHeuristic::lru, .seed = 0, .rematerialization_limit = {}});
  CHECK(run.end == DtrEnd::finished);
  CHECK(run.rematerializations == 1);
}

TEST_CASE("a replay stops where rematerialisation takes more than the baseline, and is the same each time", "[dtr]") {
  const OpLog log = linear_op_log(400);
  const DtrReplay lru = replay_dtr_log(log, Bytes{40}, DtrHeuristic::lru);
  CHECK(lru.baseline.compute == 800);
  CHECK(lru.run.end == DtrEnd::thrashing);
  CHECK(lru.run.rematerialization_time == 801);
  const DtrReplay dtr = replay_dtr_log(log, Bytes{40}, DtrHeuristic::dtr);
  CHECK(dtr.run.end == DtrEnd::finished);
  CHECK(dtr.overhead == 1161.0 / 800.0);
  const DtrReplay one = replay_dtr_log(log, Bytes{60}, DtrHeuristic::random, 1, 100);
  CHECK(one.run.calls == replay_dtr_log(log, Bytes{60}, DtrHeuristic::random, 1, 100).run.calls);
  CHECK(one.run.calls != replay_dtr_log(log, Bytes{60}, DtrHeuristic::random, 2, 100).run.calls);
}

TEST_CASE("a budget below the largest call runs out of memory", "[dtr]") {
  OpLog log = linear_op_log(3);
  CHECK(run_dtr(log, {.budget = Bytes{0}, .heuristic = {}, .seed = 0, .rematerialization_limit = {}}).end ==
        DtrEnd::out_of_memory);
}

}  // namespace
}  // namespace plimsoll
