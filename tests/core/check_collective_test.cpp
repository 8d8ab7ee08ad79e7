// Collectives of every kind as flows between ranks, legal and falsified: what each computes is tracked by ranges of
// bytes, so that an all-reduce may be made of a reduce-scatter, an all-reduce and an all-gather.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <string>

#include "sim/judge/check.h"
#include "sim/judge/sums.h"
#include "sim/lower/collective.h"
#include "sim/lower/schedule_builder.h"
#include "tests/core/draft.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

constexpr TensorId input{0}, gradient{1}, other{2};

/// One op that makes two gradients of 8 bytes from the input.
Graph two_gradients() {
  Graph graph;
  graph.name = "two gradients";
  graph.storages = 3;
  const auto tensor = [](const char* name, TensorKind kind, std::uint32_t storage) {
    return Tensor{.name = name, .kind = kind, .bytes = Bytes{8}, .storage = StorageId{storage}};
  };
  graph.tensors = {tensor("x", TensorKind::input, 0), tensor("g", TensorKind::parameter_gradient, 1),
                   tensor("h", TensorKind::parameter_gradient, 2)};
  graph.ops = {
      {.name = "b", .phase = Phase::backward, .duration = Seconds{1}, .inputs = {input}, .outputs = {gradient, other}}};
  return graph;
}

/// `count` GPUs that have made their gradients; then flows between them.
struct Ranks {
  Graph graph = two_gradients();
  Platform platform;
  ScheduleBuilder builder;
  std::vector<BufferId> g, h;    // by GPU
  std::vector<StepId> backward;  // by GPU
  std::vector<NewStep> flows;
  std::vector<Collective> collectives;

  explicit Ranks(std::uint32_t count, Seconds latency = {})
      : platform(gpus({.count = count, .to_peers = BytesPerSecond{8}, .peer_latency = latency})) {
    for (std::uint32_t d = 0; d < count; ++d) {
      g.push_back(part(gradient, d, 0, 8));
      h.push_back(part(other, d, 0, 8));
      backward.push_back(builder.add({.kind = StepKind::backward,
                                      .stream = builder.stream(DeviceId{d}, way::compute),
                                      .op = OpId{0},
                                      .replica = d,
                                      .work = {.seconds = Seconds{1}},
                                      .allocates = {part(input, d, 0, 8), g[d], h[d]}}));
    }
  }

  BufferId part(TensorId t, std::uint32_t gpu, std::int64_t from, std::int64_t to) {
    return builder.buffer(
        {.tensor = t, .replica = gpu, .memory = MemoryId{gpu}, .bytes = Bytes{to - from}, .range_offset = Bytes{from}});
  }

  /// Its flows follow, by indices into all flows.
  CollectiveId collective(CollectiveKind kind, std::vector<BufferId> inputs, std::vector<BufferId> outputs) {
    collectives.push_back({kind, std::move(inputs), std::move(outputs)});
    return id_at<CollectiveId>(collectives.size() - 1);
  }

  /// `after`: flows that it waits for; it waits for all backwards too.
  std::size_t flow(CollectiveId id, std::uint32_t from_gpu, std::uint32_t to_gpu, BufferId from, BufferId to,
                   std::int64_t bytes, const std::vector<std::size_t>& after = {}, Seconds seconds = {}) {
    NewStep step;
    step.kind = StepKind::collective;
    step.stream = builder.stream(DeviceId{from_gpu}, {place::device, MemoryId{to_gpu}});
    step.collective = id;
    step.work = {
        .seconds = seconds, .bytes = Bytes{bytes}, .route = builder.route(MemoryId{from_gpu}, MemoryId{to_gpu})};
    step.reads = {from};
    const bool is_new = std::ranges::find(filled_, to) == filled_.end() && std::ranges::find(g, to) == g.end() &&
                        std::ranges::find(h, to) == h.end();
    (is_new ? step.allocates : step.writes) = {to};
    filled_.push_back(to);
    step.waits = backward;
    for (const std::size_t f : after) step.waits.push_back(id_at<StepId>(backward.size() + f));
    flows.push_back(step);
    return flows.size() - 1;
  }

  Schedule schedule() const {
    ScheduleBuilder copy = builder;
    for (const Collective& collective : collectives) copy.collective(collective);
    for (const NewStep& step : flows) copy.add(step);
    Schedule schedule = copy.finish();
    schedule.replicas = static_cast<std::uint32_t>(backward.size());
    return schedule;
  }
  std::vector<Violation> judged() const { return check(schedule(), graph, platform); }

 private:
  std::vector<BufferId> filled_;
};

/// Both ranks send all they have, in place.
void exchange_all(Ranks& ranks, const std::vector<BufferId>& buffers, std::uint32_t a, std::uint32_t b,
                  std::int64_t bytes) {
  const CollectiveId id =
      ranks.collective(CollectiveKind::all_reduce, {buffers[a], buffers[b]}, {buffers[a], buffers[b]});
  ranks.flow(id, a, b, buffers[a], buffers[b], bytes);
  ranks.flow(id, b, a, buffers[b], buffers[a], bytes);
}

/// Nodes of two GPUs: each GPU sums half of its node's, then with its counterparts in other nodes, then hands it back.
struct Hierarchy : Ranks {
  Hierarchy() : Ranks(4) {
    for (std::uint32_t d = 0; d < 4; ++d) half.push_back(part(gradient, d, d % 2 == 0 ? 0 : 4, d % 2 == 0 ? 4 : 8));
    for (const std::uint32_t n : {0U, 2U}) {
      const CollectiveId id = collective(CollectiveKind::reduce_scatter, {g[n], g[n + 1]}, {half[n], half[n + 1]});
      flow(id, n, n + 1, g[n], half[n + 1], 4);
      flow(id, n + 1, n, g[n + 1], half[n], 4);
    }
    for (const std::uint32_t d : {0U, 1U}) {
      const CollectiveId id = collective(CollectiveKind::all_reduce, {half[d], half[d + 2]}, {half[d], half[d + 2]});
      flow(id, d, d + 2, half[d], half[d + 2], 4, {0, 1, 2, 3});
      flow(id, d + 2, d, half[d + 2], half[d], 4, {0, 1, 2, 3});
    }
    for (const std::uint32_t n : {0U, 2U}) {
      const CollectiveId id = collective(CollectiveKind::all_gather, {half[n], half[n + 1]}, {g[n], g[n + 1]});
      flow(id, n, n + 1, half[n], g[n + 1], 4, {4, 5, 6, 7});
      flow(id, n + 1, n, half[n + 1], g[n], 4, {4, 5, 6, 7});
    }
    const CollectiveId rest = collective(CollectiveKind::all_reduce, h, h);  // every rank to every other one
    for (std::uint32_t a = 0; a < 4; ++a) {
      for (std::uint32_t b = 0; b < 4; ++b) {
        if (a != b) flow(rest, a, b, h[a], h[b], 8);
      }
    }
  }
  std::vector<BufferId> half;  // of g, by GPU
};

TEST_CASE("an all-reduce made of a reduce-scatter, an all-reduce and an all-gather is legal", "[check]") {
  const std::vector<Violation> found = Hierarchy{}.judged();
  INFO((found.empty() ? "" : found[0].what));
  CHECK(found.empty());
}

TEST_CASE("a hierarchical all-reduce with a sum made twice, a part left out or a wait forgotten is not legal",
          "[check]") {
  Hierarchy h;
  SECTION("the same node's halves are summed again") {
    h.collectives[2] = {CollectiveKind::all_reduce, {h.half[0], h.g[1]}, {h.half[0], h.g[1]}};
    CHECK_FALSE(h.judged().empty());
  }
  SECTION("summed again where all is in") {
    const CollectiveId again = h.collective(CollectiveKind::all_reduce, {h.half[0], h.half[2]}, {h.half[0], h.half[2]});
    h.flow(again, 0, 2, h.half[0], h.half[2], 4, {4, 5, 6, 7});
    h.flow(again, 2, 0, h.half[2], h.half[0], 4, {4, 5, 6, 7});
    CHECK(reports(h.judged(), Rule::repeated));
  }
  SECTION("one half is not summed across nodes") {
    h.collectives[3].kind = CollectiveKind::broadcast;
    CHECK(reports(h.judged(), Rule::incomplete));
  }
  SECTION("the last phase does not wait for the second") {
    h.flows[8].waits.clear();
    CHECK(reports(h.judged(), Rule::not_ordered));
  }
  SECTION("the parts overlap") {
    h.collectives[4].inputs[1] = h.half[0];
    CHECK_FALSE(h.judged().empty());
  }
}

TEST_CASE("the parts of a gradient must hold all of it at the end", "[check]") {
  const auto found_with = [](std::int64_t from, std::int64_t to) {
    ScheduleBuilder builder;
    const auto part = [&](TensorId t, std::int64_t first, std::int64_t end) {
      return builder.buffer({.tensor = t, .bytes = Bytes{end - first}, .range_offset = Bytes{first}});
    };
    builder.add({.kind = StepKind::backward,
                 .stream = builder.stream(DeviceId{0}, way::compute),
                 .op = OpId{0},
                 .work = {.seconds = Seconds{1}},
                 .allocates = {part(input, 0, 8), part(gradient, 0, 3), part(gradient, from, to), part(other, 0, 8)}});
    return check(builder.finish(), two_gradients(), gpus({}));
  };
  CHECK(found_with(3, 8).empty());
  CHECK(reports(found_with(4, 8), Rule::incomplete));
  CHECK(reports(found_with(3, 7), Rule::incomplete));
}

TEST_CASE("the gradients of every replica must be complete at the end", "[check]") {
  const std::vector<Violation> found = Ranks(2).judged();  // which sum nothing
  for (const char* replica : {"of replica 0", "of replica 1"}) {
    CHECK(std::ranges::count_if(found, [&](const Violation& v) { return v.what.ends_with(replica); }) == 2);
  }
}

TEST_CASE("shares that overlap are no parts", "[check]") {
  Ranks ranks(2);
  const std::vector<BufferId> shares{ranks.part(gradient, 0, 0, 5), ranks.part(gradient, 1, 4, 8)};
  const CollectiveId id = ranks.collective(CollectiveKind::reduce_scatter, ranks.g, shares);
  ranks.flow(id, 0, 1, ranks.g[0], shares[1], 4);
  ranks.flow(id, 1, 0, ranks.g[1], shares[0], 5);
  CHECK(std::ranges::any_of(ranks.judged(), [](const Violation& v) {
    return v.what.find("a reduce-scatter's inputs are of the same bytes, its outputs the parts of them") !=
           std::string::npos;
  }));
}

TEST_CASE("gradients for several updates are not summed", "[check]") {
  Ranks ranks(2);
  exchange_all(ranks, ranks.g, 0, 1, 8);
  const auto mixes = [](const Violation& v) { return v.what.find("or another version of it") != std::string::npos; };
  for (const std::uint32_t every : {2U, 1U}) {
    Schedule schedule = ranks.schedule();
    schedule.micro_batches = 2;
    schedule.updates = {Versions::stashed, every};
    schedule.steps[1].micro_batch = 1;  // of the other rank
    CHECK(std::ranges::any_of(check(schedule, ranks.graph, ranks.platform), mixes) == (every == 1));
  }
}

TEST_CASE("a collective of another kind than its ranks compute is named", "[check]") {
  for (std::size_t c = 0; c < 7; ++c) {
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                      CollectiveKind::all_gather, CollectiveKind::broadcast}) {
      Hierarchy h;
      if (h.collectives[c].kind == kind) continue;
      h.collectives[c].kind = kind;
      INFO("collective " << c << " as kind " << static_cast<int>(kind));
      CHECK_FALSE(h.judged().empty());
    }
  }
}

TEST_CASE("an all-reduce or a broadcast that fills other bytes than it reads is named", "[check]") {
  const CollectiveKind kind = GENERATE(CollectiveKind::all_reduce, CollectiveKind::broadcast);
  Ranks ranks(2);
  const std::vector<BufferId> half{ranks.part(gradient, 0, 0, 4), ranks.part(gradient, 1, 0, 4)};
  const CollectiveId id = ranks.collective(kind, ranks.g, half);
  ranks.flow(id, 0, 1, ranks.g[0], half[1], 8);
  ranks.flow(id, 1, 0, ranks.g[1], half[0], 8);
  const std::vector<Violation> found = ranks.judged();
  const auto is_of_other_bytes = [](const Violation& v) {
    return v.rule == Rule::collective &&
           v.what.find("inputs and outputs are all of the same bytes") != std::string::npos;
  };
  CHECK(std::ranges::any_of(found, is_of_other_bytes));
}

TEST_CASE("each false flow of a collective is named", "[check]") {
  for (std::size_t f = 0; f < 24; ++f) {
    const auto changed = [f](const std::function<void(Hierarchy&, NewStep&)>& change) {
      Hierarchy h;
      change(h, h.flows[f]);
      return h.judged();
    };
    INFO("flow " << f);
    CHECK(reports(changed([](Hierarchy&, NewStep& s) { s.work.bytes = Bytes{0}; }), Rule::collective));
    CHECK(reports(changed([](Hierarchy&, NewStep& s) { s.work.bytes.count -= 1; }), Rule::collective));
    CHECK(reports(changed([](Hierarchy&, NewStep& s) { s.reads.clear(); }), Rule::collective));
    CHECK(reports(changed([](Hierarchy&, NewStep& s) { s.work.route = {(s.work.route.index + 1) % 4}; }),
                  Rule::wrong_place));
    CHECK(reports(changed([](Hierarchy& h, NewStep& s) { s.stream = h.builder.stream(DeviceId{0}, way::compute); }),
                  Rule::wrong_place));
    CHECK_FALSE(changed([](Hierarchy&, NewStep& s) { s.collective = {(s.collective.index + 1) % 7}; }).empty());
    CHECK_FALSE(changed([](Hierarchy&, NewStep& s) { s.collective = no_collective; }).empty());
    const Hierarchy whole;  // the last collective's flows have nothing to wait for but earlier ones on their stream
    const bool is_first = std::none_of(whole.flows.begin(), whole.flows.begin() + static_cast<std::ptrdiff_t>(f),
                                       [&](const NewStep& s) { return s.stream == whole.flows[f].stream; });
    if (f >= 12 && !is_first) continue;
    CHECK(reports(changed([](Hierarchy&, NewStep& s) { s.waits.clear(); }), Rule::not_ordered));
  }
}

TEST_CASE("a collective without one of its ranks is named", "[check]") {
  for (std::size_t c = 0; c < 7; ++c) {
    for (const bool in : {true, false}) {
      for (const bool out : {true, false}) {
        if (!in && !out) continue;
        Hierarchy h;
        if (in) h.collectives[c].inputs.pop_back();
        if (out) h.collectives[c].outputs.pop_back();
        if (in != out) {  // the builder would not take it
          for (const Collective& collective : h.collectives) h.builder.collective({collective.kind, {}, {}});
          Schedule schedule;
          schedule = [&] {
            for (const NewStep& step : h.flows) h.builder.add(step);
            return h.builder.finish();
          }();
          schedule.replicas = 4;
          schedule.collectives = h.collectives;
          CHECK(reports(check(schedule, h.graph, h.platform), Rule::malformed));
          continue;
        }
        INFO("collective " << c);
        CHECK_FALSE(h.judged().empty());
      }
    }
  }
}

TEST_CASE("a sum of two different gradients is named", "[check]") {
  Ranks ranks(2);
  exchange_all(ranks, ranks.g, 0, 1, 8);
  exchange_all(ranks, ranks.h, 0, 1, 8);
  SECTION("legal") {
    CHECK(ranks.judged().empty());
  }
  SECTION("not") {
    ranks.collectives[0].inputs[1] = ranks.collectives[0].outputs[1] = ranks.h[1];
    ranks.flows[0].writes = {ranks.h[1]};
    ranks.flows[1].reads = {ranks.h[1]};
    CHECK(reports(ranks.judged(), Rule::wrong_value));
  }
}

/// Both gradients of three GPUs in one ring, then falsified.
std::vector<Violation> judged_bucket(Collectives how, const std::function<void(Schedule&)>& change) {
  Ranks ranks(3, Seconds{0.5});
  std::vector<Rank> all;
  for (std::uint32_t d = 0; d < 3; ++d) all.push_back({DeviceId{d}, {ranks.g[d], ranks.h[d]}, {ranks.backward[d]}});
  ring_all_reduce(ranks.builder, ranks.platform, all, how);
  Schedule schedule = ranks.builder.finish();
  schedule.replicas = 3;
  change(schedule);
  return check(schedule, ranks.graph, ranks.platform);
}

TEST_CASE("several gradients are summed in one collective: the same ones, all of them, on every rank", "[check]") {
  const Collectives how = GENERATE(Collectives::aggregated, Collectives::expanded);
  const auto judged = [&](const auto& change) { return judged_bucket(how, change); };
  const auto first_flow = [](Schedule& s) -> Step& { return s.steps[3]; };
  CHECK(judged([](Schedule&) {}).empty());
  for (const std::uint32_t values : {0U, 4U, 6U}) {  // no whole number of ranks, or one rank
    INFO("values " << values);
    CHECK(reports(judged([&](Schedule& s) { s.collectives[0].values = values; }), Rule::malformed));
  }
  for (const std::uint32_t values : {1U, 3U}) {
    INFO("values " << values);
    CHECK(reports(judged([&](Schedule& s) { s.collectives[0].values = values; }), Rule::collective));
  }
  const auto with_bytes_of_one = [](Schedule& s) {
    for (Step& step : s.steps) step.work.bytes.count /= 2;
  };
  CHECK(reports(judged(with_bytes_of_one), Rule::collective));
  for (Slice Step::*list : {&Step::reads, &Step::writes}) {
    CHECK(reports(judged([&](Schedule& s) { (first_flow(s).*list).count = 1; }), Rule::collective));
    CHECK(reports(judged([&](Schedule& s) {
                    BufferId* buffers = &s.buffer_list[(first_flow(s).*list).first];
                    std::swap(buffers[0], buffers[1]);
                  }),
                  Rule::collective));
  }
  const auto with_other_order = [](Schedule& s) {  // on one rank, whose flows follow it
    std::swap(s.collectives[0].inputs[2], s.collectives[0].inputs[3]);
    s.collectives[0].outputs = s.collectives[0].inputs;
    for (Step& step : s.steps) {
      if (step.kind != StepKind::collective) continue;
      for (const Slice& list : {step.reads, step.writes}) {
        BufferId* buffers = &s.buffer_list[list.first];
        if (buffers[0] == s.collectives[0].inputs[3]) std::swap(buffers[0], buffers[1]);
      }
    }
  };
  CHECK(reports(judged(with_other_order), Rule::wrong_value));
  const auto without_one = [](Schedule& s) {  // the second gradient is not in it
    s.collectives[0].values = 1;
    for (std::vector<BufferId>* list : {&s.collectives[0].inputs, &s.collectives[0].outputs}) {
      *list = {(*list)[0], (*list)[2], (*list)[4]};
    }
    for (Step& step : s.steps) {
      if (step.kind == StepKind::collective) step.reads.count = step.writes.count = 1;
    }
  };
  CHECK(reports(judged(without_one), Rule::incomplete));
}

TEST_CASE("one flow of a ring stands for all rounds: it takes their latencies and waits for all ranks", "[check]") {
  const auto ring = [](Seconds seconds, bool waits, std::int64_t bytes = 12) {
    Ranks ranks(4, Seconds{0.5});
    for (const auto& buffers : {ranks.g, ranks.h}) {
      const CollectiveId id = ranks.collective(CollectiveKind::all_reduce, buffers, buffers);
      for (std::uint32_t d = 0; d < 4; ++d) {
        const std::uint32_t next = (d + 1) % 4;
        ranks.flow(id, d, next, buffers[d], buffers[next], bytes, {}, seconds);  // 2 * 3 / 4 of 8 bytes
        if (!waits) ranks.flows.back().waits = {ranks.backward[d], ranks.backward[next]};
      }
    }
    return ranks.judged();
  };
  CHECK(ring(Seconds{5 * 0.5}, true).empty());  // six rounds; the engine adds the last latency
  CHECK(reports(ring(Seconds{4 * 0.5}, true), Rule::collective));
  CHECK(reports(ring(Seconds{0}, true), Rule::collective));
  CHECK(reports(ring(Seconds{5 * 0.5}, false), Rule::not_ordered));
  CHECK(reports(ring(Seconds{5 * 0.5}, true, 8), Rule::collective));  // as many as a rank has, too few for all to sum
}

TEST_CASE("a round of a ring that does not wait for the one before is named", "[check]") {
  const auto judged_without_wait = [](std::optional<std::size_t> forgotten) {
    Ranks ranks(3, Seconds{0.5});
    for (std::uint32_t d = 0; d < 3; ++d) ranks.graph.tensors[1].bytes = Bytes{8};
    std::vector<Rank> g, h;
    for (std::uint32_t d = 0; d < 3; ++d) g.push_back({DeviceId{d}, {ranks.g[d]}, {ranks.backward[d]}});
    for (std::uint32_t d = 0; d < 3; ++d) h.push_back({DeviceId{d}, {ranks.h[d]}, {ranks.backward[d]}});
    ring_all_reduce(ranks.builder, ranks.platform, g, Collectives::expanded);
    ring_all_reduce(ranks.builder, ranks.platform, h, Collectives::expanded);
    Schedule schedule = ranks.builder.finish();
    schedule.replicas = 3;
    if (forgotten) schedule.steps[*forgotten].waits.count = 0;
    return check(schedule, ranks.graph, ranks.platform);
  };
  CHECK(judged_without_wait({}).empty());
  for (std::size_t step = 6; step < 15; ++step) {  // from the second of the first collective's four rounds on
    INFO("step " << step);
    CHECK_FALSE(judged_without_wait(step).empty());
  }
}

TEST_CASE("ranks that begin two collectives of their group in opposite orders are named", "[check]") {
  for (const bool crossed : {false, true}) {
    Ranks ranks(2);
    const CollectiveId of_g = ranks.collective(CollectiveKind::all_reduce, ranks.g, ranks.g),
                       of_h = ranks.collective(CollectiveKind::all_reduce, ranks.h, ranks.h);
    ranks.flow(of_g, 0, 1, ranks.g[0], ranks.g[1], 8);
    if (!crossed) ranks.flow(of_g, 1, 0, ranks.g[1], ranks.g[0], 8);
    ranks.flow(of_h, 0, 1, ranks.h[0], ranks.h[1], 8);
    ranks.flow(of_h, 1, 0, ranks.h[1], ranks.h[0], 8);
    if (crossed) ranks.flow(of_g, 1, 0, ranks.g[1], ranks.g[0], 8);
    const std::vector<Violation> found = ranks.judged();
    REQUIRE(found.size() == (crossed ? 1 : 0));
    if (!crossed) continue;
    CHECK(found[0].rule == Rule::collective);
    CHECK(found[0].what ==
          "step 4 begins collective 1 on 'gpu1', which begins collective 0 later; 'gpu0' begins that one first (step "
          "2): ranks of one group that begin its collectives in opposite orders wait for each other");
  }
}

TEST_CASE("collectives of different groups may begin in any order", "[check]") {
  Ranks ranks(3);
  const CollectiveId of_two = ranks.collective(CollectiveKind::all_reduce, {ranks.g[0], ranks.g[1]},
                                               {ranks.g[0], ranks.g[1]}),
                     of_all = ranks.collective(CollectiveKind::broadcast, ranks.h, ranks.h);
  ranks.flow(of_two, 0, 1, ranks.g[0], ranks.g[1], 8);
  const std::size_t sent = ranks.flow(of_all, 0, 1, ranks.h[0], ranks.h[1], 8);
  ranks.flow(of_all, 1, 2, ranks.h[1], ranks.h[2], 8, {sent});
  ranks.flow(of_two, 1, 0, ranks.g[1], ranks.g[0], 8);
  for (const Violation& found : ranks.judged()) CHECK(found.what.find("opposite orders") == std::string::npos);
}

TEST_CASE("a reader of a result between a collective's flows is named, and so is a change", "[check]") {
  Ranks ranks(2);
  exchange_all(ranks, ranks.h, 0, 1, 8);
  const CollectiveId id = ranks.collective(CollectiveKind::all_reduce, ranks.g, ranks.g);
  ranks.flow(id, 1, 0, ranks.g[1], ranks.g[0], 8);
  NewStep reader{.kind = StepKind::offload,
                 .stream = ranks.builder.stream(DeviceId{0}, way::device_to_host),
                 .work = {.bytes = Bytes{8}, .route = ranks.builder.route(MemoryId{0}, MemoryId{2})},
                 .reads = {ranks.g[0]},
                 .allocates = {ranks.builder.buffer({.tensor = gradient, .memory = MemoryId{2}, .bytes = Bytes{8}})},
                 .waits = ranks.backward};
  ranks.flows.push_back(reader);
  ranks.flow(id, 0, 1, ranks.g[0], ranks.g[1], 8);
  CHECK(reports(ranks.judged(), Rule::not_ordered));
}

TEST_CASE("contributions are kept by range: sums join where they are equal and differ where they are not", "[check]") {
  RangedSums whole(Bytes{0}, Bytes{10}), left(Bytes{0}, Bytes{4}), right(Bytes{4}, Bytes{6});
  CHECK(whole.add(0));
  CHECK_FALSE(whole.add(0));
  CHECK(left.add(1));
  CHECK(right.add(2));
  CHECK(whole.add(left));
  CHECK(whole.all_have(1) == false);
  CHECK(whole.add(right));
  CHECK(whole.all_have(2));
  CHECK_FALSE(whole.add(right));
  CHECK(whole.within(Bytes{0}, Bytes{4}).all_have(2));
  CHECK_FALSE(whole.within(Bytes{3}, Bytes{2}).add(left));
  RangedSums half(Bytes{0}, Bytes{10}), again(Bytes{0}, Bytes{10});
  CHECK(half.add(left));
  CHECK(again.add(1));
  CHECK_FALSE(half.add(again));  // though the right part has nothing of it
  RangedSums empty(Bytes{4}, Bytes{0});
  CHECK(empty.add(right));
  CHECK(empty.all_have(1));
}

}  // namespace
}  // namespace plimsoll
