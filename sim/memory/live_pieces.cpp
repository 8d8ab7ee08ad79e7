#include "sim/memory/live_pieces.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <tuple>

#include "sim/memory/round.h"

namespace plimsoll {
namespace {

/// An order costs the square of the pieces.
constexpr std::size_t all_orders_up_to = 10'000;

/// A piece as the orders see it: as large as all its parts are together.
struct PieceExtent {
  Bytes size;
  std::uint32_t begin = 0, end = 0;
};

PieceExtent extent_of(const LivePiece& piece) {
  PieceExtent extent{{}, piece.parts.front().life.begin, piece.parts.front().life.end};
  for (const LivePiece::Part& part : piece.parts) {
    extent.size = std::max(extent.size, part.above + part.life.size);
    extent.begin = std::min(extent.begin, part.life.begin);
    extent.end = std::max(extent.end, part.life.end);
  }
  return extent;
}

/// What lies somewhere for some time.
struct LaidPart {
  Lifetime life;
  Bytes offset;
};

/// The lowest offset at which no part shares dates and bytes with what is there.
Bytes lowest_free(const std::vector<LaidPart>& laid, const LivePiece& piece, Bytes unit) {
  std::vector<std::pair<Bytes, Bytes>> between;  // no offset is
  for (const LivePiece::Part& part : piece.parts) {
    for (const LaidPart& other : laid) {
      if (part.life.begin >= other.life.end || other.life.begin >= part.life.end) continue;
      const Bytes end = other.offset + other.life.size;
      if (end <= part.above) continue;
      between.emplace_back(other.offset - part.above - part.life.size, round_up(end - part.above, unit));
    }
  }
  std::ranges::sort(between);
  Bytes lowest;
  for (const auto& [below, above] : between) {
    if (lowest > below) lowest = std::max(lowest, above);
  }
  return lowest;
}

OffsetPlan laid_in_order(std::span<const LivePiece> pieces, std::span<const std::uint32_t> order, Bytes unit) {
  OffsetPlan plan;
  plan.offsets.resize(pieces.size());
  std::vector<LaidPart> laid;
  for (const std::uint32_t p : order) {
    const Bytes offset = lowest_free(laid, pieces[p], unit);
    plan.offsets[p] = offset;
    for (const LivePiece::Part& part : pieces[p].parts) {
      laid.push_back({part.life, offset + part.above});
      plan.size = std::max(plan.size, offset + part.above + part.life.size);
    }
  }
  return plan;
}

/// Puts one of those that reach the top before a place that is drawn. No where the first one does.
bool bring_forward(std::span<const LivePiece> pieces, const OffsetPlan& plan, std::vector<std::uint32_t>& order,
                   std::mt19937_64& random) {
  const auto reaches_top = [&](std::uint32_t p) { return plan.offsets[p] + extent_of(pieces[p]).size == plan.size; };
  const auto found = std::find_if(order.begin(), order.end(), reaches_top);
  if (found == order.begin() || found == order.end()) return false;
  const auto places = static_cast<std::uint64_t>(found - order.begin());
  std::rotate(order.begin() + static_cast<std::ptrdiff_t>(random() % places), found, found + 1);
  return true;
}

}  // namespace

OffsetPlan assign_pieces(std::span<const LivePiece> pieces, Bytes unit, std::size_t tries) {
  std::vector<Lifetime> lifetimes;
  std::vector<PieceExtent> extents;
  for (const LivePiece& piece : pieces) {
    extents.push_back(extent_of(piece));
    for (const LivePiece::Part& part : piece.parts) lifetimes.push_back(part.life);
  }
  const auto key = [&](std::size_t which, std::uint32_t p) {
    const double size = static_cast<double>(extents[p].size.count);
    const double begin = extents[p].begin, length = extents[p].end - begin;
    return std::array{std::tuple(-size, -length), std::tuple(-size * length, -size), std::tuple(-length, -size),
                      std::tuple(begin, -size)}[which];
  };
  std::vector<std::uint32_t> order(pieces.size()), best_order;
  OffsetPlan best;
  const std::size_t orders = pieces.size() > all_orders_up_to ? 1 : 4;
  for (std::size_t which = 0; which < orders; ++which) {
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t p) { return key(which, p); });
    OffsetPlan plan = laid_in_order(pieces, order, unit);
    if (which > 0 && plan.size >= best.size) continue;
    best = std::move(plan);
    best_order = order;
  }
  const Bytes load = greatest_load(lifetimes);
  std::mt19937_64 random(1);
  for (std::size_t t = 0; t < tries && best.size > load; ++t) {
    order = best_order;
    if (!bring_forward(pieces, best, order, random)) break;
    OffsetPlan plan = laid_in_order(pieces, order, unit);
    if (plan.size > best.size) continue;
    best = std::move(plan);
    best_order = order;
  }
  best.load = load;
  best.is_optimal = best.size == best.load;
  return best;
}

}  // namespace plimsoll
