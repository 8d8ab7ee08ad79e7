// Shares of a step whose kernels were timed with shares by the formulas of platforms/README.md, written out here.

#include "platforms/recorded_efficiency.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "platforms/efficiency_file.h"
#include "platforms/efficiency_fit.h"
#include "platforms/platform_file.h"
#include "platforms/written_platform.h"
#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

constexpr double floor_s = 2e-6, peak = 989.4e12, bandwidth = 3.35e12;

class StepWriter {
 public:
  TensorId tensor(std::vector<std::int64_t> shape) {
    std::int64_t numbers = 1;
    for (const std::int64_t n : shape) numbers *= n;
    graph_.tensors.push_back({.name = "t" + std::to_string(graph_.tensors.size()),
                              .bytes = Bytes{2 * numbers},
                              .storage = id_at<StorageId>(graph_.storages++),
                              .shape = std::move(shape),
                              .dtype = "bfloat16"});
    return id_at<TensorId>(graph_.tensors.size() - 1);
  }

  void op(const std::string& kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs, double flops,
          double seconds) {
    std::int64_t bytes = 0;
    for (const auto* list : {&inputs, &outputs}) {
      for (const TensorId t : *list) bytes += graph_[t].bytes.count;
    }
    graph_.ops.push_back({.name = kind + std::to_string(graph_.ops.size()),
                          .kind = kind,
                          .duration = Seconds{seconds},
                          .flops = Flops{flops},
                          .bytes_moved = Bytes{bytes},
                          .inputs = std::move(inputs),
                          .outputs = std::move(outputs)});
  }

  void moving(const std::string& kind, std::int64_t numbers, double share) {
    const double seconds = 4.0 * static_cast<double>(numbers) / (share * bandwidth) + floor_s;
    op(kind, {tensor({numbers})}, {tensor({numbers})}, 0, seconds);
  }

  void product(std::int64_t m, std::int64_t n, std::int64_t k, double share) {
    const double flops = 2.0 * static_cast<double>(m * n * k), bytes = 2.0 * static_cast<double>(m * k + k * n + m * n);
    const double seconds = (std::max(flops / peak, bytes / bandwidth) + floor_s) / share;
    op("mm", {tensor({m, k}), tensor({k, n})}, {tensor({m, n})}, flops, seconds);
  }

  const Graph& graph() const { return graph_; }

 private:
  Graph graph_;
};

double share_of(const RecordedEfficiency& made, const std::string& key) {
  const auto found = std::ranges::find(made.sorts, key, &RecordedSort::key);
  REQUIRE(found != made.sorts.end());
  CHECK(found->by_share.value == Approx(found->measured.value).epsilon(1e-9));
  return found->share;
}

TEST_CASE("a step that ran with shares says these shares", "[efficiency]") {
  std::mt19937 random(11);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  StepWriter step;
  step.op("add", {step.tensor({8})}, {step.tensor({8})}, 0, floor_s);  // the shortest
  for (int k = 0; k < 120; ++k) {
    step.moving("mul", between(1'000'000, 90'000'000), 0.8);
    step.moving("native_layer_norm", between(1'000'000, 90'000'000), 0.35);
    step.product(64 * between(1, 64), 64 * between(1, 64), 64 * between(1, 64), 0.7);
  }
  step.moving("_softmax", 5'000'000, 0.5);
  step.op("odd", {step.tensor({64})}, {step.tensor({64})}, 1e12, 0.25);  // computes much: of no sort
  const Device device = load_platform("h100_sxm_8").devices.front();
  const RecordedEfficiency made = recorded_efficiency(step.graph(), device, "mine");
  CHECK(share_of(made, "elementwise") == Approx(0.8).epsilon(1e-4));
  CHECK(share_of(made, "norm") == Approx(0.35).epsilon(1e-4));
  CHECK(share_of(made, "softmax") == Approx(0.5).epsilon(1e-4));
  CHECK(share_of(made, "product_without_table.bf16") == Approx(0.7).epsilon(1e-4));
  CHECK(made.sorts.size() == 4);
  CHECK(std::ranges::is_sorted(made.sorts, std::ranges::greater{}, &RecordedSort::measured));
  CHECK(std::pair(made.others, made.of_others.value) == std::pair(std::size_t{1}, 0.25));
  CHECK(made.efficiency.kernel_floor.value == floor_s);
  // All kernels alike: the spread of 100 and more is none.
  CHECK(made.efficiency.spread.at("product_without_table").low == Approx(1).epsilon(1e-3));
  CHECK(!made.efficiency.spread.contains("softmax"));
  // The file says it again.
  const Efficiency read = parse_efficiency(written_efficiency(made.efficiency, "a test"), "mine.yaml");
  CHECK(read.elementwise == Approx(0.8).epsilon(1e-3));
  CHECK(read.product_without_table.at("bf16") == Approx(0.7).epsilon(1e-3));
}

TEST_CASE("kernels that are no faster by any share are said with what is left", "[efficiency]") {
  StepWriter step;
  step.op("add", {step.tensor({8})}, {step.tensor({8})}, 0, floor_s);
  step.moving("mul", 50'000'000, 9);  // out of a cache that no GPU has
  const RecordedEfficiency made =
      recorded_efficiency(step.graph(), load_platform("h100_sxm_8").devices.front(), "mine");
  REQUIRE(made.sorts.size() == 1);
  CHECK(made.sorts[0].share == Approx(largest_share));
  CHECK(made.sorts[0].by_share > made.sorts[0].measured);
}

TEST_CASE("a recording without times, and a device without figures, are refused", "[efficiency]") {
  StepWriter step;
  step.moving("mul", 1000, 1);
  Graph graph = step.graph();
  CHECK(complaint_of([&] { recorded_efficiency(graph, load_platform("ideal").devices.front(), "mine"); }) ==
        "the device 'gpu' has no peak or no memory_bandwidth, of which shares could be");
  graph.ops[0].duration.reset();
  CHECK(complaint_of([&] { recorded_efficiency(graph, load_platform("h200").devices.front(), "mine"); }) ==
        "no op of the recording has a time and a sort that is measured by itself");
}

}  // namespace
TEST_CASE("a platform with efficiencies written out is the platform that takes them by name", "[efficiency]") {
  StepWriter step;
  for (const std::int64_t numbers : {1 << 20, 1 << 22, 1 << 24}) step.moving("add", numbers, 0.5);
  const Platform plain = load_platform("h100_sxm_8");
  const RecordedEfficiency made = recorded_efficiency(step.graph(), plain.devices[0], "mine");
  const std::string text = platform_with_efficiency("h100_sxm_8", made.efficiency, "kernels of \"a step\"");
  const Platform platform = parse_platform(text, "mine.yaml");
  CHECK(platform.name == "mine");
  CHECK(platform.source == plain.source + "; kernels of \"a step\"");
  CHECK(platform.devices.size() == plain.devices.size());
  CHECK(platform.links.size() == plain.links.size());
  CHECK(text.find("# data sheet, SXM: 3.35 TB/s") != std::string::npos);  // the comments are the figures' sources
  CHECK(text.find("$schema") == std::string::npos);
  for (const Device& device : platform.devices) {
    REQUIRE(device.efficiency != nullptr);
    const auto* own = dynamic_cast<const Efficiency*>(device.efficiency.get());
    REQUIRE(own != nullptr);
    CHECK(own->elementwise == Approx(made.efficiency.elementwise).epsilon(1e-3));
  }
  CHECK(parse_efficiency(text, "mine.yaml").elementwise ==
        Approx(made.efficiency.elementwise).epsilon(1e-3));  // for another platform
  const Platform own = parse_platform(
      "format: plimsoll.platform.v1\nname: p\nsource: s\nefficiency: h100_sxm\ndevices:\n- {name: a, memory: 1 GB}\n"
      "- {name: b, memory: 1 GB, efficiency: {format: plimsoll.efficiency.v1, name: e, source: s, model: m, norm: "
      "0.2}}\n",
      "own.yaml");
  CHECK(dynamic_cast<const Efficiency&>(*own.devices[0].efficiency).name == "h100_sxm");
  CHECK(dynamic_cast<const Efficiency&>(*own.devices[1].efficiency).norm == 0.2);
}

TEST_CASE("comments stay, the document goes on, and a name may be anything", "[efficiency]") {
  const TemporaryFolder folder;
  write_text_file(folder / "p.yaml",
                  "format: plimsoll.platform.v1\nname: p\n# of the name\nsource: >-\n  two\n  lines\n# of devices\n\n"
                  "devices: [{name: a, memory: 1 GB, peak: {fp32: 1 TFLOPS}, memory_bandwidth: 1 TBps}]\n...\n");
  Efficiency made;
  made.name = "[odd: name #";
  made.model = "m";
  made.norm = 0.25;
  const std::string text = platform_with_efficiency((folder / "p.yaml").string(), made, "s");
  CHECK(text.find("# of the name\n") != std::string::npos);
  CHECK(text.find("# of devices\n") != std::string::npos);
  const Platform platform = parse_platform(text, "mine.yaml");
  CHECK(platform.name == made.name);
  CHECK(platform.source == "two lines; s");
  CHECK(dynamic_cast<const Efficiency&>(*platform.devices[0].efficiency).name == made.name);
  CHECK(parse_efficiency(written_efficiency(made, "s"), "e.yaml").name == made.name);
}

TEST_CASE("efficiencies are written into no platform that has them, and not read from one without", "[efficiency]") {
  Efficiency made;
  made.name = "mine";
  CHECK(complaint_of([&] { platform_with_efficiency("h200:nodes=2", made, "s"); }) ==
        "platform 'h200:nodes=2': expected no options, which the new file takes as well");
  CHECK(complaint_of([&] { platform_with_efficiency("h200:efficiency=h200_sxm", made, "s"); }).find("no options") !=
        std::string::npos);
  const std::string plain = "format: plimsoll.platform.v1\nname: p\nsource: s\ndevices: [{name: a, memory: 1 GB}]\n";
  CHECK(complaint_of([&] { parse_efficiency(plain, "plain.yaml"); }) ==
        "plain.yaml:1:1: a platform in which no efficiencies are written out");
  CHECK(complaint_of([&] {
          parse_platform(plain + "efficiency: {name: e, norm: 7}\n", "odd.yaml");
        }).find("odd.yaml:5:") == 0);
}

}  // namespace plimsoll
