// Collectives as NCCL has them: as they were measured in a node, and by its own rule over several nodes.

#include "sim/mesh/nccl_times.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>

#include "platforms/efficiency_file.h"
#include "platforms/efficiency_fit.h"
#include "platforms/platform_file.h"
#include "sim/io/text_file.h"
#include "sim/mesh/collective_times.h"
#include "sim/model/problem.h"
#include "sim/ops/efficiency.h"
#include "tests/bad_input.h"
#include "traces/models/synthetic.h"

using namespace plimsoll;

namespace {

using enum CollectiveKind;

/// Two nodes of two devices: 20 GB/s within, one card of 8 GB/s for each node.
Platform two_nodes() {
  return parse_platform(
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\nnodes: 2\n"
      "devices:\n  - {name: gpu, count: 2, memory: 1 GB, peak: {bf16: 10 TFLOPS}, memory_bandwidth: 100 GBps}\n"
      "switches:\n  - {name: inside}\n  - {name: fabric, scope: cluster}\n"
      "links:\n  - {name: fast, between: [gpu, inside], bandwidth: 20 GBps, latency: 1 us}\n"
      "  - {name: slow, between: [inside, fabric], bandwidth: 8 GBps, latency: 5 us}\n",
      "machine.yaml");
}

/// All_reduces of two ranks: 10 us up to 1 kB, 100 us for 1 MB, and half of the network.
std::shared_ptr<const Efficiency> two_ranks() {
  return std::make_shared<const Efficiency>(
      parse_efficiency("format: plimsoll.efficiency.v1\nname: e\nsource: s\nmodel: M\ncollectives:\n  network: 0.5\n"
                       "  all_reduce: {ranks: [2], bytes: [1000, 1000000], us: [10, 100]}\n",
                       "e.yaml"));
}

Platform with(Platform platform, const std::shared_ptr<const Efficiency>& efficiency) {
  for (Device& device : platform.devices) device.efficiency = efficiency;
  return platform;
}

double seconds(const Platform& platform, CollectiveKind kind, std::int64_t bytes, std::vector<std::uint32_t> axes,
               CollectiveWay way = CollectiveWay::nccl) {
  auto made = CollectiveTimes::on(platform, {{{"outer", 2, false, way}, {"inner", 2, false, way}}});
  return std::get<CollectiveTimes>(made).seconds(kind, Bytes{bytes}, axes).value;
}

}  // namespace

TEST_CASE("in a node collectives take what was measured there", "[hybrid][nccl]") {
  const Platform platform = with(two_nodes(), two_ranks());
  CHECK(seconds(platform, all_reduce, 1, {1}) == Approx(10e-6));
  CHECK(seconds(platform, all_reduce, 1000, {1}) == Approx(10e-6));
  CHECK(seconds(platform, all_reduce, 31'623, {1}) ==
        Approx(31.623e-6).epsilon(1e-4));  // the middle of both logarithms
  CHECK(seconds(platform, all_reduce, 1'000'000, {1}) == Approx(100e-6));
  CHECK(seconds(platform, all_reduce, 10'000'000, {1}) == Approx(1000e-6));  // the last bandwidth
  CHECK(seconds(platform, all_gather, 1'000'000, {1}) ==
        Approx(seconds(platform, all_gather, 1'000'000, {1}, CollectiveWay::ring)));  // not measured
}

TEST_CASE("what a faster link was measured at does not hold on a slower one", "[hybrid][nccl]") {
  Platform slow = with(two_nodes(), two_ranks());  // measured: 10 GB/s
  for (Link& link : slow.links) link.bandwidth = BytesPerSecond{9e9};
  CHECK(seconds(slow, all_reduce, 1'000'000, {1}) ==
        Approx(seconds(slow, all_reduce, 1'000'000, {1}, CollectiveWay::ring)));
  for (Link& link : slow.links) link.bandwidth = BytesPerSecond{10e9};
  CHECK(seconds(slow, all_reduce, 1'000'000, {1}) == Approx(100e-6));
}

TEST_CASE("over nodes collectives take a ring or trees through all cards of a node", "[hybrid][nccl]") {
  const Platform platform = with(two_nodes(), two_ranks());
  constexpr std::int64_t large = 1'000'000'000;
  // All four ranks have the node's card: half of 8 GB/s. Six steps, two of them between nodes.
  CHECK(seconds(platform, all_reduce, large, {0, 1}) == Approx(2 * 0.75 * 1e9 / 4e9 + (8.4 + 4 * 3.4 + 2 * 14) * 1e-6));
  CHECK(seconds(platform, all_gather, large, {0, 1}) == Approx(0.75 * 1e9 / 4e9 + (8.4 + 2 * 3.4 + 14) * 1e-6));
  // Two groups of one rank in each node share it.
  CHECK(seconds(platform, all_reduce, large, {0}) == Approx(1e9 / 2e9 + (8.4 + 2 * 14) * 1e-6));
  CHECK(seconds(platform, all_reduce, 8, {0, 1}) == Approx((6.6 + 4 * 0.6 + 2 * 2.7) * 1e-6).epsilon(1e-3));
  CHECK(seconds(platform, all_to_all, large, {0, 1}) ==
        Approx(seconds(platform, all_to_all, large, {0, 1}, CollectiveWay::ring)));

  // Of 16 nodes trees are faster, which gathers do not have.
  const NcclGroup group{.ranks = 32, .nodes = 16, .in_node = 2, .link = {1e11}, .network = {1e10}};
  CHECK(nccl_seconds(*two_ranks(), group, all_reduce, 1)->value ==
        Approx((6.8 + 2 * 0.6 + 8 * 5) * 1e-6).epsilon(1e-3));
  CHECK(nccl_seconds(*two_ranks(), group, all_gather, 1)->value ==
        Approx((6.6 + 16 * 0.6 + 15 * 2.7) * 1e-6).epsilon(1e-3));
}

// What two ranks gather is twice what one of them sends. Of groups over two nodes one hop leaves each; two groups share
// its card, and pass 1 us within and 5 us beyond the node on either side.
/// Eight ranks a node, whose all_reduce of 8 MB takes 100 us beyond 1 MB, and 12 us up to that.
std::shared_ptr<const Efficiency> eight_ranks(bool nvls) {
  return std::make_shared<const Efficiency>(parse_efficiency(
      std::string("format: plimsoll.efficiency.v1\nname: e\nsource: s\nmodel: M\ncollectives:\n  network: 0.5\n") +
          (nvls ? "  nvls: true\n" : "") + "  all_reduce: {ranks: [8], bytes: [1000000, 8000000], us: [12, 100]}\n",
      "e.yaml"));
}

// 8 MB in 100 us: 80 GB/s of each rank once, and 140 GB/s of a ring, which links of 100 GB/s do not carry.
TEST_CASE("where switches sum, links carry an all_reduce once", "[hybrid][nccl]") {
  NcclGroup group{.ranks = 8, .nodes = 1, .in_node = 8, .link = BytesPerSecond{100e9}};
  CHECK(!nccl_seconds(*eight_ranks(false), group, all_reduce, 8e6));
  CHECK(nccl_seconds(*eight_ranks(true), group, all_reduce, 8e6)->value == Approx(100e-6));
  group.link = BytesPerSecond{70e9};
  CHECK(!nccl_seconds(*eight_ranks(true), group, all_reduce, 8e6));
  const Efficiency h100 = load_efficiency("h100_sxm");
  const NcclGroup node{.ranks = 8, .nodes = 1, .in_node = 8, .link = BytesPerSecond{374e9}};  // h100_sxm_8
  CHECK(nccl_seconds(h100, node, all_reduce, 536'870'912)->value == Approx(2111e-6).epsilon(1e-3));
}

TEST_CASE("over nodes whose switches sum an all_reduce takes a tree of these", "[hybrid][nccl]") {
  const auto with_network = [](std::uint32_t nodes, double network, double bytes, bool nvls = true) {
    const NcclGroup group{.ranks = 8 * nodes,
                          .nodes = nodes,
                          .in_node = 8,
                          .link = BytesPerSecond{100e9},
                          .network = BytesPerSecond{network}};
    return nccl_seconds(*eight_ranks(nvls), group, all_reduce, bytes)->value;
  };
  // Half of 40 GB/s; 1.2 bytes, and 25 us and two steps of 14. A ring has 1.875 bytes at least.
  CHECK(with_network(2, 40e9, 1e9) == Approx(25e-6 + 28e-6 + 1.2e9 / 20e9));
  // Four nodes: 2.4 bytes, more than trees without it.
  for (const double bytes : {1e3, 1e6, 1e9}) {
    CHECK(with_network(4, 40e9, bytes) == with_network(4, 40e9, bytes, false));
  }
  // A network without limit: 80 GB/s, as in a node.
  CHECK(with_network(2, 1e15, 8e9) == Approx(25e-6 + 28e-6 + 0.1));
  for (const double bytes : {1e3, 1e5, 1e7, 1e9})
    CHECK(with_network(2, 40e9, bytes) <= with_network(2, 40e9, bytes, false));
}

// github NVIDIA/nccl issue 1221: 16 and 32 H100 with eight cards of 400 Gb/s a node, 4 to 8 GB: 430 GB/s of bus
// bandwidth by NVLS, 330 without, and 320 over four nodes.
TEST_CASE("all_reduces over nodes of H100 are near what was reported", "[hybrid][nccl]") {
  Efficiency h100 = load_efficiency("h100_sxm");
  const auto bus = [&](std::uint32_t nodes, bool nvls) {
    h100.nvls = nvls;
    const NcclGroup group{.ranks = 8 * nodes,
                          .nodes = nodes,
                          .in_node = 8,
                          .link = BytesPerSecond{374e9},
                          .network = BytesPerSecond{8 * 50e9}};
    constexpr double bytes = 8e9;
    return 2.0 * (group.ranks - 1) / group.ranks * bytes / nccl_seconds(h100, group, all_reduce, bytes)->value / 1e9;
  };
  CHECK(bus(2, true) == Approx(430).epsilon(0.12));
  CHECK(bus(2, false) == Approx(330).epsilon(0.15));
  CHECK(bus(4, true) == Approx(320).epsilon(0.18));
  CHECK(bus(4, true) == bus(4, false));
}

TEST_CASE("a shift is one hop", "[hybrid][nccl]") {
  const auto gathers = std::make_shared<const Efficiency>(
      parse_efficiency("format: plimsoll.efficiency.v1\nname: e\nsource: s\nmodel: M\ncollectives:\n"
                       "  all_gather: {ranks: [2], bytes: [1000, 1000000], us: [10, 100]}\n",
                       "e.yaml"));
  CHECK(seconds(with(two_nodes(), gathers), shift, 500'000, {1}) == Approx(100e-6));
  CHECK(seconds(with(two_nodes(), two_ranks()), shift, 500'000, {1}) == Approx(2e-6 + 500'000 / 20e9));
  CHECK(seconds(two_nodes(), shift, 500'000, {1}) == Approx(2e-6 + 500'000 / 20e9));
  CHECK(seconds(with(two_nodes(), gathers), shift, 500'000, {0}) == Approx(12e-6 + 500'000 / 4e9));
  CHECK(seconds(two_nodes(), shift, 500'000, {0, 1}) == Approx(12e-6 + 500'000 / 8e9));
}

TEST_CASE("without measured times nccl is a ring", "[hybrid][nccl]") {
  for (const CollectiveKind kind : {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, shift}) {
    for (const std::int64_t bytes : {1, 100'000, 50'000'000}) {
      for (const std::vector<std::uint32_t>& axes : {std::vector<std::uint32_t>{0}, {1}, {0, 1}}) {
        CHECK(seconds(two_nodes(), kind, bytes, axes) == seconds(two_nodes(), kind, bytes, axes, CollectiveWay::ring));
      }
    }
  }
}

TEST_CASE("more bytes take no less, a faster network no more", "[hybrid][nccl]") {
  std::mt19937 random(17);
  const auto drawn = [&](double least, double most) {
    return std::exp(std::uniform_real_distribution(std::log(least), std::log(most))(random));
  };
  const Efficiency a100 = load_efficiency("a100_sxm"), h100 = load_efficiency("h100_sxm");
  for (int k = 0; k < 300; ++k) {
    const Efficiency& of = k % 2 == 0 ? a100 : h100;
    NcclGroup group;
    group.nodes = std::uniform_int_distribution(2U, 64U)(random);
    group.in_node = 1U << std::uniform_int_distribution(0U, 3U)(random);
    group.ranks = group.nodes * group.in_node;
    group.link = BytesPerSecond{drawn(2e10, 4e11)};
    group.network = BytesPerSecond{drawn(1e9, 4e11)};
    const CollectiveKind kind = std::array{all_reduce, reduce_scatter, all_gather}[random() % 3];
    const double bytes = drawn(1, 1e10);
    const double before = nccl_seconds(of, group, kind, bytes)->value;
    CHECK(nccl_seconds(of, group, kind, 1.5 * bytes)->value >= before);
    group.network.value *= 2;
    CHECK(nccl_seconds(of, group, kind, bytes)->value <= before);
    // No rank can send faster than its part of the network; what is summed in the node crosses it once a node.
    const double sent = of.nvls ? (group.nodes - 1.0) / group.nodes : (group.ranks - 1.0) / group.ranks;
    CHECK(2 * before >= (kind == all_reduce ? 2 : 1) * sent * bytes / group.network.value);
  }
}

TEST_CASE("adding gradients of micro-batches takes time where kernels are timed as measured", "[hybrid][nccl]") {
  const auto efficiency = std::make_shared<Efficiency>();
  efficiency->elementwise = 0.5;
  const auto seconds_of_weight_gradient = [&](const Platform& platform, std::uint32_t micro_batches,
                                              Gradients gradients, bool is_wide = false) {
    auto model = synthetic_model("transformer:layers=1,width=64,heads=4,sequence=16,batch=4,vocabulary=32,view=graph");
    for (Tensor& tensor : std::get<Graph>(model).tensors) {
      if (is_wide && tensor.kind == TensorKind::parameter_gradient) tensor.bytes = 2 * tensor.bytes;
    }
    auto made = make_problem(std::move(model), platform, {.micro_batches = micro_batches, .gradients = gradients});
    const Problem problem = std::get<Problem>(std::move(made));
    const auto op = std::ranges::find(problem.graph.ops, "layer0.mlp.down backward (weight)", &Op::name);
    REQUIRE(op != problem.graph.ops.end());
    return duration_on(problem, id_at<OpId>(static_cast<std::size_t>(op - problem.graph.ops.begin())), DeviceId{0},
                       Saving::keep)
        .value;
  };
  const Platform timed = with(two_nodes(), efficiency);
  const double once = seconds_of_weight_gradient(timed, 1, Gradients::fresh);
  const double added = 3 * (64 * 256 * 2) / (0.5 * 100e9);  // 16,384 numbers of 2 bytes: two are read, one is written
  CHECK(seconds_of_weight_gradient(timed, 4, Gradients::fresh) - once == Approx(0.75 * added));
  CHECK(seconds_of_weight_gradient(timed, 1, Gradients::existing) - once == Approx(added));
  CHECK(seconds_of_weight_gradient(timed, 4, Gradients::fresh, true) ==
        seconds_of_weight_gradient(timed, 1, Gradients::fresh, true));  // summed by the product itself
  CHECK(seconds_of_weight_gradient(two_nodes(), 4, Gradients::fresh) ==
        seconds_of_weight_gradient(two_nodes(), 1, Gradients::fresh));
}

TEST_CASE("tables of collectives are made of all combinations of their sizes", "[hybrid][nccl]") {
  const Device gpu = load_platform("a100_sxm_8").devices.front();
  const auto table = [&](const std::string& rows) {
    return fitted_table("operation,ranks,bytes,time_us\n" + rows, "c.csv", gpu, {.name = "c", .dtype = "bf16"});
  };
  std::string rows;
  for (const char* operation : {"all_reduce", "alltoall"}) {
    for (const int ranks : {2, 4}) {
      for (const int bytes : {1024, 4096}) {
        rows += std::string(operation) + "," + std::to_string(ranks) + "," + std::to_string(bytes) + "," +
                std::to_string(ranks * bytes / 100) + "\n";
      }
    }
  }
  const FittedTable fitted = table(rows);
  CHECK(fitted.rows == 8);
  CHECK(fitted.grid_points == 8);
  CHECK(fitted.efficiency.collective(all_to_all, 4, 4096)->value == Approx(163e-6));
  CHECK(fitted.efficiency.collective(all_reduce, 2, 1024)->value == Approx(20e-6));
  CHECK(!fitted.efficiency.collective(all_gather, 2, 1024));
  CHECK(!fitted.efficiency.collective(all_reduce, 8, 1024));
  const std::string text = written_efficiency(fitted.efficiency, "made up");
  CHECK(written_efficiency(parse_efficiency(text, "c.yaml"), "made up") == text);

  const auto complaint = [&](const std::string& more) { return complaint_of([&] { table(rows + more); }); };
  CHECK(complaint("all_reduce,8,1024,30\n") == "c.csv:10:1: a hole: no row of all_reduce with 8 ranks and 4096 bytes");
  CHECK(complaint("reduce,2,1024,30\n") ==
        "c.csv:10:1: operation: expected all_reduce, reduce_scatter, all_gather or all_to_all, found 'reduce'");
  CHECK(complaint("all_reduce,1,1024,30\n") == "c.csv:10:1: ranks: expected 2 or more, found 1");
  CHECK(complaint_of([] {
          parse_efficiency(
              "format: plimsoll.efficiency.v1\nname: e\nsource: s\nmodel: M\n"
              "collectives: {all_reduse: {ranks: [2], bytes: [1], us: [1]}}\n",
              "e.yaml");
        }).find("did you mean 'all_reduce'?") != std::string::npos);
}

TEST_CASE("shipped times of collectives are those that were measured, and near those of others", "[hybrid][nccl]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no public time is compared");
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(shared) / "data/gpu_kernels";
  const std::string measured = read_text_file(folder / "nccl_one_node.csv.gz"),
                    others = read_text_file(folder / "all_reduce_vtrain.csv.gz");
  std::map<std::string, Efficiency> shipped;
  for (const std::string& name : shipped_efficiencies()) shipped.emplace(name, load_efficiency(name));
  std::istringstream lines(measured);
  std::string line;
  std::size_t rows = 0;
  for (std::getline(lines, line); std::getline(lines, line);) {
    std::array<char, 32> gpu{}, operation{};
    unsigned ranks = 0;
    double bytes = 0, us = 0;
    REQUIRE(std::sscanf(line.c_str(), "%31[^,],%31[^,],%u,%lf,%lf", gpu.data(), operation.data(), &ranks, &bytes,
                        &us) == 5);
    const std::string name = gpu.data(), of = operation.data();
    if (!shipped.contains(name)) continue;
    const CollectiveKind kind = of == "all_reduce"       ? all_reduce
                                : of == "reduce_scatter" ? reduce_scatter
                                : of == "all_gather"     ? all_gather
                                                         : all_to_all;
    CHECK(shipped.at(name).collective(kind, ranks, bytes)->value == Approx(us * 1e-6).epsilon(1e-3));
    ++rows;
  }
  CHECK(rows == 1260);

  std::istringstream rows_of_others(others);
  double error = 0;
  std::size_t compared = 0;
  const Efficiency& a100 = shipped.at("a100_sxm");
  for (std::getline(rows_of_others, line); std::getline(rows_of_others, line);) {
    std::array<char, 32> gpu{};
    unsigned ranks = 0;
    double bytes = 0, us = 0;
    if (std::sscanf(line.c_str(), "%31[^,],%u,%lf,%lf", gpu.data(), &ranks, &bytes, &us) != 4) continue;
    if (std::string(gpu.data()) != "a100" || ranks < 2) continue;
    error += std::abs(a100.collective(all_reduce, ranks, bytes)->value / (1e-6 * us) - 1);
    ++compared;
  }
  REQUIRE(compared > 0);
  INFO(compared << " times of others, " << 100 * error / static_cast<double>(compared) << " % off in the mean");
  CHECK(error / static_cast<double>(compared) < 0.1);
}
