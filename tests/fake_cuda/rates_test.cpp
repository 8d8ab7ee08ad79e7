// Measuring a GPU, on the made-up one: in what order, with which numbers.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/fake_cuda/fake_cuda.h"
#include "validate/cuda/cuda_rates.h"
#include "validate/networks/probe_values.h"

namespace plimsoll {
namespace {

constexpr ProbeSizes tiny{.copied = Bytes{8192},
                          .lead = Bytes{4096},
                          .product = 16,
                          .peak_product = 8,
                          .half_product = 12,
                          .parameters = 64,
                          .summed = 64,
                          .blocks = 3,
                          .host_parameters = 64};

TEST_CASE("a GPU's peaks are measured in each of its dtypes, slow-downs by turns, never with zeros", "[fake_cuda]") {
  fake::begin({});
  CudaMachine machine;
  fake::issued().clear();
  const auto rates = measure_gpu(machine, {}, tiny, 3, [](const std::string&) { return true; });
  REQUIRE(rates);
  CHECK(rates->copied == tiny.copied);
  std::vector<std::string> dtypes;
  for (const MeasuredPeak& peak : rates->peaks) {
    dtypes.push_back(peak.dtype);
    CHECK(peak.flops.median > 0);
  }
  CHECK(dtypes == std::vector<std::string>{"fp32", "tf32", "bf16", "fp16"});
  CHECK(rates->slowdown.size() == 3);
  const std::string lone = "PPPPS", beside_one = "CCCCCPPPPS", beside_two = "CCCCCCCCCCPPPPS";
  std::string turns;
  for (int turn = 0; turn < 9; ++turn) turns += lone + beside_one + beside_two;
  CHECK(fake::issued().find(turns) != std::string::npos);
  CHECK(fake::issued().find('0') == std::string::npos);
  std::string peaks;  // 4 dtypes, 3 samples and one before: nobody waits between the products of a series
  for (int sample = 0; sample < 12; ++sample) peaks += "PPPPPPPPS";
  CHECK(fake::issued().find(peaks) != std::string::npos);
  constexpr double series = 2.25e-3 / 8;  // eight pieces of work and an event, a quarter of a millisecond each
  CHECK(rates->plain_traffic.median == Approx(3.0 * 4 * 64 / series));  // memory's bandwidth: a sum of two tensors
  CHECK(rates->update_traffic.median == Approx(7.0 * 4 * 64 / series));
  CHECK(rates->peaks[0].flops.median == Approx(2.0 * 8 * 8 * 8 / series));
  CHECK(fake::early_frees() == 0);
}

TEST_CASE("numbers for measuring lie between 1/16 and 1 in every format", "[fake_cuda]") {
  for (const Signs signs : {Signs::both, Signs::positive}) {
    const std::vector<std::byte> bytes = probe_values(Bytes{4000}, NumberFormat::fp32, signs);
    std::vector<float> values(1000);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    int negative = 0;
    for (const float each : values) {
      REQUIRE(std::abs(each) >= 1.0F / 16);
      REQUIRE(std::abs(each) < 1);
      negative += each < 0 ? 1 : 0;
    }
    CHECK((signs == Signs::both ? negative > 400 : negative == 0));
    for (const NumberFormat half : {NumberFormat::bf16, NumberFormat::fp16}) {
      const std::vector<std::byte> pieces = probe_values(Bytes{2000}, half, signs);
      for (std::size_t i = 0; i < 1000; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, pieces.data() + 2 * i, 2);
        const int mantissa_bits = half == NumberFormat::bf16 ? 7 : 10, bias = half == NumberFormat::bf16 ? 127 : 15;
        const int exponent = ((bits & 0x7FFF) >> mantissa_bits) - bias;
        REQUIRE(exponent >= -4);
        REQUIRE(exponent <= -1);
        REQUIRE((signs == Signs::both || (bits & 0x8000) == 0));
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
