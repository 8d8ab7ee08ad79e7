// Measurements as a platform file, and names that meet those of the exporter.

#include "experiments/measure/calibration.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "platforms/efficiency_file.h"
#include "platforms/platform_file.h"
#include "sim/core/device_name.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

MachineRates made_up_rates(Bytes copied, double latency, double bandwidth) {
  const double rate = static_cast<double>(copied.count) / (latency + static_cast<double>(copied.count) / bandwidth);
  MachineRates rates;
  rates.copied = copied;
  rates.to_host = rates.to_device = rates.both_ways = {rate, rate, rate};
  rates.to_host_latency = rates.to_device_latency = {latency, latency, latency};
  rates.slowdown = {{1, 1, 1}, {1.1, 1, 1.2}, {1.2, 1, 1.3}};
  rates.peaks = {{"fp32", 4096, {5e13, 5e13, 5e13}}, {"bf16", 8192, {7e14, 7e14, 7e14}}};
  rates.update_traffic = {2.1e12, 2.1e12, 2.1e12};
  rates.plain_traffic = {3e12, 3e12, 3e12};
  rates.host_copies = {{90e9, 90e9, 90e9}};
  rates.host_update_traffic = {{7e9, 7e9, 7e9}};
  rates.device_memory = Bytes{80'000'000'000};
  rates.launch = rates.allocation = {3e-6, 3e-6, 3e-6};
  const MeasuredRate packs{1.5e9, 1e9, 2e9}, unpacks{4e9, 3e9, 5e9};
  rates.codecs = {{{.kind = CodecKind::quantize, .bits = 4}, packs, unpacks},
                  {{.kind = CodecKind::pool, .window = 8}, packs, unpacks},
                  {{.kind = CodecKind::mask, .bits = 1}, packs, {}},
                  {{.kind = CodecKind::zero_run}, packs, unpacks}};
  return rates;
}

TEST_CASE("a calibrated link copies what was measured in the time that was measured", "[calibration]") {
  const Platform shape = load_platform("validate/gpu_link.yaml");
  for (const Bytes copied : {Bytes{8 << 20}, Bytes{64 << 20}}) {
    const double latency = 8e-6, bandwidth = 50e9;
    const std::string text =
        calibrated_platform(shape, "mine", made_up_rates(copied, latency, bandwidth), {"p", "2026-11-22", "D", "L"});
    INFO(text);
    const Platform made = parse_platform(text, "mine.yaml");
    CHECK(made.devices[0].model == "D");
    CHECK(made.links[0].bandwidth.value == Approx(bandwidth).epsilon(1e-3));  // four digits are written
    CHECK(made.links[0].latency.value == Approx(latency));
    CHECK(bandwidth_of(made.links[0], true).value == Approx(bandwidth).epsilon(1e-3));
    CHECK(made.devices[0].memory_bandwidth->value == Approx(3e12));
    CHECK(made.devices[0].adam->value == Approx(3e11));
    CHECK(made.memories[0].capacity == Bytes{80'000'000'000});  // of the file's 141 GB the device has these
    CHECK(made.memories[1].bandwidth->value == Approx(90e9));   // as copies see it, not as one thread's updates do
    CHECK(made.memories[1].adam->value == Approx(1e9));
    CHECK(made.devices[0].peak.at("fp32").value == Approx(5e13));
    CHECK(made.devices[0].peak.at("bf16").value == Approx(7e14));
    CHECK_FALSE(made.devices[0].peak.contains("tf32"));
    const std::vector<CodecRate>& codecs = made.devices[0].codec_rates;
    REQUIRE(codecs.size() == 4);
    CHECK(codecs[1].kind == CodecKind::pool);
    CHECK(codecs[1].variant == 8);
    CHECK(codecs[1].pack.value == Approx(1.5e9));
    CHECK(codecs[1].unpack.value == Approx(4e9));
    CHECK(codecs[2].variant == 1);
  }
}

TEST_CASE("a calibrated link is as fast in each direction as that was measured", "[calibration]") {
  MachineRates rates = made_up_rates(Bytes{64 << 20}, 8e-6, 50e9);
  rates.to_host.median *= 0.9;
  const Platform full = parse_platform(
      calibrated_platform(load_platform("validate/gpu_link.yaml"), "mine", rates, {"p", "2026-11-22", "D", "L"}), "f");
  CHECK(bandwidth_of(full.links[0], false).value < 0.91 * bandwidth_of(full.links[0], true).value);
  CHECK(bandwidth_of(full.links[0], true).value == Approx(50e9).epsilon(1e-3));
  Platform shape = load_platform("validate/gpu_link.yaml");
  shape.links[0].full_duplex = false;
  const Platform half = parse_platform(calibrated_platform(shape, "mine", rates, {"p", "2026-11-22", "D", "L"}), "h");
  CHECK(!half.links[0].back);
  CHECK(half.links[0].bandwidth == full.links[0].bandwidth);
}

/// What the exporter's module prints; nothing where there is no python3.
std::optional<std::string> python_name(const std::string& arguments) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) return std::nullopt;
  FILE* pipe = popen(("python3 traces/python/plimsoll/trace/device_name.py " + arguments).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 256> piece{};
  while (const std::size_t read = std::fread(piece.data(), 1, piece.size(), pipe)) text.append(piece.data(), read);
  REQUIRE(pclose(pipe) == 0);
  REQUIRE(text.ends_with('\n'));
  text.pop_back();
  return text;
}

TEST_CASE("calibrate and the exporter give a processor the same name", "[calibration][eleventh-8]") {
  const TemporaryFolder folder;
  const std::array<std::string, 6> infos = {
      "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Processor\n",
      "model name\t:  Intel(R) Xeon(R) CPU           E5520  @ 2.27GHz  \n",
      "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\n",
      "model name : a: b\nmodel name : c\n",
      "model name :\r\n model  name : late \t name\r\n",
      ""};
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const std::string file = (folder / std::to_string(i)).string();
    std::ofstream(file) << infos.at(i);
    const std::optional<std::string> name = python_name(file + " aarch64");
    if (!name) {
      WARN("skipped: there is no python3");
      return;
    }
    CHECK(*name == processor_name(infos.at(i), "aarch64"));
  }
  const std::string platform = (folder / "mine.yaml").string();
  REQUIRE(plimsoll("calibrate validate/cpu_link.yaml --repetitions 1 -o " + platform).exit_code == 0);
  CHECK(load_platform(platform).devices[0].model == python_name(""));
}

TEST_CASE("times measured under another name of the same hardware are re-scaled, and that is said", "[calibration]") {
  const TemporaryFolder folder;
  const std::string platform = (folder / "mine.yaml").string();
  std::string text = text_of("platforms/h200.yaml");
  const std::string model = "model: \"NVIDIA H200\"";
  REQUIRE(text.find(model) != std::string::npos);
  text.replace(text.find(model), model.size(), "model: \"intel xeon processor, one core\"");
  std::ofstream(platform) << text;
  const ProgramRun run = plimsoll("simulate --strategy store_all --trace resnet50_b8_cpu --platform " + platform);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(run.err.find(
            "note: 'intel xeon processor, one core' of platform 'h200' seems to be that hardware under another "
            "name; if it is, set its model to 'Intel(R) Xeon(R) Processor' and the times hold\n") != std::string::npos);
}

TEST_CASE("measured kernels become efficiencies, and a table joins others", "[program]") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  std::ofstream products(path("products.csv")), sorts(path("sorts.csv"));
  products << "m,n,k,time_us\n";
  sorts << "sort,bytes,time_us\n";
  for (int row = 1; row <= 8; ++row) {
    products << 256 * row << ",4096,4096," << 40 * row << '\n';
    sorts << "norm," << 48 * row << "e6," << 20 * row + 2 << '\n';  // at half of 4.8 TB/s
  }
  products.close();
  sorts.close();
  const auto table = [&](const char* file, const std::string& more) {
    return plimsoll("calibrate table " + path(file) + " --of h200 --source s -o " + path("mine.yaml") + more);
  };
  const ProgramRun first = table("products.csv", ""), second = table("sorts.csv", " --with " + path("mine.yaml"));
  INFO(first.err << second.err);
  REQUIRE(first.exit_code == 0);
  REQUIRE(second.exit_code == 0);
  CHECK(second.out.find("8 rows as 1 numbers, 0.0 % off in the mean") != std::string::npos);
  CHECK(second.out.find("share of norm: 0.5\n") != std::string::npos);
  const Efficiency both = load_efficiency(path("mine.yaml"));
  CHECK(both.norm == Approx(0.5));
  CHECK(both.elementwise == 1);
  CHECK(both.product.contains("bf16"));
}

}  // namespace
}  // namespace plimsoll
