// Files of efficiencies, and tables made of measured times. Against public measurements where ../shared is there
// (PLIMSOLL_SHARED names it).

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "platforms/efficiency_file.h"
#include "platforms/efficiency_fit.h"
#include "platforms/platform_file.h"
#include "sim/io/text_file.h"
#include "tests/bad_input.h"

using namespace plimsoll;

namespace {

Device device() {
  return load_platform("h200").devices.front();
}

std::string complaint_about(const std::string& csv, const std::string& dtype = "bf16") {
  return complaint_of([&] { fitted_table(csv, "times.csv", device(), {.name = "mine", .dtype = dtype}); });
}

/// Eight rows of products with m from 16 on, each twice as long as the roofline.
std::string eight_rows() {
  std::string csv = "m,n,k,time_us\n";
  for (int m = 16; m <= 2048; m *= 2) csv += std::to_string(m) + ",4096,4096," + std::to_string(20 + m / 16) + "\n";
  return csv;
}

}  // namespace

TEST_CASE("a table of times that are a share of the roofline everywhere says that share", "[efficiency]") {
  const Device gpu = device();
  std::string csv = "m,n,k,time_us\n";
  std::mt19937 random(7);
  const auto size = [&](double most) {
    return std::floor(std::exp(std::uniform_real_distribution(0.0, std::log(most))(random)));
  };
  for (int row = 0; row < 400; ++row) {
    const GpuKernel kernel{
        .kind = KernelKind::product, .dtype = "bf16", .m = size(30000), .n = 100 + size(60000), .k = 100 + size(60000)};
    const double seconds = (product_roofline(gpu, kernel)->value + 2e-6) / 0.6;
    csv += std::to_string(static_cast<int>(kernel.m)) + "," + std::to_string(static_cast<int>(kernel.n)) + "," +
           std::to_string(static_cast<int>(kernel.k)) + "," + std::to_string(1e6 * seconds) + "\n";
  }
  const FittedTable fitted = fitted_table(csv, "f.csv", gpu, {.name = "mine", .dtype = "bf16"});
  CHECK(fitted.rows == 400);
  CHECK(fitted.mean_error < 1e-4);
  CHECK(fitted.roofline_error == Approx(0.4).margin(1e-3));
  for (const double value : fitted.efficiency.product.at("bf16").values())
    CHECK(std::exp(value) == Approx(0.6).epsilon(1e-3));
}

// Each of 64 products takes 0.3 of what the device's peak needs, sort and table are those of batches in fp32.
TEST_CASE("a table of products in batches times them by the sizes of each", "[efficiency]") {
  const Device gpu = device();
  std::string csv = "batch,m,n,k,time_us\n";
  const auto seconds = [&](double batch, double size) {
    const GpuKernel kernel{
        .kind = KernelKind::batched_product, .dtype = "fp32", .batch = batch, .m = size, .n = size, .k = 64};
    return (product_roofline(gpu, kernel)->value + 2e-6) / 0.3;
  };
  for (int size = 64; size <= 4096; size *= 2) {
    for (const int batch : {16, 64}) {
      csv += fmt::format("{},{},{},64,{}\n", batch, size, size, 1e6 * seconds(batch, size));
    }
  }
  const Efficiency made = fitted_table(csv, "f.csv", gpu, {.name = "mine", .dtype = "fp32"}).efficiency;
  CHECK(made.product.empty());
  const GpuKernel asked{.kind = KernelKind::batched_product, .dtype = "fp32", .batch = 40, .m = 512, .n = 512, .k = 64};
  const std::optional<KernelTime> time = kernel_time(made, gpu, asked, {Flops{1}, Bytes{1}});
  REQUIRE(time);
  CHECK(time->time.value == Approx(seconds(40, 512)).epsilon(1e-3));
  CHECK(sort_name(made, asked) == "fp32_batched_product");
  CHECK(sort_name(Efficiency{}, asked) == "batched_product");
  const Efficiency read = parse_efficiency(written_efficiency(made, "s"), "f.yaml");
  CHECK(read.batched_product_by_size.at("fp32").points() == made.batched_product_by_size.at("fp32").points());
}

TEST_CASE("a written table reads as it was", "[efficiency]") {
  FittedTable fitted = fitted_table(eight_rows(), "f.csv", device(), {.name = "mine", .dtype = "bf16"});
  Efficiency& made = fitted.efficiency;
  made.norm = 0.65;
  made.unaligned_product = {{"bf16", 0.125}};
  made.product_without_table = {{"fp32", 0.75}, {"tf32", 0.59}};
  made.convolution = {{"fp32", 0.48}};
  made.convolution_input_gradient = {{"fp32", 0.42}};
  made.convolution_weight_gradient = {{"fp32", 0.32}};
  made.channels_last_convolution = {{"bf16", 0.65}};
  made.channels_last_convolution_input_gradient = {{"bf16", 0.6}};
  made.channels_last_convolution_weight_gradient = {{"bf16", 0.48}};
  made.attention["bf16"].emplace(128, SizeGrid({{512, 4096}, {64}}, {std::log(0.25), std::log(0.5)}));
  const std::string text = written_efficiency(made, "made up, 2026-11-27");
  const Efficiency read = parse_efficiency(text, "f.yaml");
  CHECK(read.name == "mine");
  CHECK(read.model == "NVIDIA H200");
  CHECK(read.norm == 0.65);
  CHECK(read.unaligned_product == made.unaligned_product);
  CHECK(read.product_without_table == made.product_without_table);
  CHECK(read.convolution == made.convolution);
  CHECK(read.convolution_input_gradient == made.convolution_input_gradient);
  CHECK(read.convolution_weight_gradient == made.convolution_weight_gradient);
  CHECK(read.channels_last_convolution == made.channels_last_convolution);
  CHECK(read.channels_last_convolution_input_gradient == made.channels_last_convolution_input_gradient);
  CHECK(read.channels_last_convolution_weight_gradient == made.channels_last_convolution_weight_gradient);
  CHECK(read.kernel_floor.value == Approx(2e-6));
  CHECK(read.product.at("bf16").sizes() == made.product.at("bf16").sizes());
  for (std::size_t i = 0; i < made.product.at("bf16").points(); ++i) {
    CHECK(read.product.at("bf16").values()[i] == Approx(made.product.at("bf16").values()[i]).margin(1e-3));
  }
  CHECK(std::exp(read.attention.at("bf16").at(128).values()[1]) == Approx(0.5));
  CHECK(written_efficiency(read, "made up, 2026-11-27") == text);
}

TEST_CASE("times that cannot be are refused with their place", "[efficiency]") {
  const std::string rows = eight_rows();
  CHECK(complaint_about("m,n,k,tflops\n16,16,16,4\n") ==
        "times.csv:1:1: expected a column time_us, time_ms or time_s, found 'm,n,k,tflops'");
  CHECK(complaint_about("m,n,time_us\n16,16,4\n") ==
        "times.csv:1:1: expected columns m,n,k, or batch,m,n,k, or batch,sequence,heads,head_size, or "
        "operation,ranks,bytes, found no "
        "'k'");
  CHECK(complaint_about("m,n,k,time_us\n16,16,16,4\n") == "times.csv: expected at least 8 rows, found 1");
  CHECK(complaint_about(rows + "16,,16,4\n") == "times.csv:10:4: n: expected a number above 0, found ''");
  CHECK(complaint_about(rows + "16,16,4\n") == "times.csv:10:1: expected 4 fields, found 3");
  CHECK(complaint_about(rows + "8192,8192,8192,1000\n") ==
        "times.csv:10:1: time_us: the peak of bf16 allows 1.11 ms at least, found 1.00 ms");
  CHECK(complaint_about(rows, "fp8") == "'gpu' has no peak of fp8: shares are of a roofline");
}

TEST_CASE("a platform names efficiencies, and a wrong file is refused where it is wrong", "[efficiency]") {
  const std::string head = "format: plimsoll.efficiency.v1\nname: e\nsource: s\nmodel: M\n";
  const auto complaint = [&](const std::string& rest) {
    return complaint_of([&] { parse_efficiency(head + rest, "e.yaml"); });
  };
  CHECK(complaint("product: {bf16: {m: [1, 2], n: [1], k: [1], share: [0.5]}}\n") ==
        "e.yaml:5:52: product.bf16.share: expected a number for each of the 2 combinations of sizes, found 1");
  CHECK(complaint("product: {bf16: {m: [2, 1], n: [1], k: [1], share: [0.5, 0.5]}}\n") ==
        "e.yaml:5:25: product.bf16.m[1]: sizes ascend, expected more than 2, found '1'");
  CHECK(complaint("product: {bf16: {m: [1], n: [1], k: [1], share: [989]}}\n")
            .starts_with("e.yaml:5:50: product.bf16.share[0]: "));
  CHECK(complaint("convolution: {fp32: 1.6}\n").starts_with("e.yaml:5:21: convolution.fp32: "));
  CHECK(complaint("unaligned_product: 0.1\n").starts_with("e.yaml:5:20: unaligned_product: expected"));
  CHECK(complaint("nrom: 0.6\n").find("did you mean 'norm'?") != std::string::npos);
}

TEST_CASE("every shipped file of efficiencies reads, under its file's name", "[efficiency]") {
  const std::vector<std::string> names = shipped_efficiencies();
  CHECK(names == std::vector<std::string>{"a100_sxm", "h100_sxm", "h200_sxm", "v100_pcie"});
  for (const std::string& name : names) {
    INFO(name);
    const Efficiency read = load_efficiency(name);
    CHECK(read.name == name);
    const bool is_fp32 = name == "v100_pcie";
    CHECK(read.product.contains("bf16") == !is_fp32);
    if (!is_fp32) CHECK(read.product.at("bf16").points() == 768);
    CHECK(read.product.contains("fp32") == (is_fp32 || name == "h100_sxm"));
    CHECK(read.attention.contains("bf16") == !is_fp32);
    CHECK(read.elementwise < 1);
  }
}

TEST_CASE("a platform takes efficiencies by its file or behind a colon", "[efficiency]") {
  const Platform plain = load_platform("h200"), with = load_platform("h200:efficiency=h100_sxm");
  CHECK(!plain.devices.front().efficiency);
  CHECK(complaint_of([] { load_efficiency("h200_sx"); }) ==
        "efficiency: expected a file or a100_sxm, h100_sxm, h200_sxm or v100_pcie, found 'h200_sx'; did you mean "
        "'h200_sxm'?");
  CHECK(with.name == "h200:efficiency=h100_sxm");
  REQUIRE(with.devices.front().efficiency);
  CHECK(with.devices.front().efficiency->model == "NVIDIA H100 80GB HBM3");
  std::string text = read_text_file(find_platform("h200"));
  text.insert(text.find("    memory_bandwidth"), "    efficiency: h200_sxm\n");
  CHECK(parse_platform(text, "mine.yaml").devices.front().efficiency->name == "h200_sxm");
  text.replace(text.find("h200_sxm"), 8, "h200_sxn");
  CHECK(
      complaint_of([&] { parse_platform(text, "mine.yaml"); }).ends_with("found 'h200_sxn'; did you mean 'h200_sxm'?"));
  CHECK(complaint_of([] { load_platform("h200:eficiency=h200_sxm"); }).find("did you mean 'efficiency'?") !=
        std::string::npos);
}

TEST_CASE("a table of enough rows states how far off it is on rows that it has not seen", "[efficiency]") {
  const Device gpu = device();
  const auto table = [&](double noise) {
    std::string csv = "m,n,k,time_us\n";
    for (int pair = 0; pair < 100; ++pair) {
      for (const double m : {64.0, 256.0, 1024.0, 4096.0}) {
        const GpuKernel kernel{.kind = KernelKind::product,
                               .dtype = "bf16",
                               .m = m,
                               .n = 512 + 32.0 * (pair % 10),
                               .k = 512 + 32.0 * (pair / 10)};
        const double off = (pair + static_cast<int>(m) / 64) % 2 == 0 ? 1 + noise : 1 / (1 + noise);
        const double seconds = (product_roofline(gpu, kernel)->value + 2e-6) / 0.6 * off;
        csv += fmt::format("{},{},{},{}\n", m, kernel.n, kernel.k, 1e6 * seconds);
      }
    }
    return fitted_table(csv, "times.csv", gpu, {.name = "mine", .dtype = "bf16"}).efficiency;
  };
  const Spread exact = table(0).spread.at("product"), noisy = table(0.2).spread.at("product");
  CHECK(exact.low == Approx(1).epsilon(1e-3));
  CHECK(exact.high == Approx(1).epsilon(1e-3));
  CHECK(noisy.low == Approx(1 / 1.2).epsilon(0.05));
  CHECK(noisy.high == Approx(1.2).epsilon(0.05));
  CHECK(fitted_table(eight_rows(), "times.csv", gpu, {.name = "mine", .dtype = "bf16"}).efficiency.spread.empty());
  const std::string text = written_efficiency(table(0.2), "made up");
  const Spread again = parse_efficiency(text, "mine.yaml").spread.at("product");
  CHECK(again.high == Approx(noisy.high).epsilon(0.005));
  const auto with = [&](const std::string& spread) {
    return complaint_of([&] { parse_efficiency(text.substr(0, text.find("spread:")) + spread, "mine.yaml"); });
  };
  CHECK(with("spread: {product: [1.2, 0.9]}\n").find("expected 1.2 at least") != std::string::npos);
  CHECK(with("spread: {product: [1.2]}\n").find("expected [low, high], found 1 numbers") != std::string::npos);
  CHECK(with("spread: {products: [1, 2]}\n").find("did you mean 'product'?") != std::string::npos);
}

TEST_CASE("public times of products are said again by tables that have not seen them", "[efficiency]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no public time is compared");
    return;
  }
  struct Case {
    const char *file, *platform;
    double most;                      ///< mean error
    double teraflops = 0, bytes = 0;  ///< dense peak in bf16 and bandwidth by data sheet, where no platform is shipped
  };
  for (const Case& each : {Case{"a100_sxm", "a100_80g", 0.095},
                           {"h100_sxm", "h100_sxm_8", 0.06},
                           {"h200_sxm", "h200", 0.07},
                           {"b200_sxm", nullptr, 0.095, 2250, 7.7e12},
                           {"l40s", nullptr, 0.13, 362, 864e9}}) {
    const auto path =
        std::filesystem::path(shared) / "data/gpu_kernels" / (std::string("gemm_bf16_") + each.file + ".csv.gz");
    const std::string all = read_text_file(path);
    // A tenth of the pairs of n and k is held out.
    std::string seen, held;
    std::size_t at = all.find('\n') + 1;
    const std::string head = all.substr(0, at);
    while (at < all.size()) {
      const std::size_t end = std::min(all.find('\n', at), all.size());
      const std::string line = all.substr(at, end - at);
      at = end + 1;
      const std::size_t first = line.find(','), last = line.rfind(',');
      const std::size_t pair = std::hash<std::string>{}(line.substr(first, last - first));
      (pair % 10 == 3 ? held : seen) += line + "\n";
    }
    Device gpu;
    if (each.platform != nullptr) {
      gpu = load_platform(each.platform).devices.front();
      // What is shipped is what the command makes of all rows.
      const FittedTable whole = fitted_table(all, "all", gpu, {.name = "all", .dtype = "bf16"});
      const Efficiency shipped = load_efficiency(each.file);
      double apart = 0;
      for (std::size_t i = 0; i < shipped.product.at("bf16").points(); ++i) {
        const double again = whole.efficiency.product.at("bf16").values()[i];
        apart = std::max(apart, std::abs(shipped.product.at("bf16").values()[i] - again));
      }
      CHECK(apart < 1e-3);
    } else {
      gpu.peak["bf16"] = FlopsPerSecond{each.teraflops * 1e12};
      gpu.memory_bandwidth = BytesPerSecond{each.bytes};
    }
    const FittedTable fitted = fitted_table(head + seen, "seen", gpu, {.name = "seen", .dtype = "bf16"});
    double error = 0, rows = 0;
    for (std::size_t from = 0; from < held.size();) {
      const std::size_t end = held.find('\n', from);
      double m = 0, n = 0, k = 0, time = 0;
      REQUIRE(std::sscanf(held.c_str() + from, "%lf,%lf,%lf,%lf", &m, &n, &k, &time) == 4);
      from = end + 1;
      const GpuKernel kernel{.kind = KernelKind::product, .dtype = "bf16", .m = m, .n = n, .k = k};
      error += std::abs(kernel_time(fitted.efficiency, gpu, kernel, {})->time.value / (1e-6 * time) - 1);
      ++rows;
    }
    INFO(each.file << ": " << fitted.grid_points << " numbers, " << rows << " rows held out, " << 100 * error / rows
                   << " % off, in its own rows " << 100 * fitted.mean_error);
    CHECK(rows > 2000);
    CHECK(fitted.grid_points <= 800);
    CHECK(error / rows <= each.most);
  }
}
