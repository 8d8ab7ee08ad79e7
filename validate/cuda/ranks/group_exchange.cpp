#include "validate/cuda/ranks/group_exchange.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using RankPieces = std::vector<RankPiece>;

std::int64_t bytes_of(const RankPieces& pieces) {
  std::int64_t sum = 0;
  for (const RankPiece& piece : pieces) sum += piece.bytes;
  return sum;
}

/// The same bytes of the whole, one behind the other in the order of the rank, from `at` on.
RankPieces in_a_row(RankPieces pieces, std::int64_t at) {
  std::ranges::sort(pieces, {}, &RankPiece::own);
  for (RankPiece& piece : pieces) {
    piece.own = at;
    at += piece.bytes;
  }
  return pieces;
}

/// From one's places to the other's, of all bytes that both have; in the order of the second.
std::vector<RowMove> common_bytes(RankPieces from, const RankPieces& to) {
  std::ranges::sort(from, {}, &RankPiece::whole);
  std::vector<RowMove> moves;
  for (const RankPiece& piece : to) {
    const std::int64_t end = piece.whole + piece.bytes;
    auto next = std::ranges::upper_bound(from, piece.whole, {}, &RankPiece::whole);
    if (next != from.begin()) --next;
    for (; next != from.end() && next->whole < end; ++next) {
      const std::int64_t first = std::max(piece.whole, next->whole), last = std::min(end, next->whole + next->bytes);
      if (first < last)
        moves.push_back({next->own + first - next->whole, piece.own + first - piece.whole, last - first});
    }
  }
  return moves;
}

/// What follows each other on both sides as one move, and moves at equal distances as rows of one.
std::vector<RowMove> joined(const std::vector<RowMove>& moves) {
  std::vector<RowMove> longest, made;
  for (const RowMove& move : moves) {
    RowMove* last = longest.empty() ? nullptr : &longest.back();
    const bool follows = last != nullptr && last->from + last->bytes == move.from && last->to + last->bytes == move.to;
    if (follows) {
      last->bytes += move.bytes;
    } else {
      longest.push_back(move);
    }
  }
  for (const RowMove& move : longest) {
    RowMove* rows = made.empty() ? nullptr : &made.back();
    if (rows == nullptr || rows->bytes != move.bytes) {
      made.push_back(move);
      continue;
    }
    if (rows->rows == 1 && move.from - rows->from >= move.bytes && move.to - rows->to >= move.bytes) {
      *rows = {rows->from, rows->to, rows->bytes, 2, move.from - rows->from, move.to - rows->to};
    } else if (move.from == rows->from + rows->rows * rows->from_stride &&
               move.to == rows->to + rows->rows * rows->to_stride) {
      ++rows->rows;
    } else {
      made.push_back(move);
    }
  }
  return made;
}

/// Where all moves are one, of so many bytes, to the beginning: from where.
std::optional<std::int64_t> source_of_one(const std::vector<RowMove>& moves, std::int64_t bytes) {
  const bool is_one = moves.size() == 1 && moves[0].rows == 1 && moves[0].bytes == bytes && moves[0].to == 0;
  return is_one ? std::optional(moves[0].from) : std::nullopt;
}

std::optional<std::int64_t> target_of_one(const std::vector<RowMove>& moves, std::int64_t bytes) {
  const bool is_one = moves.size() == 1 && moves[0].rows == 1 && moves[0].bytes == bytes && moves[0].from == 0;
  return is_one ? std::optional(moves[0].to) : std::nullopt;
}

/// By rank of a group.
struct Sides {
  std::vector<RankPieces> from, to;

  std::size_t size() const { return from.size(); }
};

/// The bytes that no rank has given yet; of what several have, the last one's is taken, as ranks on a CPU do it.
Sides with_one_giver(Sides sides) {
  for (std::size_t r = 0; r < sides.size(); ++r) {
    RankPieces left;
    for (const RankPiece& piece : sides.from[r]) {
      RankPieces parts{piece};
      for (std::size_t later = r + 1; later < sides.size(); ++later) {
        RankPieces smaller;
        for (const RankPiece& part : parts) {
          std::int64_t at = part.whole;
          const std::int64_t end = part.whole + part.bytes;
          RankPieces others = sides.from[later];
          std::ranges::sort(others, {}, &RankPiece::whole);
          for (const RankPiece& other : others) {
            if (other.whole + other.bytes <= at || other.whole >= end) continue;
            if (other.whole > at) smaller.push_back({at, part.own + at - part.whole, other.whole - at});
            at = std::max(at, other.whole + other.bytes);
          }
          if (at < end) smaller.push_back({at, part.own + at - part.whole, end - at});
        }
        parts = std::move(smaller);
      }
      left.insert(left.end(), parts.begin(), parts.end());
    }
    sides.from[r] = std::move(left);
  }
  return sides;
}

/// Packs what is sent, or says where it lies as it is sent.
void send(RankCarries& rank, std::vector<RowMove> moves, std::int64_t bytes, std::optional<std::int64_t> only_at = {}) {
  rank.sends_from = source_of_one(moves, bytes);
  if (rank.sends_from && (!only_at || rank.sends_from == only_at)) return;
  rank.sends_from.reset();
  rank.packs = std::move(moves);
}

void receive(RankCarries& rank, std::vector<RowMove> moves, std::int64_t bytes,
             std::optional<std::int64_t> only_at = {}) {
  rank.receives_at = target_of_one(moves, bytes);
  if (rank.receives_at && (!only_at || rank.receives_at == only_at)) return;
  rank.receives_at.reset();
  rank.unpacks = std::move(moves);
}

void all_reduce(GroupExchange& made, const Sides& sides) {
  made.call = GroupExchange::Call::all_reduce;
  made.each = bytes_of(sides.from[0]);
  for (std::size_t r = 0; r < sides.size(); ++r) {
    const RankPieces row = in_a_row(sides.from[r], 0);
    send(made.ranks[r], joined(common_bytes(sides.from[r], row)), made.each);
    receive(made.ranks[r], joined(common_bytes(row, sides.to[r])), made.each);
  }
  made.staged_out = made.staged_in = made.each;
}

void reduce_scatter(GroupExchange& made, const Sides& sides, bool in_place) {
  made.call = GroupExchange::Call::reduce_scatter;
  for (const RankPieces& to : sides.to) made.each = std::max(made.each, bytes_of(to));
  const auto ranks = static_cast<std::int64_t>(sides.size());
  for (std::size_t r = 0; r < sides.size(); ++r) {
    std::vector<RowMove> sent;
    for (std::size_t block = 0; block < sides.size(); ++block) {
      const std::vector<RowMove> moves =
          common_bytes(sides.from[r], in_a_row(sides.to[block], static_cast<std::int64_t>(block) * made.each));
      sent.insert(sent.end(), moves.begin(), moves.end());
    }
    RankCarries& rank = made.ranks[r];
    send(rank, joined(sent), ranks * made.each);
    // What NCCL makes in place is a rank's own block of what it sends.
    const bool is_bound = in_place && rank.sends_from;
    const std::int64_t own = rank.sends_from.value_or(0) + static_cast<std::int64_t>(r) * made.each;
    receive(rank, joined(common_bytes(in_a_row(sides.to[r], 0), sides.to[r])), made.each,
            is_bound ? std::optional(own) : std::nullopt);
  }
  made.staged_out = ranks * made.each;
  made.staged_in = made.each;
}

void all_gather(GroupExchange& made, const Sides& sides, bool in_place) {
  made.call = GroupExchange::Call::all_gather;
  for (const RankPieces& from : sides.from) made.each = std::max(made.each, bytes_of(from));
  const auto ranks = static_cast<std::int64_t>(sides.size());
  for (std::size_t r = 0; r < sides.size(); ++r) {
    std::vector<RowMove> received;
    for (std::size_t block = 0; block < sides.size(); ++block) {
      const std::vector<RowMove> moves =
          common_bytes(in_a_row(sides.from[block], static_cast<std::int64_t>(block) * made.each), sides.to[r]);
      received.insert(received.end(), moves.begin(), moves.end());
    }
    std::ranges::sort(received, {}, &RowMove::from);
    RankCarries& rank = made.ranks[r];
    receive(rank, joined(received), ranks * made.each);
    const bool is_bound = in_place && rank.receives_at;
    const std::int64_t own = rank.receives_at.value_or(0) + static_cast<std::int64_t>(r) * made.each;
    send(rank, joined(common_bytes(sides.from[r], in_a_row(sides.from[r], 0))), made.each,
         is_bound ? std::optional(own) : std::nullopt);
  }
  made.staged_out = made.each;
  made.staged_in = ranks * made.each;
}

void all_to_all(GroupExchange& made, const Sides& sides, bool in_place) {
  made.call = GroupExchange::Call::all_to_all;
  for (RankCarries& rank : made.ranks) {
    rank.sent.resize(sides.size());
    rank.received.resize(sides.size());
  }
  std::vector<std::int64_t> out(sides.size()), in(sides.size());
  for (std::size_t s = 0; s < sides.size(); ++s) {
    for (std::size_t d = 0; d < sides.size(); ++d) {
      const std::vector<RowMove> moves = common_bytes(sides.from[s], sides.to[d]);
      if (s == d) {
        for (const RowMove& move : moves) {
          if (!in_place || move.from != move.to) made.ranks[s].keeps.push_back(move);
        }
        continue;
      }
      for (const RowMove& move : moves) {
        made.ranks[s].packs.push_back({move.from, out[s], move.bytes});
        made.ranks[d].unpacks.push_back({in[d], move.to, move.bytes});
        made.ranks[s].sent[d] += move.bytes;
        made.ranks[d].received[s] += move.bytes;
        out[s] += move.bytes;
        in[d] += move.bytes;
      }
    }
  }
  for (RankCarries& rank : made.ranks) {
    for (std::vector<RowMove>* moves : {&rank.packs, &rank.unpacks, &rank.keeps}) *moves = joined(*moves);
  }
  made.staged_out = std::ranges::max(out);
  made.staged_in = std::ranges::max(in);
}

}  // namespace

GroupExchange group_exchange(const ValueExchange& value, std::span<const std::uint32_t> group, bool in_place) {
  Sides sides;
  for (const std::uint32_t rank : group) {
    sides.from.push_back(value.from[rank]);
    sides.to.push_back(value.to[rank]);
  }
  GroupExchange made;
  made.ranks.resize(group.size());
  if (group.size() == 1) {
    for (const RowMove& move : common_bytes(sides.from[0], sides.to[0])) {
      if (!in_place || move.from != move.to) made.ranks[0].keeps.push_back(move);
    }
    made.ranks[0].keeps = joined(made.ranks[0].keeps);
    return made;
  }
  std::int64_t given = 0, wanted = 0;
  if (!value.sums) sides = with_one_giver(std::move(sides));
  for (const RankPieces& each : sides.from) given += bytes_of(each);
  for (const RankPieces& each : sides.to) wanted += bytes_of(each);
  if (value.sums) {
    // Every rank has a summand of the same bytes.
    for (const RankPieces& each : sides.from) EXPECTS(bytes_of(each) == bytes_of(sides.from[0]));
    if (wanted == bytes_of(sides.from[0])) {
      reduce_scatter(made, sides, in_place);
    } else {
      all_reduce(made, sides);
    }
    return made;
  }
  const auto has_all = [&](const RankPieces& to) { return bytes_of(to) == given; };
  if (std::ranges::all_of(sides.to, has_all)) {
    all_gather(made, sides, in_place);
  } else {
    all_to_all(made, sides, in_place);
  }
  return made;
}

GroupExchange shift_exchange(std::int64_t bytes, std::size_t ranks) {
  GroupExchange made;
  made.call = GroupExchange::Call::all_to_all;
  made.ranks.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    RankCarries& rank = made.ranks[r];
    rank.sends_from = rank.receives_at = 0;
    rank.sent.resize(ranks);
    rank.received.resize(ranks);
    rank.sent[(r + 1) % ranks] = rank.received[(r + ranks - 1) % ranks] = bytes;
  }
  return made;
}

}  // namespace plimsoll
