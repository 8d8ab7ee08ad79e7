#include "sim/io/quantity.h"

#include <catch2/catch.hpp>

using namespace plimsoll;

namespace {

struct Size {
  const char* text;
  std::int64_t bytes;
};

struct Wrong {
  const char* text;
  const char* complaint;
};

}  // namespace

TEST_CASE("sizes are exact, with or without a space, in powers of 1000 and of 1024", "[io]") {
  const Size sizes[] = {{"17 B", 17},
                        {"17B", 17},
                        {"0 B", 0},
                        {" 141 GB ", 141'000'000'000},
                        {"80 GiB", 80LL << 30},
                        {"80GiB", 80LL << 30},
                        {"1.5 GiB", 3LL << 29},
                        {"0.1 GB", 100'000'000},
                        {"3.3 GB", 3'300'000'000},
                        {"1.1 kB", 1100},
                        {"2 KB", 2000},
                        {"2 KiB", 2048},
                        {"64 MiB", 64LL << 20},
                        {"1e3 MB", 1'000'000'000},
                        {"1.5e-3 MB", 1500},
                        {"25e-1 kB", 2500},
                        {"0.000000001 GB", 1},
                        {"00001 B", 1},
                        {"+1 B", 1},
                        {"4 PiB", 1LL << 52},
                        {"0.00000000000000000000000000 PB", 0}};
  for (const Size& size : sizes) {
    INFO(size.text);
    const Parsed<Bytes> parsed = parse_bytes(size.text);
    CHECK(parsed.complaint == "");
    CHECK(parsed.value == Bytes{size.bytes});
  }
}

TEST_CASE("a size that is wrong says what is wrong", "[io]") {
  const Wrong wrongs[] = {
      {"17", "missing unit, expected a size such as 80 GB or 64 MiB, found '17'"},
      {"", "expected a size such as 80 GB or 64 MiB, found ''"},
      {"GB", "expected a size such as 80 GB or 64 MiB, found 'GB'"},
      {"nan GB", "expected a size such as 80 GB or 64 MiB, found 'nan GB'"},
      {"inf B", "expected a size such as 80 GB or 64 MiB, found 'inf B'"},
      {"0x10 B", "unknown unit 'x10 B', expected a size such as 80 GB or 64 MiB"},
      {"1,5 GB", "unknown unit ',5 GB', expected a size such as 80 GB or 64 MiB"},
      {"1.2.3 GB", "unknown unit '.3 GB', expected a size such as 80 GB or 64 MiB"},
      {"80 Gb", "unknown unit 'Gb', expected a size such as 80 GB or 64 MiB; did you mean 'GB'?"},
      {"80 GiBi", "unknown unit 'GiBi', expected a size such as 80 GB or 64 MiB; did you mean 'GiB'?"},
      {"80 GBps", "unknown unit 'GBps', expected a size such as 80 GB or 64 MiB"},
      {"-1 B", "must not be negative, found '-1 B'"},
      {"1.5 B", "not a whole number of bytes, found '1.5 B'"},
      {"0.1 KiB", "not a whole number of bytes, found '0.1 KiB'"},
      {"5 PiB", "absurdly large, expected at most 4503599627370496 B, found '5 PiB'"},
      {"1e18 EB", "absurdly large, expected at most 4503599627370496 B, found '1e18 EB'"},
      {"1e400 B", "absurdly large, expected at most 4503599627370496 B, found '1e400 B'"},
      {"1e99999999999 B", "too many digits, found '1e99999999999 B'"},
      {"1234567890123456789012 B", "too many digits, found '1234567890123456789012 B'"}};
  for (const Wrong& wrong : wrongs) {
    INFO(wrong.text);
    CHECK(parse_bytes(wrong.text).complaint == wrong.complaint);
  }
}

TEST_CASE("times are rounded once", "[io]") {
  const std::pair<const char*, double> times[] = {
      {"3.2 ms", 0.0032}, {"5us", 5e-6},   {"0.9 us", 0.9e-6},     {"92 ns", 92e-9},  {"0 s", 0},
      {"2 min", 120},     {"1.5 h", 5400}, {"1 d", 86400},         {"1e-3 s", 0.001}, {"7 ps", 7e-12},
      {"2 m", 120},       {"1e-400 s", 0}, {"1.7 \u00b5s", 1.7e-6}};
  for (const auto& [text, seconds] : times) {
    INFO(text);
    CHECK(parse_seconds(text).complaint == "");
    CHECK(parse_seconds(text).value == Seconds{seconds});
  }
  for (const char* text : {"1e-401 s", "1e-2147483648 s", "1e-99999999999 s"}) {
    CHECK(parse_seconds(text).complaint == "too many digits, found '" + std::string(text) + "'");
  }
  CHECK(parse_seconds("5").complaint == "missing unit, expected a time such as 3.2 ms or 5 us, found '5'");
  CHECK(parse_seconds("-5 us").complaint == "must not be negative, found '-5 us'");
  CHECK(parse_seconds("5 sec").complaint == "unknown unit 'sec', expected a time such as 3.2 ms or 5 us");
  CHECK(parse_seconds("1e10 s").complaint == "absurdly large, found '1e10 s'");
  CHECK(parse_seconds("1e309 s").complaint == "absurdly large, found '1e309 s'");
}

TEST_CASE("bandwidths count bytes, or bits where the b is small", "[io]") {
  const std::pair<const char*, double> bandwidths[] = {
      {"25GBps", 25e9},   {"25 GB/s", 25e9},         {"3.35 TBps", 3.35e12},  {"400 Gbps", 50e9},
      {"400 Gb/s", 50e9}, {"1 GiB/s", 1073741824.0}, {"409.6 GBps", 409.6e9}, {"100 Gbit/s", 12.5e9}};
  for (const auto& [text, rate] : bandwidths) {
    INFO(text);
    CHECK(parse_bandwidth(text).complaint == "");
    CHECK(parse_bandwidth(text).value == BytesPerSecond{rate});
  }
  CHECK(parse_bandwidth("unlimited").value == unlimited_bandwidth);
  CHECK(parse_bandwidth("0 GBps").complaint == "must be more than zero, found '0 GBps'");
  CHECK(parse_bandwidth("0.5 B/s").complaint == "absurdly small, expected at least 1 B/s, found '0.5 B/s'");
  CHECK(parse_bandwidth("25").complaint ==
        "missing unit, expected a bandwidth such as 25 GB/s or 400 Gbps, found '25'");
  CHECK(parse_bandwidth("25 GBs").complaint ==
        "unknown unit 'GBs', expected a bandwidth such as 25 GB/s or 400 Gbps; did you mean 'GBps'?");
  CHECK(parse_bandwidth("inf GBps").complaint == "expected a bandwidth such as 25 GB/s or 400 Gbps, found 'inf GBps'");
}

TEST_CASE("rates count operations", "[io]") {
  CHECK(parse_flops_rate("989 TFLOPS").value == FlopsPerSecond{989e12});
  CHECK(parse_flops_rate("312Tf").value == FlopsPerSecond{312e12});
  CHECK(parse_flops_rate("19.5 TFLOP/s").value == FlopsPerSecond{19.5e12});
  CHECK(parse_flops_rate("1e-300 FLOPS").complaint ==
        "absurdly small, expected at least 1 FLOPS, found '1e-300 FLOPS'");
  CHECK(parse_flops_rate("1 FLOPS").value == FlopsPerSecond{1});
  CHECK(parse_flops_rate("1").complaint == "missing unit, expected a rate such as 989 TFLOPS, found '1'");
  CHECK(parse_flops_rate("1 TFLOP").complaint ==
        "unknown unit 'TFLOP', expected a rate such as 989 TFLOPS; did you mean 'TFLOPS'?");
}

TEST_CASE("a capacity may be unlimited", "[io]") {
  CHECK(parse_capacity("unlimited").fine());
  CHECK(!parse_capacity("unlimited").value);
  CHECK(parse_capacity("1 kB").value == Bytes{1000});
  CHECK(parse_capacity("1").complaint == "missing unit, expected a size such as 80 GB or 64 MiB, found '1'");
}

TEST_CASE("plain numbers are finite and whole where they must be", "[io]") {
  CHECK(parse_number("1.05").value == 1.05);
  CHECK(parse_number("nan").complaint == "expected a number, found 'nan'");
  CHECK(parse_number("inf").complaint == "expected a number, found 'inf'");
  CHECK(parse_number("1e999").complaint == "expected a number, found '1e999'");
  CHECK(parse_number("12abc").complaint == "expected a number, found '12abc'");
  CHECK(parse_integer("-7").value == -7);
  CHECK(parse_integer("7.0").complaint == "expected a whole number, found '7.0'");
  CHECK(parse_integer("99999999999999999999").complaint == "expected a whole number, found '99999999999999999999'");
}

TEST_CASE("quantities are written for people with two decimals", "[io]") {
  CHECK(format_bytes(Bytes{17}) == "17 B");
  CHECK(format_bytes(Bytes{999}) == "999 B");
  CHECK(format_bytes(Bytes{1500}) == "1.50 kB");
  CHECK(format_bytes(Bytes{1'500'000'000}) == "1.50 GB");
  CHECK(format_bytes(Bytes{999'999}) == "1.00 MB");
  CHECK(format_bytes(Bytes{-1500}) == "-1.50 kB");
  CHECK(format_bytes(largest_bytes) == "4.50 PB");
  CHECK(format_seconds(Seconds{0}) == "0 s");
  CHECK(format_seconds(Seconds{0.0032}) == "3.20 ms");
  CHECK(format_seconds(Seconds{0.9999999}) == "1.00 s");
  CHECK(format_seconds(Seconds{92e-9}) == "92.00 ns");
  CHECK(format_seconds(Seconds{61.5}) == "61.50 s");
  CHECK(format_seconds(Seconds{-5e-6}) == "-5.00 us");
  CHECK(format_bandwidth(BytesPerSecond{25e9}) == "25.00 GB/s");
  CHECK(format_bandwidth(unlimited_bandwidth) == "unlimited");
  CHECK(format_flops_rate(FlopsPerSecond{989e12}) == "989.00 TFLOPS");
}
