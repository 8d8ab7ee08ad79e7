#pragma once
// Options of the portfolio.

#include <cstdint>

namespace plimsoll {

struct PortfolioOptions {
  std::int64_t effort = 1;
  bool for_pytorch = false;  ///< only strategies whose plans PyTorch runs
  bool eight_bit = false;    ///< also with states of 8 bits
};

}  // namespace plimsoll
