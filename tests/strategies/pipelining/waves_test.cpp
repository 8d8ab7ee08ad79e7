// hanayo and dualpipe_v against formulas and counts, and what they refuse.

#include "sim/io/input_error.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

TEST_CASE("dualpipe_v: never idle for longer than published, for (p - 1) F where F = B = W, with 2p + 1 parts kept",
          "[pipelining]") {
  for (const std::uint32_t p : {1U, 2U, 3U, 4U, 6U, 8U}) {
    for (const std::uint32_t m : {2 * p, 2 * p + 1, 3 * p + 2}) {
      for (const Pieces& time : {Pieces{1, 1, 1, 0}, Pieces{2, 3, 3, 0}, Pieces{5, 2, 2, 0}, Pieces{4, 2, 3, 0}}) {
        INFO("p " << p << ", m " << m << ", F " << time.f << " B " << time.b);
        const Run run = run_of("dualpipe_v", p, 2 * p, m, time, {6, 6});
        const double idle = run.makespan.value - 2 * m * (time.f + time.b + time.w), b_and_w = time.b + time.w;
        CHECK(idle <= (p - 1) * (time.f + b_and_w + b_and_w - 3 * time.w) + 1e-9);
        if (time.f == time.b && time.b == time.w) CHECK(idle == Approx((p - 1) * time.f).margin(1e-9));
        const std::int64_t parts = std::min(2 * p + 1, 2 * m);
        for (const Bytes peak : run.peaks) CHECK(peak == Bytes{6 * parts});
      }
    }
  }
}

TEST_CASE("dualpipe_v names the least number of micro-batches", "[pipelining]") {
  CHECK_THROWS_WITH(run_of("dualpipe_v", 3, 6, 5, {}), "dualpipe_v: 5 micro-batches on 3 devices; the least is 6");
  CHECK_THROWS_AS(run_of("dualpipe_v", 1, 2, 1, {}), InputError);
  CHECK_NOTHROW(run_of("dualpipe_v", 3, 6, 6, {}));
}

TEST_CASE("hanayo: each doubling of the waves about halves the idle time, with as many micro-batches as devices",
          "[pipelining]") {
  for (const std::uint32_t p : {4U, 8U}) {
    double before = 3.0 * (p - 1);  // of 1f1b
    for (const std::uint32_t waves : {1U, 2U, 4U, 8U}) {
      INFO("p " << p << ", waves " << waves);
      const double part = 0.5 / waves;
      const Run run = run_of("hanayo(waves=" + std::to_string(waves) + ")", p, 2 * waves * p, p, {part, part, part, 0});
      const double idle = run.makespan.value - 3.0 * p;
      CHECK(idle <= (waves == 1 ? 2.0 / 3 : 0.55) * before + 1e-9);
      CHECK(idle >= 0.45 * before);
      before = idle;
      for (const Bytes peak : run.peaks) CHECK(peak <= Bytes{6 * 2 * std::int64_t{waves} * p});
    }
  }
}

TEST_CASE("hanayo keeps its limit, whole and split, and names the least", "[pipelining]") {
  for (const char* limit : {"0.25", "0.5", "0.75", "1"}) {
    for (const char* backward : {"whole", "split"}) {
      INFO("limit " << limit << ", " << backward);
      const std::string spec = std::string("hanayo(waves=2,limit=") + limit + ",backward=" + backward + ")";
      const Run run = run_of(spec, 4, 16, 9, {1, 1, 1, 0}, {6, 6});
      for (const Bytes peak : run.peaks) CHECK(static_cast<double>(peak.count) <= std::stod(limit) * 4 * 4 * 6);
    }
  }
  CHECK_THROWS_WITH(run_of("hanayo(limit=0.2)", 4, 8, 4, {}),
                    "hanayo: limit=0.2 is too small for one micro-batch; the least is 0.25");
}

TEST_CASE("zb_auto and zb_v name the least limit, which is one", "[pipelining]") {
  CHECK_THROWS_WITH(run_of("zb_auto(limit=0.2)", 3, 3, 6, {}),
                    "zb_auto: limit=0.2 is too small for one micro-batch; the least is 0.3334");
  CHECK_NOTHROW(run_of("zb_auto(limit=0.3334)", 3, 3, 6, {}));
  CHECK_THROWS_WITH(run_of("zb_v(limit=0.2)", 3, 6, 6, {}),
                    "zb_v: limit=0.2 is too small for one micro-batch; the least is 0.3334");
  CHECK_NOTHROW(run_of("zb_v(limit=0.3334)", 3, 6, 6, {}));
}

}  // namespace
}  // namespace plimsoll
