// The interval in which an iteration lies, and plans that it cannot tell apart.

#include "sim/measure/time_interval.h"

#include <catch2/catch.hpp>

#include "experiments/study/run.h"
#include "platforms/efficiency_file.h"
#include "sim/io/json/json.h"
#include "sim/ops/efficiency.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

Json simulated(const std::string& words) {
  const ProgramRun run = plimsoll("simulate --engine event --json " + words);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

constexpr const char* gpt2 = "-t gpt2:layers=2 -s store_all --optimizer adam ";

TEST_CASE("an iteration lies between sums of its kernels at the ends of their spreads", "[interval]") {
  const Json made = simulated(std::string(gpt2) + "-p h100_sxm_8:efficiency=h100_sxm");
  const Efficiency efficiency = load_efficiency("h100_sxm");
  double time = 0, low = 0, high = 0;
  for (const Json& share : made["time_shares"]) {
    const Spread& spread = efficiency.spread.at(share["sort"].get<std::string>());
    CHECK(share["low"] == spread.low);
    CHECK(share["high"] == spread.high);
    time += share["time_s"].get<double>();
    low += spread.low * share["time_s"].get<double>();
    high += spread.high * share["time_s"].get<double>();
  }
  CHECK(made["time_shares"].size() >= 5);
  CHECK(time == Approx(made["makespan_s"].get<double>()));
  CHECK(low == Approx(made["time_low_s"].get<double>()));
  CHECK(high == Approx(made["time_high_s"].get<double>()));
  CHECK(made["no_interval"].is_null());
}

TEST_CASE("waiting counts with the mean of all kernels, so that shares sum to the iteration", "[interval]") {
  const Json made = simulated(
      "-t gpt2:layers=2 -s '1f1b(stages=2)' --micro-batches 4 --optimizer adam -p h100_sxm_8:efficiency=h100_sxm");
  double time = 0;
  for (const Json& share : made["time_shares"]) time += share["time_s"].get<double>();
  CHECK(time == Approx(made["makespan_s"].get<double>()));
}

TEST_CASE("a stage's interval is that of the kernels that it is made of", "[interval]") {
  const std::string words = "-t transformer:layers=2,batch=4,view=",
                    on = " -p h100_sxm_8:efficiency=h100_sxm -s store_all";
  const Json chain = simulated(words + "chain" + on), graph = simulated(words + "graph" + on);
  CHECK(chain["time_low_s"].get<double>() == Approx(graph["time_low_s"].get<double>()));
  CHECK(chain["time_high_s"].get<double>() == Approx(graph["time_high_s"].get<double>()));
  CHECK(chain["time_shares"].size() == graph["time_shares"].size());
}

TEST_CASE("rooflines have a spread of their own, measured times none", "[interval]") {
  const Json roofline = simulated(std::string(gpt2) + "-p h100_sxm_8");
  REQUIRE(roofline["time_shares"].size() == 1);
  CHECK(roofline["time_shares"][0]["sort"] == "rooflines");
  CHECK(roofline["time_low_s"].get<double>() > roofline["makespan_s"].get<double>());
  const Json own = simulated("-t uniform:4 -p ideal -s store_all");
  CHECK(own["time_low_s"].is_null());
  CHECK(own["no_interval"] == "times are the trace's own, measured on such a device");
}

TEST_CASE("only what one plan has more of tells it from another", "[interval]") {
  const std::vector<TimeShare> plain{{"product", Seconds{10}, 0.8, 1.3}, {"collectives", Seconds{1}, 0.5, 2}};
  std::vector<TimeShare> again = plain, exchanging = plain;
  again[0].time = Seconds{10.1};
  CHECK(told_apart(plain, again));  // a twentieth of the products' spread, but common to both
  CHECK(told_apart(again, plain));
  CHECK_FALSE(told_apart(plain, plain));
  exchanging[0].time = Seconds{9};
  exchanging[1].time = Seconds{1.9};  // 0.1 s less in all: 1 s of products against 0.9 s of collectives
  CHECK_FALSE(told_apart(plain, exchanging));
  CHECK_FALSE(told_apart(exchanging, plain));
  exchanging[1].time = Seconds{1.3};  // at most 0.6 s of collectives against 0.8 s of products
  CHECK(told_apart(plain, exchanging));
  CHECK(told_apart(plain, {{"product", Seconds{10}, 0.8, 1.3}}));
}

}  // namespace
}  // namespace plimsoll
