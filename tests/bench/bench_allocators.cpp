// How many requests and frees a second the allocators replay. The bar: 3,000,000 events a second.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/memory/caching_allocator.h"
#include "sim/memory/exact_packing.h"
#include "sim/memory/offset_assignment.h"
#include "tests/generate/random.h"

namespace {

using namespace plimsoll;

constexpr std::int64_t KiB = 1 << 10, MiB = 1 << 20;

/// An allocation, or the free of an earlier one.
struct Event {
  std::uint32_t buffer;
  bool allocates;
};
struct Trace {
  std::vector<Bytes> sizes;
  std::vector<Event> events;

  std::uint32_t take(std::int64_t bytes) {
    sizes.push_back({bytes});
    events.push_back({static_cast<std::uint32_t>(sizes.size() - 1), true});
    return events.back().buffer;
  }
  void free(std::uint32_t buffer) { events.push_back({buffer, false}); }
};

/// Iterations of training a transformer: every op of a layer has a result that is kept and scratch that is not;
/// backward frees what was kept, last first, with two gradients alive at a time. Parameters and their gradients stay.
Trace training(int iterations) {
  constexpr int layers = 48;
  constexpr std::int64_t kept[] = {32 * MiB, 96 * MiB, 8 * MiB, 32 * MiB, 32 * MiB, 128 * MiB, 128 * MiB, 64 * KiB};
  Trace trace;
  for (int p = 0; p < 12 * layers; ++p) trace.take((p % 3 == 0 ? 4 * KiB : 16 * MiB));
  for (int i = 0; i < iterations; ++i) {
    std::vector<std::uint32_t> saved;
    for (int layer = 0; layer < layers; ++layer) {
      for (const std::int64_t bytes : kept) {
        saved.push_back(trace.take(bytes));
        const std::uint32_t scratch = trace.take(bytes / 2 + 512 * layer);
        trace.free(scratch);
      }
    }
    std::uint32_t gradient = trace.take(kept[0]);
    for (; !saved.empty(); saved.pop_back()) {
      const std::uint32_t next = trace.take(trace.sizes[saved.back()].count);
      trace.free(saved.back());
      trace.free(gradient);
      gradient = next;
    }
    trace.free(gradient);
  }
  return trace;
}

/// Sizes from 1 KiB to 64 MiB, equally many of every power, with so many buffers live, freed in no order.
Trace shuffled(std::size_t events, std::size_t at_once) {
  Random random(1);
  Trace trace;
  std::vector<std::uint32_t> live;
  while (trace.events.size() < events) {
    if (live.size() > at_once || (!live.empty() && random.chance(0.49))) {
      std::uint32_t& which = live[random.below(static_cast<std::uint32_t>(live.size()))];
      trace.free(which);
      which = live.back();
      live.pop_back();
    } else {
      const std::int64_t power = std::int64_t{1} << random.between(10, 25);
      live.push_back(trace.take(power + random.below(static_cast<std::uint32_t>(power))));
    }
  }
  return trace;
}

void replay(benchmark::State& state, const Trace& trace, const CachingSettings& settings) {
  std::vector<BlockId> blocks(trace.sizes.size());
  Bytes reserved;
  for (auto _ : state) {
    CachingAllocator allocator(settings);
    for (const Event& event : trace.events) {
      if (event.allocates) {
        blocks[event.buffer] = *allocator.allocate(trace.sizes[event.buffer], StreamId{0});
      } else {
        allocator.free(blocks[event.buffer]);
      }
    }
    reserved = allocator.reserved();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace.events.size()));
  state.counters["reserved_GB"] = static_cast<double>(reserved.count) / 1e9;
}

CachingSettings settings_of(const benchmark::State& state) {
  constexpr Segments kinds[] = {Segments::native, Segments::expandable, Segments::stitched};
  return {.segments = kinds[state.range(0)], .fragment_limit = Bytes{2 * MiB}};
}

void replay_training(benchmark::State& state) {
  static const Trace trace = training(500);
  replay(state, trace, settings_of(state));
}
BENCHMARK(replay_training)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void replay_shuffled(benchmark::State& state) {
  const Trace trace = shuffled(1'000'000, static_cast<std::size_t>(state.range(1)));
  replay(state, trace, settings_of(state));
}
BENCHMARK(replay_shuffled)->ArgsProduct({{0, 1, 2}, {500, 5000}})->Unit(benchmark::kMillisecond);

/// Offsets of one or ten iterations of the training above.
void plan_training(benchmark::State& state) {
  const Trace trace = training(static_cast<int>(state.range(0)));
  std::vector<Lifetime> lifetimes(trace.sizes.size());
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    lifetimes[b] = {trace.sizes[b], 0, static_cast<std::uint32_t>(trace.events.size())};
  }
  for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
    Lifetime& lifetime = lifetimes[trace.events[e].buffer];
    (trace.events[e].allocates ? lifetime.begin : lifetime.end) = e;
  }
  OffsetPlan plan;
  for (auto _ : state) plan = assign_offsets(lifetimes);
  state.counters["buffers"] = static_cast<double>(lifetimes.size());
  state.counters["above_load"] = static_cast<double>(plan.size.count) / static_cast<double>(plan.load.count);
}
BENCHMARK(plan_training)->Arg(1)->Arg(10)->Unit(benchmark::kMillisecond);

/// Lines `id,begin,end,size` after a first one, of an instance of MiniMalloc; none without the shared folder.
std::vector<Lifetime> shared_instance(char letter) {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) return {};
  const std::string file = std::string(shared) + "/data/offset_assignment/minimalloc_" + letter + ".csv.gz";
  FILE* pipe = popen(("zcat " + file).c_str(), "r");
  std::vector<Lifetime> lifetimes;
  unsigned id = 0, begin = 0, end = 0;
  long size = 0;
  if (pipe == nullptr || std::fscanf(pipe, "%*s") != 0) return {};
  while (std::fscanf(pipe, "%u,%u,%u,%ld", &id, &begin, &end, &size) == 4) lifetimes.push_back({{size}, begin, end});
  pclose(pipe);
  return lifetimes;
}

/// All eleven, each within the block that was published for it.
void pack_public(benchmark::State& state) {
  std::vector<std::vector<Lifetime>> instances;
  for (const char letter : std::string("ABCDEFGHIJK")) instances.push_back(shared_instance(letter));
  if (instances.front().empty()) return state.SkipWithError("PLIMSOLL_SHARED has no instances");
  std::size_t packed = 0;
  for (auto _ : state) {
    packed = 0;
    for (const std::vector<Lifetime>& each : instances) {
      packed += pack_within(each, Bytes{1'048'576}, 3'000'000).end == PackingEnd::found ? 1 : 0;
    }
  }
  state.counters["packed"] = static_cast<double>(packed);
}
BENCHMARK(pack_public)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
