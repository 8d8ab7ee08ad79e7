#include "strategies/rematerialization/rockmate/graph_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "sim/core/expects.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {
namespace {

bool contains(const std::vector<std::uint32_t>& list, std::uint32_t v) {
  return std::ranges::find(list, v) != list.end();
}

/// The last reader up to the last forward, or the maker.
std::size_t last_forward_use(const ModelValue& value, std::size_t turn) {
  std::size_t last = *value.maker;
  for (const std::uint32_t reader : value.readers) {
    if (reader <= turn) last = std::max<std::size_t>(last, reader);
  }
  return last;
}

/// By number of forwards before the cut: whether a later op overwrites what an earlier one made.
std::vector<bool> forbidden_cuts(const OpModel& model, std::size_t forwards) {
  std::vector<bool> forbidden(forwards + 1, false);
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    for (const std::uint32_t v : model.ops[o].ways.front().clears) {
      if (!contains(model.ops[o].reads, v)) continue;
      const std::size_t first = model.values[v].maker ? *model.values[v].maker + 1 : 1;
      for (std::size_t p = first; p <= std::min(o, forwards); ++p) forbidden[p] = true;
    }
  }
  return forbidden;
}

/// Numbers of forwards before each cut, both ends included.
std::vector<std::size_t> forward_cuts(const OpModel& model, std::size_t size) {
  struct Best {
    double bytes = std::numeric_limits<double>::infinity();
    std::size_t cuts = 0, from = 0;
  };
  const std::size_t turn = last_forward(model), forwards = turn + 1;
  const std::vector<bool> forbidden = forbidden_cuts(model, forwards);
  std::vector<Best> best(forwards + 1);
  best[0].bytes = 0;
  for (std::size_t p = 1; p <= forwards; ++p) {
    if (forbidden[p] && p < forwards) continue;
    double crossing = 0;
    for (std::size_t from = p; from-- > 0;) {
      if (p < forwards) {
        for (const std::uint32_t v : model.ops[from].ways.front().makes) {
          if (last_forward_use(model.values[v], turn) < p) continue;
          crossing += static_cast<double>(model.storages[model.values[v].storage].count);
        }
      }
      const double bytes = best[from].bytes + crossing;
      const bool better = bytes != best[p].bytes ? bytes < best[p].bytes : best[from].cuts + 1 < best[p].cuts;
      if (better) best[p] = {bytes, best[from].cuts + 1, from};
      const bool found = best[p].bytes < std::numeric_limits<double>::infinity();
      if (p - from >= size && found) break;
    }
  }
  std::vector<std::size_t> cuts;
  for (std::size_t p = forwards; p > 0; p = best[p].from) cuts.push_back(p);
  cuts.push_back(0);
  std::ranges::reverse(cuts);
  return cuts;
}

/// Bytes by place: before each op, and after the last.
class BytesAt {
 public:
  explicit BytesAt(std::size_t ops) : change_(ops + 2, 0) {}
  void add(std::size_t first, std::size_t last, Bytes bytes) {
    if (first > last) return;
    change_[first] += bytes.count;
    change_[last + 1] -= bytes.count;
  }
  std::vector<std::int64_t> sums() && {
    for (std::size_t q = 1; q < change_.size(); ++q) change_[q] += change_[q - 1];
    return std::move(change_);
  }

 private:
  std::vector<std::int64_t> change_;
};

/// Where the backward is cut for a cut of the forwards: where the fewest bytes of forwards are read on the wrong side,
/// of such places where the fewest bytes of gradients cross, of those the last.
std::size_t backward_cut(const OpModel& model, std::size_t forward, std::optional<std::size_t> waiting) {
  const std::size_t turn = last_forward(model), n = model.ops.size();
  BytesAt misplaced(n), crossing(n);
  for (const ModelValue& value : model.values) {
    if (!value.maker || value.readers.empty() || value.readers.back() <= turn) continue;
    const std::size_t maker = *value.maker, last = value.readers.back();
    const Bytes bytes = model.storages[value.storage];
    if (maker > turn || waiting == maker) {
      crossing.add(std::max(maker, turn) + 1, last, bytes);
    } else if (maker >= forward) {
      misplaced.add(turn + 1, last, bytes);
    } else if (last_forward_use(value, turn) < forward) {
      const auto first = std::ranges::upper_bound(value.readers, static_cast<std::uint32_t>(turn));
      misplaced.add(*first + 1, n, bytes);
    }
  }
  const std::vector<std::int64_t> first = std::move(misplaced).sums(), second = std::move(crossing).sums();
  std::size_t best = turn + 1;
  for (std::size_t q = turn + 1; q <= n; ++q) {
    if (std::pair(first[q], second[q]) <= std::pair(first[best], second[best])) best = q;
  }
  return best;
}

class Parts {
 public:
  Parts(const OpModel& model, const std::vector<GraphCut>& cuts)
      : model_(model), cuts_(cuts), block_of_(model.ops.size()), turn_(last_forward(model)) {
    for (std::size_t b = 0; b + 1 < cuts.size(); ++b) {
      for (std::size_t o = cuts[b].forward; o < cuts[b + 1].forward; ++o) block_of_[o] = b;
      for (std::size_t o = cuts[b + 1].backward; o < cuts[b].backward; ++o) block_of_[o] = b;
    }
  }

  std::vector<BlockPart> parts() {
    std::vector<BlockPart> parts(cuts_.size() - 1);
    for (std::size_t b = 0; b < parts.size(); ++b) {
      block_ = b;
      parts[b] = part();
    }
    add_inputs(parts);
    return parts;
  }

 private:
  bool is_later(std::size_t op) const { return block_of_[op] > block_; }
  bool is_inside(std::size_t op) const { return block_of_[op] == block_; }
  /// In time: behind the block's backward.
  bool is_behind(std::size_t op) const { return op >= cuts_[block_].backward; }

  BlockPart part() {
    local_.assign(model_.values.size(), std::nullopt);
    storage_.clear();
    gradient_.clear();
    part_ = {};
    const GraphCut &from = cuts_[block_], &to = cuts_[block_ + 1];
    for (std::size_t o = from.forward; o < to.forward; ++o) add(o);
    if (block_ + 2 < cuts_.size()) add_waiting();
    for (std::size_t o = to.backward; o < from.backward; ++o) add(o);
    if (block_ > 0) add_end();
    for (std::size_t o = 0; o < part_.model.ops.size(); ++o) {
      ModelOp& op = part_.model.ops[o];
      if (!part_.origin[o]) {
        const auto unread = [&](std::uint32_t v) { return part_.model.values[v].readers.empty(); };
        op.sink = std::ranges::all_of(op.ways.front().makes, unread);
      }
    }
    add_held();
    if (part_.waiting) add_bare();
    return std::move(part_);
  }

  std::uint32_t value(std::uint32_t v) {
    if (local_[v]) return *local_[v];
    OpModel& model = part_.model;
    const ModelValue& whole = model_.values[v];
    const bool input = !whole.maker || block_of_[*whole.maker] < block_;
    auto [storage, fresh] = storage_.try_emplace(whole.storage, static_cast<std::uint32_t>(model.storages.size()));
    if (fresh) {
      model.storages.push_back(model_.storages[whole.storage]);
      model.in_storage.emplace_back();
    }
    if (input) model.storages[storage->second] = Bytes{0};
    const auto number = static_cast<std::uint32_t>(model.values.size());
    model.values.push_back({.tensor = TensorId{number}, .storage = storage->second, .maker = {}, .readers = {}});
    model.in_storage[storage->second].push_back(number);
    local_[v] = number;
    return number;
  }

  std::vector<std::uint32_t> values(const std::vector<std::uint32_t>& whole) {
    std::vector<std::uint32_t> list;
    list.reserve(whole.size());
    for (const std::uint32_t v : whole) list.push_back(value(v));
    return list;
  }

  void append(ModelOp op, std::optional<OpId> origin) {
    OpModel& model = part_.model;
    const auto number = static_cast<std::uint32_t>(model.ops.size());
    op.id = OpId{number};
    for (const std::uint32_t v : op.reads) model.values[v].readers.push_back(number);
    for (const std::uint32_t v : op.ways.front().makes) model.values[v].maker = number;
    model.ops.push_back(std::move(op));
    part_.origin.push_back(origin);
  }

  void add(std::size_t o) {
    const ModelOp& whole = model_.ops[o];
    ModelOp op = whole;
    op.reads = values(whole.reads);
    for (std::size_t w = 0; w < op.ways.size(); ++w) {
      op.ways[w].makes = values(whole.ways[w].makes);
      op.ways[w].clears.clear();
      for (const std::uint32_t v : whole.ways[w].clears) {
        if (local_[v]) op.ways[w].clears.push_back(*local_[v]);
      }
    }
    op.gradients.clear();
    for (const std::uint32_t g : whole.gradients) add_gradient(op, g);
    if (model_.repeats) op.accumulate_workspace = std::max(op.accumulate_workspace, op.ways.front().workspace);
    append(std::move(op), OpId{static_cast<std::uint32_t>(o)});
  }

  /// With several micro-batches gradients are there from the start.
  void add_gradient(ModelOp& op, std::uint32_t g) {
    const std::uint32_t first = model_.makers_of[g].front();
    if (model_.repeats || !is_inside(first)) return;
    OpModel& model = part_.model;
    const auto [known, fresh] = gradient_.try_emplace(g, static_cast<std::uint32_t>(model.gradients.size()));
    if (fresh) {
      model.gradients.push_back(model_.gradients[g]);
      model.all_gradients += model_.gradients[g];
      model.makers_of.emplace_back();
    }
    op.gradients.push_back(known->second);
    model.makers_of[known->second].push_back(static_cast<std::uint32_t>(model.ops.size()));
  }

  static ModelOp stand_in(bool forward) {
    ModelOp op;
    op.once = true;
    op.forward = forward;
    op.ways.emplace_back();
    return op;
  }

  bool read_where(const ModelValue& value, auto&& where) const { return std::ranges::any_of(value.readers, where); }

  /// Reads what later blocks read of the block, and makes what its backward reads of theirs.
  void add_waiting() {
    ModelOp op = stand_in(true);
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      const ModelValue& whole = model_.values[v];
      if (!whole.maker) continue;
      if (is_inside(*whole.maker) && *whole.maker <= turn_ &&
          read_where(whole, [&](std::uint32_t r) { return is_later(r); })) {
        op.reads.push_back(value(v));
      }
      if (is_later(*whole.maker) && read_where(whole, [&](std::uint32_t r) { return is_inside(r); })) {
        op.ways.front().makes.push_back(value(v));
      }
    }
    part_.waiting = part_.model.ops.size();
    append(std::move(op), std::nullopt);
  }

  /// Reads what earlier blocks' backward reads.
  void add_end() {
    ModelOp op = stand_in(false);
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      const ModelValue& whole = model_.values[v];
      if (!whole.maker || !local_[v] || block_of_[*whole.maker] < block_) continue;
      if (read_where(whole, [&](std::uint32_t r) { return is_behind(r); })) op.reads.push_back(*local_[v]);
    }
    append(std::move(op), std::nullopt);
  }

  void add_held() {
    std::vector<bool> counted(model_.storages.size(), false);
    for (const ModelValue& value : model_.values) {
      if (!value.maker || !is_later(*value.maker) || counted[value.storage]) continue;
      const bool inside = read_where(value, [&](std::uint32_t r) { return is_inside(r) && r > turn_; });
      const bool behind = read_where(value, [&](std::uint32_t r) { return is_behind(r); });
      if (!inside && !behind) continue;
      counted[value.storage] = true;
      part_.held += model_.storages[value.storage];
      if (!inside) part_.passes += model_.storages[value.storage];
    }
    for (std::size_t g = 0; g < model_.gradients.size(); ++g) {
      if (!model_.repeats && !is_later(model_.makers_of[g].front())) continue;
      part_.held += model_.gradients[g];
      part_.passes += model_.gradients[g];
    }
  }

  /// Backwards from what the waiting op reads.
  void add_bare() {
    const OpModel& model = part_.model;
    std::vector<bool> needed(model.values.size(), false);
    for (const std::uint32_t v : model.ops[*part_.waiting].reads) needed[v] = true;
    for (std::size_t o = *part_.waiting; o-- > 0;) {
      const ModelOp& op = model.ops[o];
      const auto wanted = [&](std::uint32_t v) { return needed[v]; };
      if (std::ranges::none_of(op.ways.front().makes, wanted)) continue;
      const bool saves = std::ranges::any_of(
          op.ways.front().makes, [&](std::uint32_t v) { return needed[v] && !contains(op.ways.back().makes, v); });
      for (const std::uint32_t v : op.reads) needed[v] = true;
      part_.bare.push_back({op.id, saves ? op.ways.front().saving : op.ways.back().saving});
    }
    std::ranges::reverse(part_.bare);
  }

  /// Which storages cross each cut of the forwards.
  void add_inputs(std::vector<BlockPart>& parts) const {
    std::vector<std::vector<std::uint32_t>> crossing(parts.size());
    for (const ModelValue& value : model_.values) {
      if (!value.maker || *value.maker > turn_) continue;
      std::size_t last = block_of_[*value.maker];
      for (const std::uint32_t r : value.readers) last = std::max(last, block_of_[r]);
      for (std::size_t b = block_of_[*value.maker] + 1; b <= last; ++b) {
        if (!contains(crossing[b], value.storage)) crossing[b].push_back(value.storage);
      }
    }
    std::vector<std::size_t> mark(model_.storages.size(), parts.size());
    for (std::size_t b = 0; b < parts.size(); ++b) {
      for (const std::uint32_t s : crossing[b]) parts[b].input += model_.storages[s];
      for (std::size_t j = b + 1; j < parts.size(); ++j) parts[j].input_shares.push_back({});
      for (const std::uint32_t s : crossing[b]) mark[s] = b;
      for (std::size_t j = b + 1; j < parts.size(); ++j) {
        for (const std::uint32_t s : crossing[j]) {
          if (mark[s] == b) parts[j].input_shares[b] += model_.storages[s];
        }
      }
    }
  }

  const OpModel& model_;
  const std::vector<GraphCut>& cuts_;
  std::vector<std::size_t> block_of_;  // by op
  std::size_t turn_;
  std::size_t block_ = 0;
  BlockPart part_;
  std::vector<std::optional<std::uint32_t>> local_;                      // by value
  std::unordered_map<std::uint32_t, std::uint32_t> storage_, gradient_;  // the block's number
};

void put(std::vector<std::int64_t>& shape, const std::vector<std::uint32_t>& list) {
  shape.push_back(static_cast<std::int64_t>(list.size()));
  shape.insert(shape.end(), list.begin(), list.end());
}

}  // namespace

std::vector<GraphCut> cut_graph(const OpModel& model, std::size_t size, std::optional<std::size_t> waiting) {
  EXPECTS(size > 0 && !model.ops.empty());
  std::vector<GraphCut> cuts;
  for (const std::size_t forward : forward_cuts(model, size)) cuts.push_back({forward, 0});
  cuts.front().backward = model.ops.size();
  cuts.back().backward = last_forward(model) + 1;
  for (std::size_t c = 1; c + 1 < cuts.size(); ++c) {
    cuts[c].backward = std::min(backward_cut(model, cuts[c].forward, waiting), cuts[c - 1].backward);
  }
  return cuts;
}

std::vector<BlockPart> block_parts(const OpModel& model, const std::vector<GraphCut>& cuts) {
  EXPECTS(cuts.size() > 1);
  return Parts(model, cuts).parts();
}

std::vector<std::int64_t> shape_of(const OpModel& model) {
  std::vector<std::int64_t> shape;
  for (const ModelOp& op : model.ops) {
    put(shape, op.reads);
    put(shape, op.gradients);
    shape.push_back((op.once ? 1 : 0) + (op.forward ? 2 : 0) + (op.sink ? 4 : 0) + (op.makes_gradient ? 8 : 0));
    shape.push_back(op.accumulate_workspace.count);
    for (const OpWay& way : op.ways) {
      put(shape, way.makes);
      put(shape, way.clears);
      shape.push_back(way.workspace.count);
      shape.push_back(way.time.value > 0 ? std::lround(2 * std::log2(way.time.value)) : -10'000);
    }
  }
  for (const ModelValue& value : model.values) shape.push_back(value.storage);
  for (const Bytes bytes : model.storages) shape.push_back(bytes.count);
  for (const Bytes bytes : model.gradients) shape.push_back(bytes.count);
  return shape;
}

}  // namespace plimsoll
