#pragma once
// Tapes that move some values of a plain tape to the host and back, lowered and simulated: what the tape language can
// say, without a planner's picture of it.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// What ops make and others do not use at once, with bytes: all that an offloading of activations may move.
std::vector<TensorId> movable_values(const PartTask&, const Tape& plain);

class TapeOracle {
 public:
  /// `plain` computes and drops. A value goes to the host and back up to `trips` times.
  TapeOracle(const PartTask&, Tape plain, std::vector<TensorId> values, int trips);

  /// Offloads, drops, waits and prefetches at all places between the tape's actions, in all orders; false if that are
  /// more tapes than `most`.
  bool try_all(std::size_t most);

  /// At places drawn from the seed, of some of the values.
  void try_random(std::size_t count, std::uint64_t seed);

  std::optional<Seconds> fastest(Bytes budget) const;
  std::size_t tapes() const { return tapes_; }

 private:
  enum class At : std::uint8_t { device, both, host };
  struct Value {
    TensorId tensor;
    std::vector<bool> needed;  ///< by action of the plain tape: it must be on the device, and nothing of it elsewhere
    std::size_t made = 0, last = 0;  ///< actions of the plain tape: its making and its last use
  };
  struct Place {
    bool stays = false;
    At at = At::device;
    bool waited = true;
    int trips = 0;
  };

  bool can_go_on(std::size_t next) const;
  std::vector<Action> moves(std::size_t next) const;
  void apply(const Action&);
  bool go_on(std::size_t next);
  void measure();

  const PartTask& task_;
  Tape plain_, tape_;
  std::vector<Value> values_;
  std::vector<Place> places_;  // by value, at the end of the tape so far
  int trips_;
  std::size_t most_ = 0, tapes_ = 0;
  std::map<Bytes, Seconds> best_;  // by the simulated peak
};

}  // namespace plimsoll
