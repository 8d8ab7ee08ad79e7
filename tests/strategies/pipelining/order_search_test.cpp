// zb_ilp and pipeline_search against every order of small pipelines, and against the strategies that they begin with.

#include <functional>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

/// One part a device, unequal.
struct Tiny {
  std::uint32_t devices = 1, micro_batches = 1;
  std::vector<double> f, b, w;
  std::vector<std::int64_t> kept, kept_for_weights;
  double transfer = 0, limit = 1;
};

Tiny random_tiny(Random& random, std::span<const std::pair<std::uint32_t, std::uint32_t>> sizes) {
  Tiny tiny;
  std::tie(tiny.devices, tiny.micro_batches) = sizes[random.below(static_cast<std::uint32_t>(sizes.size()))];
  for (std::uint32_t r = 0; r < tiny.devices; ++r) {
    for (std::vector<double>* times : {&tiny.f, &tiny.b, &tiny.w}) times->push_back(random.between(1, 12));
    tiny.kept.push_back(random.between(2, 8));
    tiny.kept_for_weights.push_back(random.between(0, static_cast<std::uint32_t>(tiny.kept.back())));
  }
  tiny.transfer = random.chance(0.5) ? 0.5 : 0;
  tiny.limit = random.between(1, 2 * tiny.devices) / (1.0 * tiny.devices);
  return tiny;
}

/// Tries every order in which each device's forwards, backwards and weight gradients are in the micro-batches' order.
class EveryOrder {
 public:
  EveryOrder(const Tiny& tiny, bool longest)
      : tiny_(tiny), longest_(longest), words_(tiny.devices), word_(tiny.devices) {
    for (std::uint32_t r = 0; r < tiny.devices; ++r) {
      const auto limit = static_cast<std::int64_t>(tiny.limit * tiny.devices * static_cast<double>(tiny.kept[r]));
      std::string word;
      spell(r, word, {0, 0, 0}, 0, limit);
    }
  }

  double least() {
    combine(0);
    return least_;
  }

 private:
  using Counts = std::array<std::uint32_t, 3>;

  void spell(std::uint32_t r, std::string& word, Counts done, std::int64_t kept, std::int64_t limit) {
    if (done[2] == tiny_.micro_batches) return words_[r].push_back(word);
    const std::array<std::int64_t, 3> adds{tiny_.kept[r], tiny_.kept_for_weights[r] - tiny_.kept[r],
                                           -tiny_.kept_for_weights[r]};
    for (std::size_t k = 0; k < 3; ++k) {
      if (done[k] >= (k == 0 ? tiny_.micro_batches : done[k - 1])) continue;
      if (k == 0 && kept + adds[0] > limit) continue;
      Counts next = done;
      ++next[k];
      word.push_back("FBW"[k]);
      spell(r, word, next, kept + adds[k], limit);
      word.pop_back();
    }
  }

  void combine(std::uint32_t r) {
    if (r == tiny_.devices) return time();
    for (const std::string& word : words_[r]) {
      word_[r] = &word;
      combine(r + 1);
    }
  }

  void time() {
    constexpr double unknown = -1;
    const std::uint32_t p = tiny_.devices;
    std::vector<std::vector<double>> forward(p), backward(p);  // ends
    std::vector<double> now(p, 0), first(p, unknown);
    std::vector<std::size_t> at(p, 0);
    for (bool any = true; any;) {
      any = false;
      for (std::uint32_t r = 0; r < p; ++r) {
        for (; at[r] < word_[r]->size(); ++at[r], any = true) {
          double ready = now[r];
          const char letter = (*word_[r])[at[r]];
          if (letter == 'F' && r > 0) {
            if (forward[r - 1].size() <= forward[r].size()) break;
            ready = std::max(ready, forward[r - 1][forward[r].size()] + tiny_.transfer);
          }
          if (letter == 'B' && r + 1 < p) {
            if (backward[r + 1].size() <= backward[r].size()) break;
            ready = std::max(ready, backward[r + 1][backward[r].size()] + tiny_.transfer);
          }
          if (first[r] == unknown) first[r] = ready;
          now[r] = ready + (letter == 'F' ? tiny_.f : letter == 'B' ? tiny_.b : tiny_.w)[r];
          if (letter == 'F') forward[r].push_back(now[r]);
          if (letter == 'B') backward[r].push_back(now[r]);
        }
      }
    }
    double length = 0;
    for (std::uint32_t r = 0; r < p; ++r) {
      if (at[r] < word_[r]->size()) return;
      length = std::max(length, longest_ ? now[r] - first[r] : now[r]);
    }
    least_ = std::min(least_, length);
  }

  const Tiny& tiny_;
  bool longest_;
  std::vector<std::vector<std::string>> words_;
  std::vector<const std::string*> word_;
  double least_ = 1e300;
};

Problem problem_of_tiny(const Tiny& tiny) {
  Chain chain = equal_stages(tiny.devices, {});
  for (std::uint32_t r = 0; r < tiny.devices; ++r) {
    Stage& stage = chain.stages[r];
    stage.forward = stage.forward_nograd = Seconds{tiny.f[r]};
    stage.backward = Seconds{tiny.b[r] + tiny.w[r]};
    stage.backward_weight = Seconds{tiny.w[r]};
    stage.saved = Bytes{tiny.kept[r]};
    stage.weight_saved = Bytes{tiny.kept_for_weights[r]};
  }
  return problem_of(chain, gpus({.count = tiny.devices, .peer_latency = Seconds{tiny.transfer}}),
                    {.micro_batches = tiny.micro_batches, .backward = Backward::split});
}

Plan plan_for(const Problem& problem, const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
  CHECK(check(made.schedule, problem.graph, problem.platform).empty());
  return made;
}

std::string with_limit(const std::string& name, const Tiny& tiny, const std::string& more) {
  return name + "(limit=" + std::to_string(tiny.limit + 1e-6) + "," + more + ")";
}

TEST_CASE("pipeline_search is within 0.5 % of the best of all orders on average, and mostly is it",
          "[pipelining][eleventh-1]") {
  constexpr std::array sizes{std::pair{2U, 3U}, std::pair{2U, 4U}, std::pair{3U, 2U}, std::pair{3U, 3U},
                             std::pair{4U, 2U}};
  double beyond = 0;
  std::size_t best = 0, cases = 0;
  for (const RandomCase seed : fewer_cases(1, 500)) {
    Random random(seed);
    const Tiny tiny = random_tiny(random, sizes);
    const bool longest = random.chance(0.5);
    const Problem problem = problem_of_tiny(tiny);
    const Plan made =
        plan_for(problem, with_limit("pipeline_search", tiny, longest ? "shorter=longest,moves=3000" : "moves=3000"));
    const double found = longest ? longest_stage_of(problem, made).value : made.makespan.value;
    const double least = EveryOrder(tiny, longest).least();
    CHECK(found >= least - 1e-9);
    CHECK(found <= least * 1.05);
    beyond += found / least - 1;
    best += found <= least + 1e-9 ? 1 : 0;
    ++cases;
    for (std::uint32_t d = 0; d < tiny.devices; ++d) {  // beside a workspace of nothing only what is kept
      const auto limit = static_cast<double>(tiny.kept[d]) * (tiny.limit + 1e-6) * tiny.devices;
      CHECK(static_cast<double>(simulate_event(made.schedule, problem.platform).peaks[d].bytes.count) <= limit);
    }
  }
  if (all_cases()) {
    CHECK(beyond / static_cast<double>(cases) <= 0.005);
    CHECK(best >= cases_of(std::size_t{450}));
  }
}

TEST_CASE("zb_ilp finds the best of all orders, and proves it", "[pipelining]") {
  constexpr std::array sizes{std::pair{2U, 3U}, std::pair{3U, 2U}, std::pair{3U, 3U}, std::pair{4U, 2U}};
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const Tiny tiny = random_tiny(random, sizes);
    const Problem problem = problem_of_tiny(tiny);
    const Plan made = plan_for(problem, with_limit("zb_ilp", tiny, "nodes=100000"));
    CHECK(longest_stage_of(problem, made).value == Approx(EveryOrder(tiny, true).least()).epsilon(1e-6));
    CHECK(made.note.find("(gap 0.00 %)") != std::string::npos);
  }
}

TEST_CASE("zb_ilp: 140 where the heuristic has 145", "[pipelining]") {
  const Problem problem =
      problem_of(equal_stages(3, {9, 4, 12, 4}, {2, 1}), gpus({.count = 3, .peer_latency = Seconds{4}}),
                 {.micro_batches = 5, .backward = Backward::split});
  const Plan made = plan_for(problem, "zb_ilp(limit=1.3334)");  // 8 of 3 x 2 units
  CHECK(longest_stage_of(problem, made) == Seconds{140});
  CHECK(made.note == "the longest device takes 140 s, no order less than 140 s (gap 0.00 %)");
  CHECK(longest_stage_of(problem, plan_for(problem, "pipeline_search(shorter=longest,limit=1.3334)")) == Seconds{140});
}

TEST_CASE("zb_ilp and pipeline_search take parts that take no time", "[pipelining]") {
  const Pieces nothing{0, 0, 0, 0};
  CHECK(run_of("zb_ilp", 2, 2, 3, nothing).makespan == Seconds{0});
  CHECK(run_of("pipeline_search(moves=50)", 2, 4, 3, nothing).makespan == Seconds{0});
}

TEST_CASE("zb_ilp stops by its work, is not worse than zb_auto then, and says so", "[pipelining]") {
  const auto problem_with = [](std::uint32_t micro_batches) {
    const Pieces time{9, 4, 12, 1};
    return problem_of(equal_stages(4, time, {2, 1}), gpus({.count = 4, .peer_latency = Seconds{1}}),
                      {.micro_batches = micro_batches, .backward = Backward::split});
  };
  const Problem small = problem_with(6), large = problem_with(24);
  const Plan made = plan_for(small, "zb_ilp(nodes=0)");
  CHECK(longest_stage_of(small, made) <= longest_stage_of(small, plan_for(small, "zb_auto")));
  CHECK(made.note.find("stopped after 0 nodes (nodes)") != std::string::npos);
  const Plan heuristic = plan_for(large, "zb_ilp");
  CHECK(longest_stage_of(large, heuristic) <= longest_stage_of(large, plan_for(large, "zb_auto")));
  CHECK(heuristic.note.find("too large to be asked") != std::string::npos);
}

TEST_CASE("pipeline_search is never slower than what it begins with, within the limit", "[pipelining]") {
  for (const RandomCase seed : fewer_cases(1, 30)) {
    Random random(seed);
    const std::uint32_t devices = random.between(2, 4), m = random.between(1, 12);
    Chain chain = with_weight_times(random_small_chain(seed, random.between(2 * devices, 2 * devices + 5)));
    const BytesPerSecond to_peers = random.chance(0.5) ? BytesPerSecond{10} : unlimited_bandwidth;
    if (random.chance(0.5)) {  // sums of gradients on two devices, which may end the iteration
      const auto shared = static_cast<std::uint32_t>(chain.parameters.size());
      chain.parameters.push_back({"shared", Bytes{random.between(10, 60)}});
      chain.stages.front().parameters.push_back(shared);
      chain.stages.back().parameters.push_back(shared);
    }
    const Problem problem = problem_of(
        chain, gpus({.count = devices, .to_peers = to_peers, .peer_latency = Seconds{random.between(0, 2) * 0.5}}),
        {.micro_batches = m, .backward = Backward::split});
    const Plan searched = plan_for(problem, "pipeline_search(limit=100,moves=200)");
    for (const char* spec : {"gpipe(order=fifo,backward=split)", "1f1b(backward=split)", "eager_1f1b(backward=split)",
                             "interleaved(backward=split)", "zb_h1", "zb_h2", "zb_auto(limit=100)", "zb_v(limit=100)",
                             "v_half", "v_min", "hanayo(limit=100,backward=split)"}) {
      INFO(spec);
      CHECK(searched.makespan.value <= plan_for(problem, spec).makespan.value + 1e-9);
    }
  }
}

TEST_CASE("pipeline_search and zb_ilp name the least limit, which is one", "[pipelining]") {
  CHECK_THROWS_WITH(run_of("pipeline_search(limit=0.2)", 3, 6, 6, {}),
                    "pipeline_search: limit=0.2 is too small for one micro-batch; the least is 0.3334");
  CHECK_NOTHROW(run_of("pipeline_search(limit=0.3334,moves=100)", 3, 6, 6, {}));
  CHECK_THROWS_WITH(run_of("zb_ilp(limit=0.2)", 2, 2, 2, {}),
                    "zb_ilp: limit=0.2 is too small for one micro-batch; the least is 0.5");
  CHECK_NOTHROW(run_of("zb_ilp(limit=0.5)", 2, 2, 2, {}));
}

TEST_CASE("pipeline_search keeps a limit for each device, and what the budget leaves", "[pipelining]") {
  std::size_t limited = 0, fits = 0, one_fits = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    constexpr std::array sizes{std::pair{2U, 3U}, std::pair{2U, 6U}, std::pair{3U, 4U}, std::pair{4U, 5U}};
    const Tiny tiny = random_tiny(random, sizes);
    const Problem problem = problem_of_tiny(tiny);
    std::vector<double> limits;
    std::string text;
    for (std::uint32_t d = 0; d < tiny.devices; ++d) {
      limits.push_back(random.between(1, 2 * tiny.devices) / (1.0 * tiny.devices) + 1e-6);
      text += (d == 0 ? "" : ":") + std::to_string(limits[d]);
    }
    INFO(text);
    const Plan own = plan_for(problem, "pipeline_search(moves=300,limit=" + text + ")");
    const Timeline timeline = simulate_event(own.schedule, problem.platform);
    for (std::uint32_t d = 0; d < tiny.devices; ++d) {
      CHECK(static_cast<double>(timeline.peaks[d].bytes.count) <=
            limits[d] * tiny.devices * static_cast<double>(tiny.kept[d]));
    }
    // The least of the limits on all devices allows no more.
    const Plan least =
        plan_for(problem, "pipeline_search(moves=0,limit=" + std::to_string(std::ranges::min(limits)) + ")");
    const Plan begun = plan_for(problem, "pipeline_search(moves=0,limit=" + text + ")");
    CHECK(own.makespan.value <= begun.makespan.value + 1e-9);
    limited += begun.makespan < least.makespan ? 1 : 0;
    // A budget is a limit in bytes.
    const Plan free = plan_for(problem, "pipeline_search(moves=0,limit=100)");
    for (const std::int64_t part : {9, 7, 5}) {
      const Bytes budget{free.peak.count * part / 10};
      const auto within = [&](const std::string& spec) { return plan(problem, parse_spec(spec, "test"), budget); };
      const PlanOutcome outcome = within("pipeline_search(moves=300,limit=100)");
      const Plan* made = std::get_if<Plan>(&outcome);
      fits += made != nullptr ? 1 : 0;
      if (made != nullptr) CHECK(made->peak <= budget);
      for (const char* spec : {"1f1b(backward=split)", "zb_h1", "zb_auto"}) {
        INFO(spec << " within " << budget.count << " B");
        const PlanOutcome other = within(spec);
        const Plan* one = std::get_if<Plan>(&other);
        if (one == nullptr) continue;
        ++one_fits;
        REQUIRE(made != nullptr);
        CHECK(made->makespan.value <= one->makespan.value + 1e-9);
      }
    }
  }
  if (all_cases()) CHECK(limited >= cases_of(std::size_t{8}));
  if (all_cases()) CHECK(fits > cases_of(std::size_t{60}));
  if (all_cases()) CHECK(one_fits > cases_of(std::size_t{50}));
}

TEST_CASE("pipeline_search does without a way from the last device to the first", "[pipelining]") {
  const auto devices = [](bool in_a_ring) {
    return parse_platform(std::string("format: plimsoll.platform.v1\nname: row\nsource: made up\ndevices:\n") +
                              "  - {name: a, memory: 1 GB, times: trace}\n  - {name: b, memory: 1 GB, times: trace}\n"
                              "  - {name: c, memory: 1 GB, times: trace}\nlinks:\n"
                              "  - {name: ab, between: [a, b], bandwidth: 1 GBps, latency: 0 s}\n"
                              "  - {name: bc, between: [b, c], bandwidth: 1 GBps, latency: 0 s}\n" +
                              (in_a_ring ? "  - {name: ca, between: [c, a], bandwidth: 1 GBps, latency: 0 s}\n" : ""),
                          "row.yaml");
  };
  const Chain six = with_weight_times(even_chain(6));
  const ProblemOptions options{.micro_batches = 8, .backward = Backward::split};
  const Problem row = problem_of(six, devices(false), options), ring = problem_of(six, devices(true), options);
  CHECK_THROWS_AS(plan_for(row, "interleaved(backward=split)"), InputError);
  const Plan searched = plan_for(row, "pipeline_search(moves=100)");
  for (const char* spec : {"1f1b(backward=split)", "zb_h1", "zb_v"}) {
    CHECK(searched.makespan.value <= plan_for(row, spec).makespan.value + 1e-9);
  }
  CHECK(plan_for(ring, "pipeline_search(moves=100)").makespan.value <=
        plan_for(ring, "interleaved(backward=split)").makespan.value + 1e-9);
}

TEST_CASE("pipeline_search refuses limits for another number of devices", "[pipelining]") {
  CHECK_THROWS_WITH(run_of("pipeline_search(limit=1:2)", 3, 6, 6, {}),
                    "pipeline_search: limit=1:2 is for 2 devices, and the pipeline has 3");
  CHECK_THROWS_WITH(run_of("pipeline_search(limit=1:0.2:1)", 3, 6, 6, {}),
                    "pipeline_search: limit=1:0.2:1 is too small for one micro-batch; the least is 0.3334");
}

}  // namespace
}  // namespace plimsoll
