#include "sim/memory/exact_packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sim/memory/offset_assignment.h"

namespace plimsoll {
namespace {

using Offset = std::int64_t;
constexpr Offset beyond = std::numeric_limits<Offset>::max();

/// Sections from `first` on, up to but without `end`.
struct Sections {
  std::uint32_t first = 0, end = 0;
};

struct PackedPiece {
  Offset size = 0;
  Sections in;
  Offset dates = 0;  ///< that it lives

  Offset length() const { return in.end - in.first; }
};

/// Buffers over sections: dates at which as many buffers live as at none next to them.
struct Pieces {
  std::vector<PackedPiece> list;
  std::uint32_t sections = 0;
  std::vector<Offset> load;  ///< by section
};

Pieces pieces_of(std::span<const Lifetime> lifetimes) {
  std::vector<std::pair<std::uint32_t, bool>> changes;  // ends before begins
  for (const Lifetime& l : lifetimes) {
    changes.emplace_back(l.begin, true);
    changes.emplace_back(l.end, false);
  }
  std::ranges::sort(changes);
  std::vector<std::uint32_t> dates;  // of sections: the last begin before an end
  for (std::size_t c = 1; c < changes.size(); ++c) {
    if (changes[c - 1].second && !changes[c].second) dates.push_back(changes[c - 1].first);
  }
  const auto section = [&](std::uint32_t date) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(dates, date) - dates.begin());
  };
  Pieces made{.list = {}, .sections = static_cast<std::uint32_t>(dates.size()), .load = {}};
  made.load.assign(dates.size(), 0);
  for (const Lifetime& l : lifetimes) {
    const PackedPiece piece{l.size.count, {section(l.begin), section(l.end)}, std::int64_t{l.end} - l.begin};
    for (std::uint32_t s = piece.in.first; s < piece.in.end; ++s) made.load[s] += piece.size;
    made.list.push_back(piece);
  }
  return made;
}

/// Old values of what was changed.
class Trail {
 public:
  void set(Offset& place, Offset value) {
    old_.emplace_back(&place, place);
    place = value;
  }
  std::size_t mark() const { return old_.size(); }
  void back_to(std::size_t mark) {
    for (; old_.size() > mark; old_.pop_back()) *old_.back().first = old_.back().second;
  }

 private:
  std::vector<std::pair<Offset*, Offset>> old_;
};

/// The piece placed last: later ones lie higher, or as high and later in the order.
struct Last {
  Offset offset = 0;
  std::int64_t rank = -1;

  friend auto operator<=>(const Last&, const Last&) = default;
};

std::uint64_t scattered(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// An order among equal choices.
class PackingOrder {
 public:
  /// 0 to 5: by sections and by dates; others are drawn.
  static constexpr std::size_t fixed = 6;
  PackingOrder(std::size_t number, std::size_t pieces, std::mt19937_64& random) : number_(number) {
    if (number < fixed) return;
    const auto unit = [&random] { return static_cast<double>(random() >> 11U) * 0x1p-53; };
    of_length_ = unit();
    of_size_ = unit() / 2;
    of_most_ = 8 * unit();
    const double of_chance = 0.3 * unit();
    for (std::size_t p = 0; p < pieces; ++p) chance_.push_back(of_chance * unit());
  }

  std::size_t number() const { return number_; }

  /// `most`: the largest load to come of the piece's sections. Lower keys come first.
  std::tuple<double, double, double> key(std::uint32_t p, const PackedPiece& piece, Offset most) const {
    const auto size = static_cast<double>(piece.size), load = static_cast<double>(most);
    const auto length = static_cast<double>(number_ % fixed < 3 ? piece.length() : piece.dates);
    if (number_ >= fixed) {
      const double score = of_length_ * std::log(static_cast<double>(piece.length())) + of_size_ * std::log(size) +
                           of_most_ * std::log(load) + chance_[p];
      return {-score, 0, 0};
    }
    if (number_ % 3 == 0) return {-length, -length * size, -load};
    return number_ % 3 == 1 ? std::tuple(-load, -length * size, -length) : std::tuple(-load, -length, -length * size);
  }

 private:
  std::size_t number_;
  double of_length_ = 0, of_size_ = 0, of_most_ = 0;
  std::vector<double> chance_;  ///< by piece
};

/// What was searched in vain, by a hash of the pieces left and the tops below them, with the lowest piece before it.
class InVain {
 public:
  struct Entry {
    Last last;
    std::uint64_t order;
  };

  /// `ties`: a piece may come to lie as high as the last one. After rank -1 all orders were tried.
  bool knows(std::uint64_t state, const Entry& asked, bool ties) const {
    const auto found = entries_.find(state);
    if (found == entries_.end()) return false;
    const Entry& known = found->second;
    if (asked.last.offset != known.last.offset) return asked.last.offset > known.last.offset;
    const bool by_any_order = !ties || known.last.rank < 0;
    return by_any_order || (asked.order == known.order && asked.last.rank >= known.last.rank);
  }

  void add(std::uint64_t state, const Entry& entry) {
    if (entries_.size() >= most) return;
    const auto [place, is_new] = entries_.try_emplace(state, entry);
    const Last& known = place->second.last;
    const bool is_lower =
        entry.last.offset < known.offset || (entry.last.offset == known.offset && entry.last.rank < 0);
    if (is_lower || (entry.order == place->second.order && entry.last < known)) place->second = entry;
  }

 private:
  static constexpr std::size_t most = 4'000'000;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

/// One order, up to a number of nodes.
class PackingSearch {
 public:
  PackingSearch(const Pieces& pieces, Offset block, InVain& in_vain)
      : pieces_(pieces),
        block_(block),
        in_vain_(in_vain),
        top_(pieces.sections),
        floor_(pieces.sections),
        left_(pieces.load),
        lowest_of_(pieces.sections),
        support_(pieces.list.size()),
        lowest_(pieces.list.size()),
        offsets_(pieces.list.size()),
        rank_(pieces.list.size()) {}

  PackingEnd run(const PackingOrder& order, std::int64_t nodes) {
    trail_.back_to(0);
    order_ = &order;
    nodes_left_ = nodes;
    is_cut_off_ = false;
    Part all(pieces_.list.size());
    std::iota(all.begin(), all.end(), 0U);
    const bool is_found = place_parts(all, {0, pieces_.sections}, {});
    return is_found ? PackingEnd::found : is_cut_off_ ? PackingEnd::cut_off : PackingEnd::impossible;
  }

  const std::vector<Offset>& offsets() const { return offsets_; }
  std::int64_t nodes_left() const { return nodes_left_; }

 private:
  using Part = std::vector<std::uint32_t>;

  /// Each row of sections that pieces join by itself, the shortest first.
  bool place_parts(const Part& part, Sections in, Last last) {
    const std::vector<Sections> rows = rows_of(part, in);
    if (rows.size() == 1 && last.rank >= 0) return place_one_of(part, rows.front(), last);
    for (const Sections row : rows) {
      Part mine;
      for (const std::uint32_t p : part) {
        const std::uint32_t first = pieces_.list[p].in.first;
        if (row.first <= first && first < row.end) mine.push_back(p);
      }
      if (!place_ranked_anew(mine, row, last.offset)) return false;
    }
    return true;
  }

  /// By what is still to come in it. Pieces as high as the last one may have any rank then.
  bool place_ranked_anew(const Part& part, Sections in, Offset least) {
    std::vector<std::int64_t> ranks_before;
    for (const std::uint32_t p : part) ranks_before.push_back(rank_[p]);
    const std::uint64_t ranking_before = ranking_;
    rank(part);
    const bool is_found = place_one_of(part, in, {least, -1});
    ranking_ = ranking_before;
    for (std::size_t i = 0; i < part.size(); ++i) rank_[part[i]] = ranks_before[i];
    return is_found;
  }

  void rank(const Part& part) {
    std::vector<std::pair<std::tuple<double, double, double>, std::uint32_t>> keys;
    for (const std::uint32_t p : part) {
      const PackedPiece& piece = pieces_.list[p];
      const Offset most = *std::max_element(left_.begin() + piece.in.first, left_.begin() + piece.in.end);
      keys.emplace_back(order_->key(p, piece, most), p);
    }
    std::ranges::sort(keys);
    for (std::size_t r = 0; r < keys.size(); ++r) rank_[keys[r].second] = static_cast<std::int64_t>(r);
    ranking_ = scattered(order_->number());
    for (const std::uint32_t p : part) ranking_ += scattered(2 * std::uint64_t{p} + 1);
  }

  std::vector<Sections> rows_of(const Part& part, Sections in) const {
    std::vector<std::uint32_t> reach(in.end - in.first, 0);  // by first section: where the longest piece ends
    for (const std::uint32_t p : part) {
      std::uint32_t& end = reach[pieces_.list[p].in.first - in.first];
      end = std::max(end, pieces_.list[p].in.end);
    }
    std::vector<Sections> rows;
    for (std::uint32_t s = in.first; s < in.end; ++s) {
      const std::uint32_t end = reach[s - in.first];
      if (end == 0) continue;
      if (rows.empty() || rows.back().end <= s) rows.push_back({s, end});
      rows.back().end = std::max(rows.back().end, end);
    }
    std::ranges::stable_sort(rows, {}, [](Sections row) { return row.end - row.first; });
    return rows;
  }

  bool place_one_of(const Part& part, Sections in, Last last) {
    if (nodes_left_-- <= 0) {
      is_cut_off_ = true;
      return false;
    }
    const std::size_t mark = trail_.mark();
    const std::uint64_t state = state_of(part, in);
    const bool ties = std::ranges::any_of(part, [&](std::uint32_t p) { return support_[p] == last.offset; });
    if (in_vain_.knows(state, {last, ranking_}, ties)) return false;
    const bool is_found = raise(part, in, last.offset) && place_any(part, in, last);
    if (is_found) return true;
    trail_.back_to(mark);
    if (!is_cut_off_) in_vain_.add(state, {last, ranking_});
    return false;
  }

  bool place_any(const Part& part, Sections in, Last last) {
    for (const std::uint32_t p : candidates(part, last)) {
      const Last next{lowest_[p], rank_[p]};
      if (!has_room_above(in, next.offset)) return false;  // nor for the others, which lie higher
      const std::size_t mark = trail_.mark();
      if (place_parts(place(p, part), in, next)) return true;
      trail_.back_to(mark);
      if (is_cut_off_) return false;
    }
    return false;
  }

  /// Those that others, or nothing, hold up where they may lie, by offset, then rank; none that another would fit
  /// below.
  Part candidates(const Part& part, Last last) const {
    Offset fits_below = beyond;
    for (const std::uint32_t p : part) fits_below = std::min(fits_below, support_[p] + pieces_.list[p].size);
    Part chosen;
    for (const std::uint32_t p : part) {
      const bool is_held = support_[p] == lowest_[p] && lowest_[p] < fits_below;
      if (is_held && Last{lowest_[p], rank_[p]} > last) chosen.push_back(p);
    }
    std::ranges::sort(chosen, {}, [&](std::uint32_t p) { return std::pair(lowest_[p], rank_[p]); });
    return chosen;
  }

  bool has_room_above(Sections in, Offset offset) const {
    for (std::uint32_t s = in.first; s < in.end; ++s) {
      if (left_[s] > 0 && offset + left_[s] > block_) return false;
    }
    return true;
  }

  /// Returns the others.
  Part place(std::uint32_t placed, const Part& part) {
    const PackedPiece& piece = pieces_.list[placed];
    const Offset end = lowest_[placed] + piece.size;
    offsets_[placed] = lowest_[placed];
    for (std::uint32_t s = piece.in.first; s < piece.in.end; ++s) {
      trail_.set(left_[s], left_[s] - piece.size);
      trail_.set(floor_[s], end);
      trail_.set(top_[s], end);
    }
    Part others;
    for (const std::uint32_t p : part) {
      if (p == placed) continue;
      others.push_back(p);
      const Sections in = pieces_.list[p].in;
      if (in.end <= piece.in.first || piece.in.end <= in.first) continue;
      trail_.set(support_[p], std::max(support_[p], end));
      trail_.set(lowest_[p], std::max(lowest_[p], end));
    }
    return others;
  }

  /// Floors by the pieces that may lie on them, and the other way around, until nothing changes. False where a section
  /// overflows.
  bool raise(const Part& part, Sections in, Offset least) {
    for (std::uint32_t s = in.first; s < in.end; ++s) {
      if (floor_[s] < least) trail_.set(floor_[s], least);
    }
    while (true) {
      std::fill(lowest_of_.begin() + in.first, lowest_of_.begin() + in.end, beyond);
      for (const std::uint32_t p : part) {
        if (!raise_piece(p)) return false;
      }
      bool is_raised = false;
      for (std::uint32_t s = in.first; s < in.end; ++s) {
        if (left_[s] == 0) continue;
        if (lowest_of_[s] > floor_[s]) {
          trail_.set(floor_[s], lowest_of_[s]);
          is_raised = true;
        }
        if (floor_[s] + left_[s] > block_) return false;
      }
      if (!is_raised) return true;
    }
  }

  bool raise_piece(std::uint32_t p) {
    const PackedPiece& piece = pieces_.list[p];
    Offset lowest = lowest_[p];
    for (std::uint32_t s = piece.in.first; s < piece.in.end; ++s) lowest = std::max(lowest, floor_[s]);
    if (lowest + piece.size > block_) return false;
    if (lowest > lowest_[p]) trail_.set(lowest_[p], lowest);
    for (std::uint32_t s = piece.in.first; s < piece.in.end; ++s) lowest_of_[s] = std::min(lowest_of_[s], lowest);
    return true;
  }

  std::uint64_t state_of(const Part& part, Sections in) const {
    std::uint64_t state = 0;
    for (const std::uint32_t p : part) state += scattered(2 * std::uint64_t{p} + 1);
    for (std::uint32_t s = in.first; s < in.end; ++s) {
      if (left_[s] > 0) state += scattered(scattered(2 * std::uint64_t{s}) + static_cast<std::uint64_t>(top_[s]));
    }
    return state;
  }

  const Pieces& pieces_;
  Offset block_;
  InVain& in_vain_;
  std::vector<Offset> top_, floor_, left_;  ///< by section: of what lies there; of what may come; bytes to come
  std::vector<Offset> lowest_of_;           ///< by section, for the time of `raise`: of the pieces to come
  std::vector<Offset> support_, lowest_;    ///< by piece: top of what lies below it; least offset that it can have
  std::vector<Offset> offsets_;
  std::vector<std::int64_t> rank_;  ///< by piece: in the order
  const PackingOrder* order_ = nullptr;
  std::uint64_t ranking_ = 0;  ///< of the order and of the pieces that were ranked together
  std::int64_t nodes_left_ = 0;
  bool is_cut_off_ = false;
  Trail trail_;
};

}  // namespace

BlockPacking pack_within(std::span<const Lifetime> lifetimes, Bytes block, std::int64_t nodes) {
  constexpr std::int64_t first_nodes = 1000;
  constexpr std::size_t orders_at_once = 8;
  const Pieces pieces = pieces_of(lifetimes);
  std::mt19937_64 random(1);
  InVain in_vain;
  PackingSearch search(pieces, block.count, in_vain);
  for (std::size_t turn = 0; nodes > 0; ++turn) {
    const std::size_t round = turn / orders_at_once, of_round = turn % orders_at_once;
    const PackingOrder order(of_round < PackingOrder::fixed ? of_round : turn, lifetimes.size(), random);
    const std::int64_t given = std::min(nodes, first_nodes << std::min<std::size_t>(round, 40));
    const PackingEnd end = search.run(order, given);
    if (end == PackingEnd::impossible) return {end, {}};
    if (end == PackingEnd::found) {
      BlockPacking found{end, {}};
      for (const Offset offset : search.offsets()) found.offsets.push_back(Bytes{offset});
      return found;
    }
    nodes -= given - std::max<std::int64_t>(0, search.nodes_left());
  }
  return {};
}

}  // namespace plimsoll
