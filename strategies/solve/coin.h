#pragma once
// What COIN-OR's CBC and CLP do for milp.h, in a library of its own that is loaded when first needed.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "strategies/solve/milp.h"

namespace plimsoll {

/// CLP's simplex method on one program.
class Simplex {
 public:
  Simplex() = default;
  virtual ~Simplex() = default;
  Simplex(const Simplex&) = delete;
  Simplex& operator=(const Simplex&) = delete;

  virtual void set_upper(std::size_t row, double upper) = 0;
  virtual std::optional<std::vector<double>> solve() = 0;
};

/// `plimsoll_coin` of libplimsoll_coin.so.
struct Coin {
  /// Branch and cut, in this process, which heeds the limits between its phases only.
  MilpResult (*branch_and_cut)(const LinearProgram&, std::span<const double> start, const MilpLimits&);
  std::unique_ptr<Simplex> (*simplex)(const LinearProgram&, double seconds);
};

}  // namespace plimsoll
