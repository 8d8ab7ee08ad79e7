#include "sim/bound/trade_pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plimsoll {

// One row a piece, of the most seconds by room.
std::vector<std::size_t> worthiest(std::span<const PieceWorth> pieces, std::int64_t room) {
  constexpr std::int64_t most_slots = 1000;
  std::vector<std::size_t> chosen, priced;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (pieces[k].bytes <= 0) {
      chosen.push_back(k);
      room -= pieces[k].bytes;
    } else {
      priced.push_back(k);
    }
  }
  if (room > 0 && !priced.empty()) {
    const std::int64_t slot = std::max<std::int64_t>(1, (room + most_slots - 1) / most_slots);
    const auto slots = static_cast<std::size_t>(room / slot);
    std::vector<double> most(slots + 1, 0);
    std::vector<std::vector<bool>> takes(priced.size(), std::vector<bool>(slots + 1, false));
    const auto slots_of = [&](std::size_t k) {
      return static_cast<std::size_t>(std::min((pieces[priced[k]].bytes - 1) / slot, room / slot) + 1);
    };
    for (std::size_t k = 0; k < priced.size(); ++k) {
      const std::size_t its = slots_of(k);
      for (std::size_t s = slots + 1; s-- > its;) {
        if (most[s - its] + pieces[priced[k]].seconds <= most[s]) continue;
        most[s] = most[s - its] + pieces[priced[k]].seconds;
        takes[k][s] = true;
      }
    }
    std::size_t left = slots;
    for (std::size_t k = priced.size(); k-- > 0;) {
      if (!takes[k][left]) continue;
      chosen.push_back(priced[k]);
      left -= slots_of(k);
    }
  }
  std::ranges::sort(chosen);
  return chosen;
}

std::vector<std::vector<std::uint32_t>> pieces_of(const std::vector<bool>& in,
                                                  std::span<const std::pair<std::uint32_t, std::uint32_t>> pairs) {
  std::vector<std::uint32_t> root(in.size());
  std::iota(root.begin(), root.end(), 0);
  const auto root_of = [&](std::uint32_t k) {
    while (root[k] != k) k = root[k] = root[root[k]];
    return k;
  };
  for (const auto& [a, b] : pairs) {
    if (in[a] && in[b]) root[root_of(b)] = root_of(a);
  }
  std::vector<std::vector<std::uint32_t>> pieces(in.size());
  for (std::uint32_t k = 0; k < in.size(); ++k) {
    if (in[k]) pieces[root_of(k)].push_back(k);
  }
  std::erase_if(pieces, [](const auto& piece) { return piece.empty(); });
  return pieces;
}

namespace {

/// Kept bytes of a model, recounted op by op.
class KeptOfModel {
 public:
  KeptOfModel(const SnapshotModel& model, const SnapshotCut& cut) : model_(model), runs_(cut.runs), kept_(cut.kept) {
    bytes_ = cut.kept_bytes;
    readers_.resize(model.values.size(), 0);
    for (std::uint32_t v = 0; v < model.values.size(); ++v) {
      for (const std::uint32_t r : model.values[v].readers) readers_[v] += runs_[r] ? 1 : 0;
    }
  }

  const std::vector<bool>& runs() const { return runs_; }
  Bytes bytes() const { return bytes_; }

  void set(std::uint32_t op, bool runs) {
    if (runs_[op] == runs) return;
    runs_[op] = runs;
    for (const std::uint32_t v : model_.ops[op].reads) {
      readers_[v] += runs ? 1 : -1;
      recount(v);
    }
    for (const std::uint32_t v : model_.ops[op].makes) recount(v);
  }

 private:
  void recount(std::uint32_t v) {
    const SnapshotValue& value = model_.values[v];
    const bool is_kept = readers_[v] > 0 && !(value.maker && runs_[*value.maker]);
    if (is_kept == kept_[v]) return;
    kept_[v] = is_kept;
    bytes_ += is_kept ? value.bytes : Bytes{0} - value.bytes;
  }

  const SnapshotModel& model_;
  std::vector<bool> runs_, kept_;
  std::vector<std::uint32_t> readers_;
  Bytes bytes_;
};

}  // namespace

std::vector<bool> filled(const SnapshotModel& model, const SnapshotCut& within, const std::optional<SnapshotCut>& over,
                         Bytes room) {
  KeptOfModel now(model, within);
  if (!over) return now.runs();
  std::vector<bool> in(model.ops.size());
  for (std::size_t o = 0; o < in.size(); ++o) in[o] = within.again[o] && !over->again[o];
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const SnapshotValue& value : model.values) {
    if (!value.maker) continue;
    for (const std::uint32_t reader : value.readers) pairs.emplace_back(*value.maker, reader);
  }
  const std::vector<std::vector<std::uint32_t>> pieces = pieces_of(in, pairs);
  std::vector<PieceWorth> worth;
  for (const std::vector<std::uint32_t>& piece : pieces) {
    const Bytes before = now.bytes();
    PieceWorth its;
    for (const std::uint32_t o : piece) {
      now.set(o, false);
      its.seconds += model.ops[o].again.value;
    }
    its.bytes = (now.bytes() - before).count;
    for (const std::uint32_t o : piece) now.set(o, true);
    worth.push_back(its);
  }
  for (const std::size_t k : worthiest(worth, (room - now.bytes()).count)) {
    for (const std::uint32_t o : pieces[k]) now.set(o, false);
    if (now.bytes() <= room) continue;
    for (const std::uint32_t o : pieces[k]) now.set(o, true);
  }
  return now.runs();
}

}  // namespace plimsoll
