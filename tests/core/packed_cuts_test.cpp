// Bounds of schedules that also pack: against the bound without packing, by a recount of cuts, and by hand.

#include "sim/bound/packed_cuts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "sim/bound/least_mix.h"
#include "sim/bound/snapshot_cut.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr Codec cut_codec(std::uint32_t bits) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
}
constexpr std::array numbers_of_bits{cut_codec(8), cut_codec(4), cut_codec(2)};
constexpr std::array cut_codecs_and_signs{Codec{.kind = CodecKind::mask, .bits = 1}, cut_codec(8), cut_codec(4),
                                          cut_codec(2)};

Problem cut_pictures(std::uint64_t seed, std::uint32_t ops) {
  Random random(seed);
  Platform platform = gpus({});
  platform.devices[0].memory_bandwidth = BytesPerSecond{static_cast<double>(random.between(2000, 20000))};
  return problem_of(as_pictures(random_graph(seed, ops), seed), std::move(platform));
}

OpId last_forward_of(const SnapshotModel& model) {
  OpId last{};
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    if (model.problem->graph.ops[o].phase == Phase::forward && model.ops[o].is_there) last = OpId{o};
  }
  return last;
}

TEST_CASE("the cheapest mix of columns is that of the best two or three", "[bound][property]") {
  std::uint32_t mixed = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    Random random(seed);
    std::vector<MixedColumn> columns{{0, {100, 0}}};
    for (std::int64_t k = random.between(1, 9); k > 0; --k) {
      const auto number = [&](std::uint32_t most) { return static_cast<double>(random.between(0, most)); };
      columns.push_back({number(50), {number(100), number(20)}});
    }
    const MixLimits limits{{static_cast<double>(random.between(5, 100)), static_cast<double>(random.between(0, 15))},
                           3};
    const LeastMix mix = least_mix(columns, limits);
    double shares = 0, cost = limits.price_of_more * mix.bought;
    std::array<double, 2> amounts{-mix.bought, 0};
    for (const auto& [k, share] : mix.shares) {
      shares += share;
      cost += share * columns[k].cost;
      for (std::size_t a = 0; a < 2; ++a) amounts[a] += share * columns[k].amounts[a];
    }
    INFO("seed " << seed);
    CHECK(shares == Approx(1));
    for (std::size_t a = 0; a < 2; ++a) CHECK(amounts[a] <= limits.amounts[a] + 1e-6);
    double proven = std::numeric_limits<double>::infinity();  // no mix is cheaper
    for (const MixedColumn& column : columns) {
      double value = column.cost;
      for (std::size_t a = 0; a < 2; ++a) value += mix.prices[a] * (column.amounts[a] - limits.amounts[a]);
      proven = std::min(proven, value);
    }
    CHECK(mix.prices[0] <= limits.price_of_more * (1 + 1e-9));
    CHECK(cost == Approx(proven).margin(1e-6));
    mixed += mix.shares.size() > 1 ? 1 : 0;
  }
  if (all_cases()) CHECK(mixed > cases_of(100U));
}

TEST_CASE("where nothing is packed the bound is that of an instant", "[bound][property]") {
  std::uint32_t above = 0;
  for (const RandomCase seed : random_cases(1, 200)) {
    const Problem problem = problem_of(random_graph(seed, 12), gpus({}));
    const BytesPerSecond out{seed % 2 == 0 ? 0.0 : 3.0};
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.out = out, .one_call = false});
    const OpId op{static_cast<std::uint32_t>(seed % problem.graph.ops.size())};
    if (!model.ops[op.index].is_there) continue;
    const Instant instant = instant_at(model, op);
    SnapshotCuts cuts(model, instant);
    PackedCuts packed(model, instant, kept_ways(model, instant, DeviceId{0}, {}));
    const Bytes all = instant.bytes + cuts.at(0).kept_bytes;
    for (const std::int64_t share : {30, 50, 70, 90, 100}) {
      const Bytes budget{all.count * share / 100};
      const InstantBound one = cuts.bound(budget);
      const PackedBound other = packed.bound(budget, 0);
      INFO("seed " << seed << ", " << budget.count << " B");
      CHECK(one.needs.has_value() == other.needs.has_value());
      if (one.needs) continue;
      CHECK(other.extra.value <= one.extra.value + 1e-6 * model.base.value);
      CHECK(other.extra.value >= one.extra.value - 1e-5 * model.base.value);
      above += one.extra > Seconds{0} ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(above > cases_of(60U));
}

TEST_CASE("a cut costs what it keeps, packs and runs again, and leaves forwards values as they are",
          "[bound][property]") {
  std::uint32_t packs = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    const Problem problem = cut_pictures(seed, 8);
    const BytesPerSecond out{seed % 2 == 0 ? 0.0 : 50.0};
    const SnapshotModel model =
        snapshot_model(problem, DeviceId{0}, {.codecs = cut_codecs_and_signs, .out = out, .one_call = false});
    const Instant instant = instant_at(model, last_forward_of(model));
    PackedCuts cuts(model, instant, kept_ways(model, instant, DeviceId{0}, numbers_of_bits));
    for (const double memory_price : {1e-5, 1e-4, 1e-3, 1e-2}) {
      for (const double error_price : {0.0, 1e-2, 1.0}) {
        const double price = out.value > 0 ? std::min(memory_price, 1 / out.value) : memory_price;
        const PackedCut& cut = cuts[cuts.at(price, error_price)];
        INFO("seed " << seed << ", prices " << price << ", " << error_price);
        const double cost = cut.extra.value + price * cut.weight + error_price * cut.square;
        CHECK(cut.value == Approx(cost).epsilon(1e-9));
        CHECK(cut.value <= cost * (1 + 1e-12));
        Bytes kept;
        Seconds extra;
        double square = 0;
        for (std::size_t o = 0; o < model.ops.size(); ++o) {
          if (cut.again[o]) extra += model.ops[o].again;
          if (!cut.runs[o]) continue;
          for (const std::uint32_t v : model.ops[o].reads) {
            const bool is_forward = problem.graph.ops[o].phase == Phase::forward;
            if (cut.kept[v] && is_forward) CHECK(cut.ways[v] == 0);
          }
        }
        for (std::size_t v = 0; v < model.values.size(); ++v) {
          if (!cut.kept[v]) continue;
          const KeptWay& way = cuts.ways().values[v].ways[cut.ways[v]];
          kept += way.bytes;
          extra += way.pack + way.unpack;
          square += way.square;
          packs += cut.ways[v] > 0 ? 1 : 0;
        }
        CHECK(kept == cut.kept_bytes);
        CHECK(extra.value == Approx(cut.extra.value));
        CHECK(square == Approx(cut.square));
      }
    }
  }
  if (all_cases()) CHECK(packs > cases_of(500U));
}

TEST_CASE("more memory, more error or one more codec never raise the bound with packing", "[bound][property]") {
  std::uint32_t falls = 0;
  for (const RandomCase seed : random_cases(1, 100)) {
    const Problem problem = cut_pictures(seed, 10);
    const BytesPerSecond out{seed % 3 == 0 ? 100.0 : 0.0};
    const SnapshotModel model =
        snapshot_model(problem, DeviceId{0}, {.codecs = cut_codecs_and_signs, .out = out, .one_call = false});
    const Instant instant = instant_at(model, last_forward_of(model));
    PackedCuts all(model, instant, kept_ways(model, instant, DeviceId{0}, numbers_of_bits));
    PackedCuts fewer(model, instant, kept_ways(model, instant, DeviceId{0}, std::span(numbers_of_bits).first(1)));
    const Bytes most = instant.bytes + all[all.at(0, 0)].kept_bytes;
    const double margin = 1e-6 * model.base.value;
    const auto extra = [](const PackedBound& bound) {
      return bound.needs ? std::numeric_limits<double>::infinity() : bound.extra.value;
    };
    std::vector<double> before;
    for (const std::int64_t share : {20, 40, 60, 80, 100}) {
      const Bytes budget{most.count * share / 100};
      std::vector<double> now;
      for (const double error : {0.001, 0.03, 0.1, 0.3, 1.0}) {
        now.push_back(extra(all.bound(budget, error * error)));
        INFO("seed " << seed << ", " << budget.count << " B, error " << error);
        if (now.size() > 1) CHECK(now.back() <= now[now.size() - 2] + margin);
        if (!before.empty()) CHECK(now.back() <= before[now.size() - 1] + margin);
        CHECK(now.back() <= extra(fewer.bound(budget, error * error)) + margin);
        falls += now.size() > 1 && now.back() < now.front() - margin ? 1 : 0;
      }
      CHECK(now.back() >= 0);
      before = now;
    }
    CHECK(extra(all.bound(most, 0)) == Approx(0).margin(margin));
  }
  if (all_cases()) CHECK(falls > cases_of(50U));
}

}  // namespace
}  // namespace plimsoll
