#include "strategies/rematerialization/dtr/dtr_pool.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide exact_in_double = Wide{1} << 53;

/// Long division bit by bit: 54 bits of the quotient and whether anything is left decide the rounding.
double quotient(Wide numerator, Wide denominator) {
  int exponent = 0;
  while (numerator < denominator) {
    numerator <<= 1U;
    --exponent;
  }
  while (numerator >= denominator << 1U) {
    denominator <<= 1U;
    ++exponent;
  }
  std::uint64_t bits = 0;
  constexpr int digits = 54;  // one more than a double has
  for (int d = 0; d < digits; ++d) {
    bits <<= 1U;
    if (numerator >= denominator) {
      bits |= 1U;
      numerator -= denominator;
    }
    numerator <<= 1U;
  }
  const bool half = (bits & 1U) != 0, more = numerator != 0;
  bits >>= 1U;
  if (half && (more || (bits & 1U) != 0)) ++bits;
  return std::ldexp(static_cast<double>(bits), exponent - (digits - 2));
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

double eviction_cost(std::int64_t weight, std::int64_t bytes, std::int64_t staleness) {
  if (bytes <= 0 || staleness <= 0) return std::numeric_limits<double>::infinity();
  if (weight == 0) return 0;
  const Wide numerator = weight < 0 ? Wide{0} - static_cast<Wide>(weight) : static_cast<Wide>(weight);
  const Wide denominator = static_cast<Wide>(bytes) * static_cast<Wide>(staleness);
  const double cost = numerator <= exact_in_double && denominator <= exact_in_double
                          ? static_cast<double>(numerator) / static_cast<double>(denominator)
                          : quotient(numerator, denominator);
  return weight < 0 ? -cost : cost;
}

DtrPool::DtrPool(DtrHeuristic heuristic, std::uint64_t seed)
    : heuristic_(heuristic), stale_(uses_staleness(heuristic)), random_(seed) {}

void DtrPool::add_storage(std::int64_t bytes) {
  bytes_.push_back(bytes);
  weight_.push_back(0);
  last_access_.push_back(0);
  slot_of_.push_back(nowhere);
}

double DtrPool::key(std::uint32_t storage) const {
  if (heuristic_ == DtrHeuristic::lru) return static_cast<double>(last_access_[storage]);
  if (bytes_[storage] == 0) return infinity;
  const double weight = heuristic_ == DtrHeuristic::size ? 1 : static_cast<double>(weight_[storage]);
  return weight / static_cast<double>(bytes_[storage]);
}

double DtrPool::cost(std::uint32_t storage, std::int64_t clock) const {
  return stale_ ? eviction_cost(weight_[storage], bytes_[storage], clock - last_access_[storage]) : key(storage);
}

void DtrPool::place(std::uint32_t storage) {
  const std::uint32_t slot = slot_of_[storage];
  key_[slot] = key(storage);
  since_[slot] = static_cast<double>(last_access_[storage]);
  least_key_[slot / block] = std::min(least_key_[slot / block], key_[slot]);
  least_since_[slot / block] = std::min(least_since_[slot / block], since_[slot]);
}

void DtrPool::append(std::uint32_t storage) {
  EXPECTS(!contains(storage));
  if (storage_in_.size() > 2 * live_ + 2 * block) compact();
  slot_of_[storage] = static_cast<std::uint32_t>(storage_in_.size());
  if (storage_in_.size() % block == 0) {
    least_key_.push_back(infinity);
    least_since_.push_back(infinity);
  }
  storage_in_.push_back(storage);
  key_.push_back(0);
  since_.push_back(0);
  ++live_;
  place(storage);
}

void DtrPool::remove(std::uint32_t storage) {
  EXPECTS(contains(storage));
  const std::uint32_t slot = slot_of_[storage];
  storage_in_[slot] = nowhere;
  key_[slot] = infinity;
  slot_of_[storage] = nowhere;
  --live_;
}

void DtrPool::compact() {
  std::vector<std::uint32_t> kept;
  kept.reserve(live_);
  for (const std::uint32_t storage : storage_in_) {
    if (storage != nowhere) kept.push_back(storage);
  }
  storage_in_ = std::move(kept);
  key_.resize(storage_in_.size());
  since_.resize(storage_in_.size());
  least_key_.assign((storage_in_.size() + block - 1) / block, infinity);
  least_since_.assign(least_key_.size(), infinity);
  for (std::uint32_t slot = 0; slot < storage_in_.size(); ++slot) {
    slot_of_[storage_in_[slot]] = slot;
    place(storage_in_[slot]);
  }
}

void DtrPool::set_weight(std::uint32_t storage, std::int64_t weight) {
  weight_[storage] = weight;
  if (contains(storage)) place(storage);
}

void DtrPool::set_last_access(std::uint32_t storage, std::int64_t clock) {
  last_access_[storage] = clock;
  if (contains(storage)) place(storage);
}

bool DtrPool::may_hold_better(std::size_t b, double clock, const Best& best) const {
  if (best.slot == nowhere || least_key_[b] < 0) return true;
  return !(least_key_[b] > (stale_ ? best.limit * (clock - least_since_[b]) : best.limit));
}

/// Takes the slot where its cost is at most the best one; true where the search ends there.
bool DtrPool::offer(std::uint32_t slot, std::int64_t clock, Best& best) const {
  const double exact = cost(storage_in_[slot], clock);
  if (exact <= best.cost) {
    best.slot = slot;
    best.cost = exact;
    best.limit = exact + std::abs(exact) * product_tolerance;
  }
  return exact == 0;
}

bool DtrPool::scan(std::size_t b, std::int64_t clock, Best& best) {
  const std::size_t first = b * block, last = std::min(first + block, storage_in_.size());
  const auto now = static_cast<double>(clock);
  double least_key = infinity, least_since = infinity;
  for (std::size_t slot = first; slot < last; ++slot) {
    if (storage_in_[slot] == nowhere) continue;
    least_key = std::min(least_key, key_[slot]);
    least_since = std::min(least_since, since_[slot]);
    if (key_[slot] > (stale_ ? best.limit * (now - since_[slot]) : best.limit)) continue;
    if (offer(static_cast<std::uint32_t>(slot), clock, best)) return true;
  }
  least_key_[b] = least_key;
  least_since_[b] = least_since;
  return false;
}

std::uint32_t DtrPool::any() {
  random_ += 0x9E3779B97F4A7C15ULL;  // splitmix64
  std::uint64_t bits = random_;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBULL;
  bits ^= bits >> 31U;
  std::uint64_t left = (bits >> 32U) * live_ >> 32U;
  for (const std::uint32_t storage : storage_in_) {
    if (storage != nowhere && left-- == 0) return storage;
  }
  EXPECTS(false);
  return nowhere;
}

std::uint32_t DtrPool::choose(std::int64_t clock) {
  EXPECTS(!empty());
  if (heuristic_ == DtrHeuristic::random) return any();
  Best best;
  for (std::size_t b = 0; b < least_key_.size(); ++b) {
    if (may_hold_better(b, static_cast<double>(clock), best) && scan(b, clock, best)) break;
  }
  return storage_in_[best.slot];
}

}  // namespace plimsoll
