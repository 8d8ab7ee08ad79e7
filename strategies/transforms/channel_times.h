#pragma once
// How long a convolution takes with 1, 2, ... 112 channels, measured: in steps of 16, the width of the CPU's vectors.
// On an AMD EPYC with AVX-512 by one thread of torch 1.13.0 with oneDNN, 2026-11-23: the shorter of two runs of
// traces/measure_channels.py --repetitions 40 (3 x 3, pictures of 28 x 28, 4 at a time, fp32, forward and backward).
// More channels were measured, too, but both runs were disturbed there.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace plimsoll {

/// Microseconds with 1, 2, ... output channels and 64 inputs.
inline constexpr std::array<std::int32_t, 112> microseconds_by_outputs{
    2018,  1832,  1803,  1859,  1831,  1834,  1820,  1823,  1823,  1856,  1860,  1886,  1845,  1870,  1838,  1819,
    3473,  3443,  3409,  3418,  3404,  3460,  3520,  3523,  3459,  3505,  3537,  3529,  3437,  3528,  3410,  3509,
    5048,  5166,  5100,  5013,  5232,  5236,  5085,  5185,  5043,  5105,  5195,  5116,  5164,  5191,  5135,  5021,
    6752,  6711,  6774,  6775,  6773,  6636,  6932,  6750,  6952,  6763,  6678,  6757,  6968,  6747,  7041,  6691,
    10976, 8345,  11413, 8584,  10326, 8401,  8896,  11490, 8688,  10976, 8391,  12409, 8716,  8396,  10095, 8660,
    10712, 9910,  10202, 10167, 9922,  9828,  9805,  10039, 9990,  10100, 10244, 10037, 10096, 9924,  10005, 9897,
    11633, 11738, 11604, 11649, 15669, 13752, 16094, 15885, 15710, 15736, 15832, 15001, 15750, 12380, 14606, 11957};

/// With 1, 2, ... input channels and 64 outputs.
inline constexpr std::array<std::int32_t, 112> microseconds_by_inputs{
    1048,  901,   950,   1232,  1239,  1270,  1309,  1356,  1694,  1709,  1718,  1799,  1827,  1851,  1866,  1818,
    3501,  3513,  3382,  3400,  3434,  3525,  3449,  3455,  3516,  3565,  3506,  3442,  3563,  3428,  3518,  3460,
    5178,  5168,  5178,  5122,  5100,  5219,  5142,  5138,  5091,  5254,  5214,  5256,  5192,  5185,  5242,  5033,
    6995,  6779,  6855,  6886,  6940,  6804,  6991,  6781,  7191,  6677,  6951,  7034,  6931,  6943,  6947,  6777,
    10280, 9202,  9528,  8603,  8590,  9112,  8769,  8704,  8879,  8527,  8697,  8405,  9165,  8590,  8709,  8784,
    11793, 12955, 10264, 10296, 10190, 10190, 10018, 10448, 14115, 12142, 10307, 13223, 11260, 10707, 10293, 10247,
    11945, 14349, 11770, 11786, 11790, 12166, 12154, 11995, 11905, 12026, 11942, 11736, 11749, 11685, 11656, 11619};

/// Microseconds with so many channels: the shortest with so many or more, since a convolution may be padded. Behind the
/// table whole blocks of 16, in proportion to its end.
template <std::size_t n>
constexpr double microseconds_of(const std::array<std::int32_t, n>& table, std::int64_t channels) {
  constexpr std::int64_t block = 16, most = n;
  if (channels > most) {
    const std::int64_t blocks = (channels + block - 1) / block;
    return static_cast<double>(table.back()) * static_cast<double>(blocks * block) / static_cast<double>(most);
  }
  return *std::min_element(table.begin() + (channels - 1), table.end());
}

constexpr double time_with_outputs(std::int64_t channels) {
  return microseconds_of(microseconds_by_outputs, channels);
}

constexpr double time_with_inputs(std::int64_t channels) {
  return microseconds_of(microseconds_by_inputs, channels);
}

}  // namespace plimsoll
