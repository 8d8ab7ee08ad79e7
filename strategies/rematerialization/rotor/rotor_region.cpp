#include "strategies/rematerialization/rotor/rotor_region.h"

#include <algorithm>
#include <utility>

#include "strategies/rematerialization/rotor/table_parts.h"

namespace plimsoll {

class RotorRegion::Search {
 public:
  Search(const RotorGrid& grid, std::span<const Known> known) : grid_{grid} {
    const std::size_t n = grid.model().stages();
    parts_.resize(n * (n + 1));
    rests_.resize(n * (n + 1));
    Seconds longest;
    for (const Known& k : known) longest = std::max(longest, k.recompute);
    longest_ = grid.rounded_up(longest);
    for (const Known& k : known) {
      give(0, n - 1, Entry::saved, grid.memory(k.low).count, grid.memory(k.high).count,
           longest_ - grid.rounded_up(k.recompute));
    }
    for (std::size_t length = n; length > 0; --length) {
      for (std::size_t i = 0; i + length <= n; ++i) {
        for (const Entry entry : {Entry::saved, Entry::checkpoint}) visit(i, i + length - 1, entry);
      }
    }
  }

  std::vector<Part> take_parts() { return std::move(parts_); }

 private:
  using Row = RotorGrid::Row;
  // What the rest takes, by the cell of the row's grid in which the memory is: cell k ends at point k, the last one at
  // what the sub-chain can use.
  struct Rest {
    std::size_t begin = 0;              // in rest_
    std::int64_t first = 0, last = -1;  // cells that were reached
    float least = 0;                    // of them
  };

  void give(std::size_t i, std::size_t l, Entry, std::int64_t low, std::int64_t high, float rest);
  void visit(std::size_t i, std::size_t l, Entry);

  const RotorGrid& grid_;
  float longest_ = 0;
  std::vector<Part> parts_;
  std::vector<Rest> rests_;
  std::vector<float> rest_;
};

RotorRegion::RotorRegion(const RotorGrid& grid, std::span<const Known> known)
    : parts_{Search(grid, known).take_parts()} {}

// The sub-chain is given between `low` and `high` bytes, the rest taking at least `rest`.
void RotorRegion::Search::give(std::size_t i, std::size_t l, Entry entry, std::int64_t low, std::int64_t high,
                               float rest) {
  if (entry == Entry::checkpoint && !grid_.conditions().entries_differ(i)) entry = Entry::saved;
  const Row& row = grid_.row(i, l, entry);
  low = std::max(std::min(low, row.enough), row.need);
  high = std::min(high, row.enough);
  if (low > high) return;
  const auto cell = [&row](std::int64_t bytes) {
    return std::clamp<std::int64_t>(row.at_or_above(bytes), 0, row.count);
  };
  std::int64_t first = cell(low);
  const std::int64_t last = cell(high);
  while (first <= last && !(rest + row.values[first] <= longest_)) ++first;
  if (first > last) return;
  if (first > 0) low = std::max(low, row.point(first - 1) + 1);
  Rest& reached = rests_[at(i, l, entry)];
  Part& part = parts_[at(i, l, entry)];
  if (!part.is_used()) {
    reached = {rest_.size(), first, last, rest};
    rest_.resize(rest_.size() + static_cast<std::size_t>(row.count) + 1, infinite_float);
    part = {low, high, 0};
  }
  reached.first = std::min(reached.first, first);
  reached.last = std::max(reached.last, last);
  reached.least = std::min(reached.least, rest);
  part.low = std::min(part.low, low);
  part.high = std::max(part.high, high);
  float* const cells = rest_.data() + reached.begin;
  for (std::int64_t k = first; k <= last; ++k) cells[k] = std::min(cells[k], rest);
}

void RotorRegion::Search::visit(std::size_t i, std::size_t l, Entry entry) {
  Part& part = parts_[at(i, l, entry)];
  if (!part.is_used()) return;
  const Rest reached = rests_[at(i, l, entry)];
  part.longest = grid_.rounded_up(Seconds{longest_ - reached.least});
  if (i == l) return;
  const Row& row = grid_.row(i, l, entry);
  const RotorConditions& conditions = grid_.conditions();
  const ChainModel& model = grid_.model();
  // Memory of a cell that the sub-chain may be given.
  const auto low_of = [&](std::int64_t k) { return k > 0 ? std::max(part.low, row.point(k - 1) + 1) : part.low; };
  const auto high_of = [&](std::int64_t k) { return k < row.count ? std::min(part.high, row.point(k)) : part.high; };
  const auto rest_of = [&](std::int64_t k) { return rest_[reached.begin + static_cast<std::size_t>(k)]; };

  const std::int64_t kept = conditions.kept(i, entry).count, all = conditions.all(i, l, entry).count;
  for (std::int64_t k = reached.first; k <= reached.last; ++k) {
    const float rest = rest_of(k);
    if (rest == infinite_float || high_of(k) < all) continue;
    give(i + 1, l, Entry::saved, std::max(low_of(k), all) - kept, high_of(k) - kept, rest);
  }
  if (part.low >= row.enough) return;  // saves everything
  const std::int64_t held = conditions.held(l).count;
  std::int64_t run = 0;
  float nograd = 0;
  for (std::size_t j = i + 1; j <= l && conditions.recomputable(j - 1); ++j) {
    nograd += static_cast<float>(model.nograd[j - 1].value);
    run = std::max(run, conditions.null_step(i, j - 1).count);
    if (held + run > part.high || nograd + reached.least > longest_) break;
    const Row& late = grid_.row(j, l, Entry::checkpoint);
    const Row& early = grid_.early(i, j - 1, entry);
    const std::int64_t x = model.x[j].count, low = std::max({held + run, x + late.need, early.need});
    if (low > part.high) continue;
    const auto best = [&](std::int64_t bytes) {
      return std::pair{grid_.time(late, bytes - x), grid_.time(early, bytes)};
    };
    if (const auto [a, b] = best(part.high); !(reached.least + nograd + a + b <= longest_)) continue;
    for (std::int64_t k = reached.last; k >= reached.first; --k) {
      const std::int64_t high = high_of(k);
      if (high < low) break;
      const auto [a, b] = best(high);
      if (!(reached.least + nograd + a + b <= longest_)) break;
      const float rest = rest_of(k) + nograd;
      if (!(rest + a + b <= longest_)) continue;
      const std::int64_t from = std::max(low, low_of(k));
      give(j, l, Entry::checkpoint, from - x, high - x, rest + b);
      give(i, j - 1, entry, from, high, rest + a);
    }
  }
}

}  // namespace plimsoll
