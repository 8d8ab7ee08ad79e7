#include "sim/core/device_name.h"

#include <catch2/catch.hpp>

namespace plimsoll {
namespace {

TEST_CASE("a device's name is what is reported, one space between words", "[core]") {
  CHECK(device_name("NVIDIA H200") == "NVIDIA H200");
  CHECK(device_name("  Intel(R) Xeon(R) CPU           E5520  @ 2.27GHz\t\n") == "Intel(R) Xeon(R) CPU E5520 @ 2.27GHz");
  CHECK(device_name(" \t ").empty());
}

TEST_CASE("a processor's name is its first model name, or else the architecture", "[core]") {
  const std::string info =
      "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R)  Xeon(R) Processor \nmodel name\t: another\n";
  CHECK(processor_name(info, "x86_64") == "Intel(R) Xeon(R) Processor");
  CHECK(processor_name("processor\t: 0\nBogoMIPS\t: 2000.00\n", "aarch64") == "aarch64");
  CHECK(processor_name("model name\t:\nmodel name : second", "x86_64") == "second");
  CHECK(processor_name("", "riscv64") == "riscv64");
}

TEST_CASE("names of what seems the same hardware are known as such, other hardware is not", "[core]") {
  CHECK(seems_same_device("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"));
  CHECK(seems_same_device("Tesla V100-PCIE-16GB", "NVIDIA V100 PCIE 16GB"));
  CHECK(seems_same_device("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "intel xeon e5-2690 v4"));
  CHECK(seems_same_device("Intel(R) Xeon(R) Processor", "Intel(R) Xeon(R) Processor, one core, oneDNN 2.6.3"));
  CHECK_FALSE(seems_same_device("NVIDIA H200", "NVIDIA H200"));  // it is the same
  CHECK_FALSE(seems_same_device("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"));
  CHECK_FALSE(seems_same_device("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"));
  CHECK_FALSE(seems_same_device("", "NVIDIA"));
  CHECK_FALSE(seems_same_device("AMD EPYC 7B13", "AMD EPYC"));
}

}  // namespace
}  // namespace plimsoll
