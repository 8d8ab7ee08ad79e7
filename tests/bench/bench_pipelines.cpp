// Orders of pipelines: the search alone, without a schedule.

#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/zero_bubble_search.h"

namespace {

using namespace plimsoll;

/// Equal parts; a transformer's share of what is kept for weight gradients.
PartCosts equal_costs(std::size_t parts, double f, double b, double w, double sent) {
  PartCosts costs;
  costs.f.assign(parts, f);
  costs.b.assign(parts, b);
  costs.w.assign(parts, w);
  costs.sent.assign(parts - 1, sent);
  costs.returned = costs.sent;
  costs.kept.assign(parts, 74);
  costs.kept_for_weights.assign(parts, 32);
  return costs;
}

std::vector<std::int64_t> limits(std::size_t ranks, std::int64_t micro_batches) {
  return std::vector<std::int64_t>(ranks, 74 * micro_batches);
}

/// zb_auto at both limits of the twelve settings of Qi et al. 2024.
void zero_bubble_table(benchmark::State& state) {
  struct Row {
    std::uint32_t p, m;
    double f, b, w, sent;
  };
  constexpr std::array rows{Row{8, 24, 18522, 18086, 9337, 601},   Row{8, 32, 18513, 18086, 9331, 626},
                            Row{8, 64, 18546, 18097, 9321, 762},   Row{8, 24, 29718, 29444, 19927, 527},
                            Row{8, 32, 29802, 29428, 19530, 577},  Row{8, 64, 29935, 29621, 19388, 535},
                            Row{16, 48, 11347, 11248, 8132, 377},  Row{16, 64, 11307, 11254, 8101, 379},
                            Row{16, 128, 11325, 11308, 8109, 378}, Row{32, 96, 10419, 10207, 7715, 408},
                            Row{32, 128, 10408, 10204, 7703, 408}, Row{32, 256, 10402, 10248, 7698, 460}};
  for (auto _ : state) {
    for (const Row& row : rows) {
      const PartCosts costs = equal_costs(row.p, row.f, row.b, row.w, row.sent);
      for (const std::int64_t limit : {1, 2}) {
        benchmark::DoNotOptimize(zero_bubble_search(costs, row.m, limits(row.p, limit * row.p)));
      }
    }
  }
}
BENCHMARK(zero_bubble_table)->Unit(benchmark::kMillisecond);

/// zb_v of 64 devices and 512 micro-batches.
void v_of_64(benchmark::State& state) {
  const PartCosts costs = equal_costs(128, 9458, 9748, 7288, 879);
  for (auto _ : state) benchmark::DoNotOptimize(v_shape_search(costs, 512, limits(64, 128)));
}
BENCHMARK(v_of_64)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
