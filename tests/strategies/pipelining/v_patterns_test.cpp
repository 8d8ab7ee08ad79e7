// Orders from building blocks in a V.

#include <map>

#include "sim/io/input_error.h"
#include "strategies/list.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/v_slots.h"
#include "strategies/pipelining/pipeline.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

/// With F = B = W = 1 and everything kept until W: a part that is kept is 6 bytes.
Run unit_run(const std::string& spec, std::uint32_t p, std::uint32_t m) {
  return run_of(spec, p, 2 * p, m, {}, {6, 6});
}

std::int64_t parts_kept_in(const Run& run) {
  return std::ranges::max_element(run.peaks)->count / 6;
}

TEST_CASE("v_min, v_half and 1f1b_v keep the published number of parts, and are idle as published or less",
          "[pipelining]") {
  struct Published {
    const char* spec;
    std::array<std::int64_t, 3> parts;  ///< 4, 8 and 16 devices
    double idle;                        ///< of the longest of 8 devices, 24 micro-batches
  };
  for (const Published& row :
       {Published{"v_min", {4, 8, 12}, 23},  // published: 27
        Published{"v_half", {6, 10, 18}, 17}, Published{"v_half(pattern=1f1b_v)", {6, 12, 22}, 33}}) {
    INFO(row.spec);
    std::size_t k = 0;
    for (const std::uint32_t p : {4U, 8U, 16U}) {
      const Run run = unit_run(row.spec, p, 3 * p);
      CHECK(parts_kept_in(run) == row.parts[k++]);
      if (p == 8) CHECK(run.longest_stage == Seconds{6 * 24 + row.idle});
    }
  }
}

TEST_CASE("v_half and 1f1b_v are never longer than the published program's orders", "[pipelining]") {
  struct Published {
    const char* spec;
    std::uint32_t p, m;
    Pieces time;
    double longest;  ///< what the published program gives for these times
  };
  const char *half = "v_half", *whole = "v_half(pattern=1f1b_v)";
  for (const Published& row : {Published{half, 4, 8, {3, 3, 1, 0}, 137}, Published{half, 8, 8, {2, 9, 9, 0}, 457},
                               Published{half, 6, 12, {6, 7, 5, 0}, 520}, Published{half, 6, 12, {2, 5, 3, 0}, 321},
                               Published{half, 6, 12, {4, 8, 8, 1}, 598}, Published{whole, 3, 3, {4, 1, 8, 0}, 114},
                               Published{whole, 3, 3, {4, 4, 1, 0}, 74}, Published{whole, 3, 3, {7, 8, 4, 1}, 172},
                               Published{whole, 3, 3, {5, 6, 9, 0}, 180}, Published{whole, 3, 3, {1, 5, 3, 1}, 96}}) {
    INFO(row.spec << ", " << row.p << " devices, " << row.m << " micro-batches");
    const Run run = run_of(row.spec, row.p, 2 * row.p, row.m, row.time, {6, 6});
    CHECK(run.longest_stage.value <= row.longest + 1e-9);
    CHECK(run.makespan.value <= row.longest + 1e-9);  // as long there
  }
}

// Where two transfers of a direction are on their way at once, one waits for the other here, and in the published
// program not: its order is timed as ours.
TEST_CASE("v_min, v_half and 1f1b_v are never longer than the published program's orders, at any transfer time",
          "[pipelining]") {
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t p = random.between(2, 8), m = random.between(1, 3 * p);
    Pieces time{1.0 * random.between(1, 9), 1.0 * random.between(1, 9), 1.0 * random.between(1, 9), 0};
    time.c = random.between(0, 8) * time.f / 2;
    const auto costs_of = [&](bool whole) {
      const std::vector<double> sent(2 * p - 1, time.c);
      return PartCosts{std::vector(2 * p, time.f),
                       std::vector(2 * p, time.b),
                       std::vector(2 * p, time.w),
                       sent,
                       sent,
                       std::vector<std::int64_t>(2 * p, 6),
                       std::vector<std::int64_t>(2 * p, whole ? 0 : 6)};
    };
    for (const auto& [spec, block] : {std::pair("v_min", v_min_block(p)), std::pair("v_half", v_half_block(p)),
                                      std::pair("v_half(pattern=1f1b_v)", published_whole_block(p))}) {
      INFO(spec << ", " << p << " devices, " << m << " micro-batches, c " << time.c);
      const PartCosts costs = costs_of(block.has_whole_backwards);
      const OrderTimes published = time_order(costs, m, orders_beside_published(block, m).front());
      const Run run = run_of(spec, p, 2 * p, m, time, {6, 6});
      CHECK(run.makespan.value <= published.makespan() + 1e-9);
      CHECK(run.longest_stage.value <= published.longest() + 1e-9);
    }
  }
}

TEST_CASE("zero bubble's strategies: a faster network makes no iteration longer", "[pipelining][turn-22]") {
  for (const RandomCase seed : fewer_cases(1, 24)) {
    Random random(seed);
    const std::uint32_t p = random.between(2, 5), m = random.between(p, 3 * p);
    Pieces time{1.0 * random.between(1, 9), 1.0 * random.between(1, 9), 1.0 * random.between(1, 9), 0};
    for (const char* spec : {"zb_h1", "zb_h2", "zb_auto", "zb_auto(limit=1.5)", "zb_v", "zb_v(limit=1.5)", "v_min",
                             "v_half", "v_half(pattern=1f1b_v)", "v_half(pattern=exhaustive,limit=1)"}) {
      INFO(spec << ", " << p << " devices, " << m << " micro-batches");
      double faster = 0;
      for (const double c : {0.0, 0.1, 0.3, 0.5, 0.9, 1.0, 1.3, 2.0}) {
        time.c = c * time.f;
        const double makespan = run_of(spec, p, 2 * p, m, time).makespan.value;
        CHECK(makespan >= faster * (1 - 1e-9));
        faster = makespan;
      }
    }
  }
}

TEST_CASE("zb_v's published order may be longer on a faster network, its best one is not, nor is v_half's",
          "[pipelining]") {
  const auto makespan = [](const char* spec, const Pieces& time) { return run_of(spec, 2, 4, 3, time).makespan; };
  const Pieces free{5, 1, 5, 0}, slow{5, 1, 5, 1};
  CHECK(makespan("zb_v(orders=published)", slow) == Seconds{73});
  CHECK(makespan("zb_v(orders=published)", free) == Seconds{75});
  CHECK(makespan("zb_v", slow) <= Seconds{73});
  CHECK(makespan("zb_v", free) <= makespan("zb_v", slow));
  // The order whose longest device is shortest takes 80.5 s with faster transfers and 78 s with slower ones.
  CHECK(makespan("v_half", {5, 3, 4, 0.5}) <= Seconds{78});
}

TEST_CASE("v_min and v_half: parts kept as by their formulas for any number of devices", "[pipelining]") {
  for (std::int64_t p = 2; p <= 12; ++p) {
    for (const std::int64_t m : {2 * p, 3 * p + 1}) {
      INFO("p " << p << ", m " << m);
      const auto ranks = static_cast<std::uint32_t>(p), micro_batches = static_cast<std::uint32_t>(m);
      CHECK(parts_kept_in(unit_run("v_min", ranks, micro_batches)) == (p + 4) / 3 * 2);
      CHECK(parts_kept_in(unit_run("v_half", ranks, micro_batches)) == (p + 2) / 2 * 2);
    }
  }
}

TEST_CASE("v_half with one device or few micro-batches has no time to lose and none too much", "[pipelining]") {
  for (const char* spec : {"v_min", "v_half", "v_half(pattern=1f1b_v)", "v_half(pattern=exhaustive,limit=1)"}) {
    INFO(spec);
    CHECK(unit_run(spec, 1, 3).makespan == Seconds{18});
    const Run one = unit_run(spec, 4, 1);  // one micro-batch: every pass after the other, W beside
    CHECK(parts_kept_in(one) == 2);
    CHECK(one.makespan.value <= 4 * 6);
    CHECK(one.makespan.value >= 4 * 4);
  }
}

TEST_CASE("v_half(pattern=exhaustive): idle time against memory, as published", "[pipelining][eleventh-4]") {
  struct Case {
    std::uint32_t p, m;
    std::map<int, double> idle;  ///< by parts kept
  };
  for (const Case& row : {Case{4, 8, {{4, 11}, {5, 8}, {6, 5}, {7, 3}, {8, 0}}},
                          Case{6, 12, {{6, 17}, {7, 14}, {8, 11}, {9, 8}, {10, 5}, {11, 3}, {12, 0}}}}) {
    for (const auto& [parts, idle] : row.idle) {
      INFO("p " << row.p << ", " << parts << " parts");
      const std::string limit = std::to_string(parts / (2.0 * row.p) + 1e-6);
      const Run run = unit_run("v_half(pattern=exhaustive,limit=" + limit + ")", row.p, row.m);
      CHECK(parts_kept_in(run) <= parts);
      CHECK(run.longest_stage == Seconds{6.0 * row.m + idle});
    }
  }
}

TEST_CASE("v_half's limit is refused where it says nothing, and where no block keeps so little", "[pipelining]") {
  const auto refusal = [](const std::string& spec) -> std::string {
    try {
      unit_run(spec, 4, 8);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(refusal("v_half(limit=1)") == "v_half: only pattern=exhaustive takes a limit; other patterns have their own");
  CHECK(refusal("v_half(pattern=exhaustive,limit=0.49)") ==
        "v_half: no building block keeps as little as limit=0.49; the least is 0.5");
  CHECK(refusal("v_half(pattern=exhaustive,limit=0.5)") == "nothing");
}

}  // namespace
}  // namespace plimsoll
