// Files of efficiencies, and tables made of measured times. Against public measurements where ../shared is there
// (PLIMSOLL_SHARED names it).

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "platforms/efficiency_file.h"
#include "platforms/efficiency_fit.h"
#include "platforms/nearest_efficiency.h"
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

/// Of lines m,n,k,microseconds.
double off_in_the_mean(const Efficiency& efficiency, const Device& gpu, const std::string& lines) {
  double error = 0, rows = 0;
  for (std::size_t from = 0; from < lines.size();) {
    double m = 0, n = 0, k = 0, time = 0;
    REQUIRE(std::sscanf(lines.c_str() + from, "%lf,%lf,%lf,%lf", &m, &n, &k, &time) == 4);
    from = lines.find('\n', from) + 1;
    const GpuKernel kernel{.kind = KernelKind::product, .dtype = "bf16", .m = m, .n = n, .k = k};
    error += std::abs(kernel_time(efficiency, gpu, kernel, {})->time.value / (1e-6 * time) - 1);
    ++rows;
  }
  CHECK(rows > 2000);
  return error / rows;
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

// By hand: 0.8, 0.5 and 0.4 of a bandwidth of 4.8 TB/s and a peak of 989.4 TFLOPS, 2 us on top or divided with the
// rest.
TEST_CASE("kernels of whole sorts have the share with which they together take as long as they did", "[efficiency]") {
  const Device gpu = device();
  std::string csv = "sort,flops,bytes,time_us\n";
  for (int bytes = 48; bytes <= 480; bytes += 48) {  // MB: 10 us each 48 of them
    csv += fmt::format("elementwise,1,{}e6,{}\n", bytes, bytes / 4.8 / 0.8 + 2);
    csv += fmt::format("norm,1,{}e6,{}\n", bytes, (bytes / 4.8 / 0.5) * (bytes < 400 ? 1 : 1.25) + 2);
    csv += fmt::format("convolution,{}e9,1e6,{}\n", bytes, (bytes / 0.9894 + 2) / 0.4);
  }
  const FittedTable fitted = fitted_table(csv, "f.csv", gpu, {.name = "mine", .dtype = "bf16"});
  CHECK(fitted.rows == 30);
  REQUIRE(fitted.shares.size() == 3);
  CHECK(fitted.shares.at("elementwise") == Approx(0.8));
  CHECK(fitted.shares.at("norm") == Approx(0.5 * 55 / (55 + 0.25 * (9 + 10))));  // 1 + ... + 10, the last two longer
  CHECK(fitted.shares.at("convolution") == Approx(0.4));
  CHECK(fitted.efficiency.spread.empty());
  const Efficiency read = parse_efficiency(written_efficiency(fitted.efficiency, "s"), "f.yaml");
  CHECK(read.elementwise == Approx(0.8));
  CHECK(read.softmax == 1);
  const GpuKernel kernel{.kind = KernelKind::convolution, .dtype = "bf16"};
  const std::optional<KernelTime> time = kernel_time(read, gpu, kernel, {Flops{989.4e9}, Bytes{1}});
  REQUIRE(time);
  CHECK(time->time.value == Approx((1e-3 + 2e-6) / 0.4).epsilon(1e-3));

  CHECK(complaint_about("sort,bytes,time_us\nelementwise,1,1\nnrm,1,1\n") ==
        "times.csv:3:1: sort: expected elementwise, norm, softmax, optimizer, convolution, convolution_input_gradient, "
        "convolution_weight_gradient, channels_last_convolution, channels_last_convolution_input_gradient or "
        "channels_last_convolution_weight_gradient, found 'nrm'; did you mean 'norm'?");
  CHECK(complaint_about("sort,bytes,time_us\nnorm,1,1\n") == "times.csv:2:1: expected at least 8 rows, found 1");
  CHECK(complaint_about("sort,time_us\nnorm,1\n") == "times.csv:1:1: expected columns sort,flops,bytes and a time");
  std::string few = "sort,bytes,time_us\n";
  for (int row = 0; row < 8; ++row) few += "norm,48e6,3\n";
  CHECK(complaint_about(few) ==
        "times.csv:2:1: norm: its 8 kernels take 24.00 us in all, less than a 3rd of what the device's "
        "memory_bandwidth or "
        "peak allows, with 16.00 us of --kernel-floor");
  for (int row = 0; row < 8; ++row) few += "convolution,48e6,30\n";
  CHECK(complaint_about(few) == "times.csv:10:1: convolution: expected a column flops");
}

TEST_CASE("a written table reads as it was", "[efficiency]") {
  FittedTable fitted = fitted_table(eight_rows(), "f.csv", device(), {.name = "mine", .dtype = "bf16"});
  Efficiency& made = fitted.efficiency;
  made.norm = 0.65;
  made.sustained = 1.09;
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
  CHECK(read.sustained == 1.09);
  CHECK(read.peak.at("bf16").value == Approx(made.peak.at("bf16").value));
  CHECK(read.memory_bandwidth->value == Approx(4.8e12));
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
        "operation,ranks,bytes, or sort,flops,bytes, found no "
        "'k'");
  CHECK(complaint_about("m,n,k,time_us\n16,16,16,4\n") == "times.csv:2:1: expected at least 8 rows, found 1");
  CHECK(complaint_about(rows + "16,,16,4\n") == "times.csv:10:4: n: expected a number above 0, found ''");
  CHECK(complaint_about(rows + "16,16,4\n") == "times.csv:10:1: expected 4 fields, found 3");
  CHECK(complaint_about(rows + "8192,8192,8192,1000\n") ==
        "times.csv:10:1: time_us: the peak of bf16 allows 1.11 ms at least, found 1.00 ms");
  CHECK(complaint_about(rows, "fp4") == "'gpu' has no peak of fp4: shares are of a roofline");
  CHECK(complaint_about("m,n,k,time_us,time_us\n16,16,16,4,4\n") ==
        "times.csv:1:15: time_us: expected a column once, found it twice");
  // Microseconds under another heading: 21 to 148 of them, of which the roofline is 9 to 72.
  const std::string as_seconds = "m,n,k,time_s" + rows.substr(rows.find('\n'));
  CHECK(complaint_about(as_seconds).starts_with("times.csv:1:1: time_s: half of the times are more than "));
  CHECK(complaint_about(as_seconds).ends_with("times their rooflines: is it the unit?"));
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
  CHECK(complaint("convolution: {fp32: 3.1}\n").starts_with("e.yaml:5:21: convolution.fp32: "));
  CHECK(complaint("unaligned_product: 0.1\n").starts_with("e.yaml:5:20: unaligned_product: expected"));
  CHECK(complaint("sustained: 0.9\n").starts_with("e.yaml:5:12: sustained: expected a number from 1"));
  CHECK(complaint("nrom: 0.6\n").find("did you mean 'norm'?") != std::string::npos);
}

TEST_CASE("every shipped file of efficiencies reads, under its file's name", "[efficiency]") {
  const std::vector<std::string> names = shipped_efficiencies();
  CHECK(names ==
        std::vector<std::string>{"a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm", "l4", "l40s", "t4", "v100_pcie"});
  for (const std::string& name : names) {
    INFO(name);
    const Efficiency read = load_efficiency(name);
    CHECK(read.name == name);
    const bool is_fp32 = name == "v100_pcie" || name == "l4" || name == "t4";
    CHECK(read.product.contains("bf16") == !is_fp32);
    if (!is_fp32) CHECK(read.product.at("bf16").points() == 768);
    CHECK(read.product.contains("fp32") == (is_fp32 || name == "h100_sxm"));
    CHECK(read.attention.contains("bf16") == !is_fp32);
    CHECK(read.elementwise < 1);
    CHECK(read.memory_bandwidth);
    for (const auto& [dtype, grid] : read.product) CHECK(read.peak.contains(dtype));
    for (const auto& [dtype, grid] : read.batched_product_by_size) CHECK(read.peak.contains(dtype));
  }
}

// What shares are of is what the platform of that GPU says, so that a table is not taken for another card's.
TEST_CASE("efficiencies and platforms of one GPU agree on its peaks", "[efficiency]") {
  std::size_t compared = 0;
  for (const std::string& platform : shipped_platforms()) {
    const Device device = load_platform(platform).devices.front();
    for (const std::string& name : shipped_efficiencies()) {
      const Efficiency efficiency = load_efficiency(name);
      if (efficiency.model != device.model) continue;
      INFO(platform << ", " << name);
      ++compared;
      CHECK(efficiency.memory_bandwidth->value == Approx(device.memory_bandwidth->value));
      for (const auto& [dtype, peak] : efficiency.peak) {
        if (const std::optional<FlopsPerSecond> own = peak_of(device, dtype)) CHECK(own->value == Approx(peak.value));
      }
    }
  }
  CHECK(compared >= 7);
}

TEST_CASE("a GPU without a table takes the nearest one's: of its model, its generation, or its flops for a byte",
          "[efficiency]") {
  const auto nearest_to = [](const std::string& platform) {
    return load_platform(platform + ":efficiency=nearest").devices.front().efficiency->name;
  };
  CHECK(nearest_to("h200") == "h200_sxm");
  CHECK(nearest_to("v100_pcie") == "v100_pcie");  // with half the memory
  CHECK(nearest_to("t4") == "t4");                // in fp32 alone
  CHECK(nearest_to("rtx_4090_pcie4") == "l40s");  // of its generation, though an A100's ratio is nearer
  CHECK(load_platform("h200:efficiency=nearest")
            .source.ends_with(
                "; kernels of 'gpu' by the efficiencies 'h200_sxm', measured on the nearest, 'NVIDIA H200'"));
  Device unknown;
  unknown.model = "Another card";
  unknown.peak["fp16"] = FlopsPerSecond{300e12};
  unknown.memory_bandwidth = BytesPerSecond{2e12};  // 150 flops for a byte, as 153 of an A100
  CHECK(nearest_efficiency(unknown)->name == "a100_sxm");
  unknown.memory_bandwidth = BytesPerSecond{0.72e12};  // 417, as 419 of an L40S
  CHECK(nearest_efficiency(unknown)->name == "l40s");
  unknown.peak.clear();
  CHECK(!nearest_efficiency(unknown));
  CHECK(complaint_of([] { load_platform("h200:efficiency=nearst"); }).ends_with("did you mean 'nearest'?"));
  CHECK(complaint_of([] { load_platform("cpu_host:efficiency=nearest"); }).find("no table is the nearest to 'cpu'") !=
        std::string::npos);
  std::string text = read_text_file(find_platform("h200"));
  text.insert(text.find("    memory_bandwidth"), "    efficiency: nearest\n");  // before what it needs is read
  CHECK(parse_platform(text, "mine.yaml").devices.front().efficiency->name == "h200_sxm");
  CHECK(parse_platform(text, "mine.yaml", platform_options("h200:efficiency=a100_sxm"))
            .devices.front()
            .efficiency->name == "a100_sxm");
}

TEST_CASE("a GPU's generation is not that of another whose name begins alike", "[efficiency]") {
  Device card;
  card.memory_bandwidth = BytesPerSecond{1e12};
  card.peak["fp16"] = FlopsPerSecond{150e12};  // an A100's ratio
  const auto nearest_to = [&](const std::string& model) {
    card.model = model;
    return nearest_efficiency(card)->name;
  };
  for (const char* model : {"Quadro RTX 4000", "Quadro RTX 5000", "NVIDIA RTX 4000", "NVIDIA T400 4GB", "Another L4000",
                            "AMD Instinct MI300X", "NVIDIA RTX A4000", "NVIDIA A10"}) {
    CAPTURE(model);
    CHECK(nearest_to(model) == "a100_sxm");
  }
  card.peak["fp16"] = FlopsPerSecond{295e12};  // an H100's
  CHECK(nearest_to("NVIDIA RTX A4000") == "a100_sxm");
  for (const char* model : {"NVIDIA RTX 4000 Ada Generation", "NVIDIA RTX 5000 Ada Generation",
                            "NVIDIA GeForce RTX 4060 Ti", "NVIDIA L40", "NVIDIA RTX 2000 Ada Generation"}) {
    CAPTURE(model);
    CHECK(nearest_to(model) == "l40s");
  }
  for (const char* model : {"NVIDIA GeForce RTX 5090", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA GB10"}) {
    CAPTURE(model);
    CHECK(nearest_to(model) == "b200_sxm");
  }
}

TEST_CASE("another GPU's efficiencies have the spread of kernels that were timed by another GPU's", "[efficiency]") {
  const auto spread_on = [](const std::string& platform) {
    const Platform loaded = load_platform(platform);
    return dynamic_cast<const Efficiency&>(*loaded.devices.front().efficiency).spread;
  };
  const auto own = load_efficiency("h100_sxm").spread;
  CHECK(spread_on("h100_sxm_8:efficiency=h100_sxm") == own);
  CHECK(spread_on("v100_pcie:efficiency=nearest") == load_efficiency("v100_pcie").spread);  // with another memory
  const auto lent = spread_on("h200:efficiency=h100_sxm");
  CHECK(lent.at("product") == Spread{0.901, 1.3});
  CHECK(lent.at("norm") == Spread{0.522, 1.38});  // the high end is its own
  for (const auto& [sort, of] : own) {
    CAPTURE(sort);
    CHECK(lent.at(sort).low <= of.low);
    CHECK(lent.at(sort).high >= of.high);
  }
  CHECK(spread_on("rtx_4090_pcie4:efficiency=nearest").at("product") == Spread{0.855, 1.3});
  CHECK(spread_on("h200:efficiency=h200_sxm,memory_bandwidth=4 TBps").at("product") == Spread{0.901, 1.3});
}

TEST_CASE("a platform takes efficiencies by its file or behind a colon", "[efficiency]") {
  const Platform plain = load_platform("h200"), with = load_platform("h200:efficiency=h100_sxm");
  CHECK(!plain.devices.front().efficiency);
  CHECK(complaint_of([] { load_efficiency("h200_sx"); }) ==
        "efficiency: expected a file or a100_sxm, b200_sxm, h100_sxm, h200_sxm, l4, l40s, t4 or v100_pcie, found "
        "'h200_sx'; did you mean 'h200_sxm'?");
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

TEST_CASE("a full table says its own rows again and interpolates holes along the last two sizes", "[efficiency]") {
  // Shares are exp(a line in ln n and in ln k) for each m: interpolations say them again, and the least squares of m do
  // not matter.
  const Device gpu = device();
  std::string csv = "m,n,k,time_us\n";
  const auto share = [](double m, double n, double k) {
    return 0.5 * std::pow(n / 1000, 0.11) * std::pow(k / 1000, -0.07) * (m == 17 ? 0.6 : 1);
  };
  const auto kernel = [](double m, double n, double k) {
    return GpuKernel{.kind = KernelKind::product, .dtype = "bf16", .m = m, .n = n, .k = k};
  };
  const auto seconds = [&](double m, double n, double k) {
    return (product_roofline(gpu, kernel(m, n, k))->value + 2e-6) / share(m, n, k);
  };
  for (const double m : {16, 17, 300}) {
    for (const double n : {500, 700, 3000, 9000}) {
      for (const double k : {600, 1100, 8000}) {
        if (n == 700 && k == 1100) continue;             // between neighbours both ways
        if (n == 500 && k == 600 && m == 300) continue;  // a corner: its nearest neighbour's share
        csv += fmt::format("{},{},{},{:.12g}\n", m, n, k, 1e6 * seconds(m, n, k));
      }
    }
  }
  const FittedTable fitted =
      fitted_table(csv, "f.csv", gpu, {.name = "mine", .dtype = "bf16", .grid = TableGrid::full});
  CHECK(fitted.grid_points == 36);
  CHECK(fitted.mean_error < 1e-6);
  const auto time_of = [&](double m, double n, double k) {
    return kernel_time(fitted.efficiency, gpu, kernel(m, n, k), {})->time.value;
  };
  for (const double m : {16, 17, 300}) CHECK(time_of(m, 700, 1100) == Approx(seconds(m, 700, 1100)).epsilon(1e-6));
  // ln(700 / 500) is less than ln(1100 / 600).
  const double near = (product_roofline(gpu, kernel(300, 500, 600))->value + 2e-6) / share(300, 700, 600);
  CHECK(time_of(300, 500, 600) == Approx(near).epsilon(1e-6));
  const Efficiency again = parse_efficiency(written_efficiency(fitted.efficiency, "made up"), "mine.yaml");
  CHECK(again.product.at("bf16").points() == 36);
}

TEST_CASE("a full table of sizes at random is refused", "[efficiency]") {
  std::string csv = "m,n,k,time_us\n";
  for (int row = 1; row <= 40; ++row) csv += fmt::format("{},{},{},20\n", row, 512 + row, 256 + row);
  CHECK(complaint_of([&] {
          fitted_table(csv, "f.csv", device(), {.name = "mine", .dtype = "bf16", .grid = TableGrid::full});
        }) ==
        "f.csv: 40 rows leave more than 75 % of the 64000 combinations of their sizes without a time; --grid thin "
        "fits a grid to them");
}

TEST_CASE("public times of products are said again by tables that have not seen them", "[efficiency]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no public time is compared");
    return;
  }
  struct Case {
    const char *file, *platform;
    double most, most_of_full;  ///< mean error, of a table of all measured sizes
  };
  for (const Case& each : {Case{"a100_sxm", "a100_80g", 0.095, 0.06},
                           {"h100_sxm", "h100_sxm_8", 0.06, 0.06},
                           {"h200_sxm", "h200", 0.07, 0.06},
                           {"b200_sxm", "b200_sxm_8", 0.095, 0.06},
                           {"l40s", "l40s", 0.13, 0.09}}) {
    const auto path =
        std::filesystem::path(shared) / "data/gpu_kernels" / (std::string("gemm_bf16_") + each.file + ".csv.gz");
    const std::string all = read_text_file(path);
    std::size_t at = all.find('\n') + 1;
    const std::string head = all.substr(0, at);
    std::array<std::string, 10> tenths;  // of the pairs of n and k
    while (at < all.size()) {
      const std::size_t end = std::min(all.find('\n', at), all.size());
      const std::string line = all.substr(at, end - at);
      at = end + 1;
      const std::size_t first = line.find(','), last = line.rfind(',');
      tenths[std::hash<std::string>{}(line.substr(first, last - first)) % 10] += line + "\n";
    }
    const Device gpu = load_platform(each.platform).devices.front();
    // What is shipped is what the command makes of all rows.
    const FittedTable whole = fitted_table(all, "all", gpu, {.name = "all", .dtype = "bf16"});
    const Efficiency shipped = load_efficiency(each.file);
    double apart = 0;
    for (std::size_t i = 0; i < shipped.product.at("bf16").points(); ++i) {
      const double again = whole.efficiency.product.at("bf16").values()[i];
      apart = std::max(apart, std::abs(shipped.product.at("bf16").values()[i] - again));
    }
    CHECK(apart < 1e-3);
    const auto mean_error = [&](TableGrid grid, std::size_t tenth) {
      std::string seen = head;
      for (std::size_t t = 0; t < tenths.size(); ++t) seen += t == tenth ? "" : tenths[t];
      const FittedTable fitted = fitted_table(seen, "seen", gpu, {.name = "seen", .dtype = "bf16", .grid = grid});
      CHECK((grid == TableGrid::full || fitted.grid_points <= 800));
      return off_in_the_mean(fitted.efficiency, gpu, tenths[tenth]);
    };
    const double thin = mean_error(TableGrid::thin, 3);
    double full = 0, rows = 0;
    for (std::size_t tenth = 0; tenth < tenths.size(); ++tenth) {
      const auto of_tenth = static_cast<double>(std::ranges::count(tenths[tenth], '\n'));
      full += of_tenth * mean_error(TableGrid::full, tenth);
      rows += of_tenth;
    }
    full /= rows;
    INFO(each.file << ": off on rows held out, in %: thin " << 100 * thin << ", full " << 100 * full);
    CHECK(thin <= each.most);
    CHECK(full <= each.most_of_full);
  }
}
