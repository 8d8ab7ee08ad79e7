#include "sim/mesh/check_split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/core/tolerance.h"
#include "sim/mesh/ring_blocks.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

/// How a value lies along one axis: the dimension that is cut, or one of these.
constexpr int lies_whole = -1, lies_partial = -2;

class SplitJudge {
 public:
  SplitJudge(const Graph& whole, const Graph& rank, const Mesh& mesh) : whole_(whole), rank_(rank), mesh_(mesh) {
    std::unordered_map<std::string_view, std::vector<std::size_t>> named;  // in their order: names may repeat
    for (std::size_t o = 0; o < whole.ops.size(); ++o) named[whole.ops[o].name].push_back(o);
    std::unordered_map<std::string_view, std::size_t> seen;
    for (const Op& op : rank.ops) {
      std::string_view name = op.name;
      const std::optional<std::uint32_t> block = block_of(op);
      if (block) name = name.substr(0, name.rfind(" (block "));
      const auto found = named.find(name);
      if (found == named.end()) continue;
      const std::size_t before = block.value_or(0) == 0 ? seen[name]++ : seen[name] - 1;
      number_[&op] = found->second[std::min(before, found->second.size() - 1)];
    }
    lies_.resize(rank.tensors.size());
    held_.resize(rank.tensors.size());
    ran_.resize(whole.ops.size(), 0);
  }

  std::vector<std::string> run() {
    for (const Op& op : rank_.ops) {
      if (collective_of(op)) {
        judge_collective(op);
      } else if (op_kind(op) == OpKind::share) {
        judge_share(op);
      } else if (op.kind == merge_kind) {
        judge_merge(op);
      } else {
        judge_op(op);
      }
    }
    judge_blocks();
    for (std::size_t o = 0; o < ran_.size(); ++o) {
      if (ran_[o] != 1) bad("'" + whole_.ops[o].name + "' is there " + std::to_string(ran_[o]) + " times");
    }
    for (const auto& [exchange, count] : owed_) {
      if (count != 0) {
        bad("'" + rank_[exchange.first].name + "' is exchanged " + std::to_string(std::abs(count)) + " times too " +
            (count > 0 ? "few" : "many") + " over " + exchange.second);
      }
    }
    return std::move(found_);
  }

 private:
  using Lies = std::vector<int>;  // by axis

  /// Of a ring: a rank's value is that of the rank so many places before it, and has the work of these blocks so far;
  /// of none: all of it.
  struct Held {
    std::uint32_t moved = 0;
    std::set<std::uint32_t> blocks;
    bool is_own_and_whole() const { return moved == 0 && blocks.empty(); }
  };

  static std::optional<std::uint32_t> block_of(const Op& op) {
    const std::optional<std::string_view> text = attribute_of(op, block_key);
    if (!text) return std::nullopt;
    std::uint32_t block = 0;
    std::from_chars(text->data(), text->data() + text->size(), block);
    return block;
  }

  /// By axis: the dimension whose shares go round.
  std::vector<std::optional<std::uint8_t>> around(const Op& op, const OpLoop* loop) const {
    std::vector<std::optional<std::uint8_t>> found(mesh_.axes.size());
    const auto axis = mesh_.axis(attribute_of(op, ring_key).value_or(std::string_view()));
    if (axis && loop != nullptr) found[*axis] = loop->dim(attribute_of(op, around_key).value_or(std::string_view()));
    return found;
  }

  /// An op of a ring reads what comes round with its own block's number, and makes as much of the sums.
  void judge_held(const Op& op, std::uint32_t block, TensorId t, bool goes_round, bool is_output) {
    Held& held = held_[t.index];
    const std::uint32_t moved = goes_round ? block : 0;
    if (is_output) {
      held = {moved, {block}};
    } else if (held.moved != moved || !held.blocks.empty()) {
      bad("'" + op.name + "' reads '" + rank_[t].name + "', which is not block " + std::to_string(moved));
    }
  }

  void judge_blocks() {
    for (const auto& [op, ring] : rings_) {
      const auto& [ranks, blocks] = ring;
      if (blocks.size() == ranks && *blocks.rbegin() + 1 == ranks) continue;
      bad("'" + whole_.ops[op].name + "' has " + std::to_string(blocks.size()) + " of " + std::to_string(ranks) +
          " blocks");
    }
  }

  /// Sums of disjoint blocks of the same share.
  void judge_merge(const Op& op) {
    const auto axis = mesh_.axis(attribute_of(op, ring_key).value_or(std::string_view()));
    if (!axis || op.inputs.size() != 2 * op.outputs.size()) return bad("'" + op.name + "' merges no pairs");
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId one = op.inputs[2 * k], other = op.inputs[2 * k + 1], made = op.outputs[k];
      Held sum = held_[one.index];
      const Held& added = held_[other.index];
      const bool are_alike = lies_[one.index] && lies_[one.index] == lies_[other.index] &&
                             rank_[one].shape == rank_[other].shape && rank_[one].shape == rank_[made].shape;
      const std::size_t all = sum.blocks.size() + added.blocks.size();
      sum.blocks.insert(added.blocks.begin(), added.blocks.end());
      if (!are_alike || sum.moved != added.moved || sum.blocks.size() != all || added.blocks.empty()) {
        bad("'" + op.name + "' adds '" + rank_[other].name + "' to other blocks than its own");
      }
      hold(made, std::move(sum), *axis);
      lies_[made.index] = lies_[one.index];
    }
  }

  /// All blocks on the rank that they are of are the value.
  void hold(TensorId t, Held held, std::size_t axis) {
    if (held.moved == 0 && held.blocks.size() == mesh_.axes[axis].ranks) held.blocks.clear();
    held_[t.index] = std::move(held);
  }

  void bad(std::string what) { found_.push_back(std::move(what)); }

  std::int64_t ranks_of(const std::vector<std::size_t>& axes) const {
    std::int64_t ranks = 1;
    for (const std::size_t a : axes) ranks *= mesh_.axes[a].ranks;
    return ranks;
  }

  /// Shape and bytes of a rank's share of a tensor of the whole graph.
  void judge_size(TensorId t, const Lies& lies) {
    if (t.index >= whole_.tensors.size()) return;  // laid out anew: by the collective that makes it
    const Tensor &all = whole_[t], &own = rank_[t];
    std::vector<std::int64_t> shape = all.shape;
    std::int64_t ranks = 1;
    for (std::size_t a = 0; a < lies.size(); ++a) {
      if (lies[a] < 0) continue;
      ranks *= mesh_.axes[a].ranks;
      if (!shape.empty()) shape[static_cast<std::size_t>(lies[a])] /= mesh_.axes[a].ranks;
    }
    if (own.shape != shape || own.bytes.count * ranks != all.bytes.count) {
      bad("'" + own.name + "' has not the size of a rank's share");
    }
  }

  /// By axis: which dimension of the loop the op says that it cuts.
  std::vector<std::optional<std::uint8_t>> cuts_of(const Op& op, const OpLoop* loop) {
    std::vector<std::optional<std::uint8_t>> cuts(mesh_.axes.size());
    for (std::string_view text = attribute_of(op, "cuts").value_or(std::string_view()); !text.empty();) {
      const std::size_t end = std::min(text.find(' '), text.size()), middle = text.find(':');
      const auto axis = mesh_.axis(text.substr(0, middle));
      const auto dim =
          loop == nullptr || middle >= end ? std::nullopt : loop->dim(text.substr(middle + 1, end - middle - 1));
      if (!axis || !dim || (!loop->dims[*dim].cuttable && !loop->dims[*dim].by_halves)) {
        bad("'" + op.name + "' cannot be cut as it says: " + std::string(text.substr(0, end)));
        return cuts;
      }
      cuts[*axis] = *dim;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return cuts;
  }

  using DimsCut = std::vector<std::optional<std::uint8_t>>;  // by axis: of the op's loop

  static Lies lies_of(const std::vector<std::uint8_t>& operand, const DimsCut& cuts, bool is_output) {
    Lies lies(cuts.size(), lies_whole);
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (!cuts[a]) continue;
      const auto place = std::ranges::find(operand, *cuts[a]);
      if (place != operand.end()) lies[a] = static_cast<int>(place - operand.begin());
      if (place == operand.end() && is_output) lies[a] = lies_partial;
    }
    return lies;
  }

  /// An operand that goes round is cut along what goes round.
  static DimsCut cuts_by(const std::vector<std::uint8_t>& operand, DimsCut cuts, const DimsCut& around) {
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (around[a] && std::ranges::find(operand, *around[a]) != operand.end()) cuts[a] = around[a];
    }
    return cuts;
  }

  static Lies lies_of_output(const OpLoop& loop, std::size_t output, DimsCut cuts) {
    for (const std::uint8_t dim : loop.whole[output])
      std::ranges::replace(cuts, DimsCut::value_type(dim), std::nullopt);
    return lies_of(loop.outputs[output], cuts, true);
  }

  /// What is there from the start lies as the first op needs it that reads it as it is.
  void lay_given(TensorId t) {
    if (lies_[t.index] || !is_given(rank_[t].kind)) return;
    for (const Op& op : rank_.ops) {
      const auto operand = std::ranges::find(op.inputs, t);
      const auto found = number_.find(&op);
      if (operand == op.inputs.end() || found == number_.end() || op.phase == Phase::update) continue;
      const std::variant<OpLoop, std::string> read = loop_of(whole_, id_at<OpId>(found->second));
      const OpLoop* loop = std::get_if<OpLoop>(&read);
      lies_[t.index] = Lies(mesh_.axes.size(), lies_whole);
      if (loop != nullptr) {
        const auto k = static_cast<std::size_t>(operand - op.inputs.begin());
        lies_[t.index] = lies_of(loop->inputs[k], cuts_by(loop->inputs[k], cuts_of(op, loop), around(op, loop)), false);
      }
      return judge_size(t, *lies_[t.index]);
    }
  }

  void judge_op(const Op& op) {
    const auto found = number_.find(&op);
    if (found == number_.end()) return bad("'" + op.name + "' is not an op of the whole graph");
    const std::optional<std::uint32_t> block = block_of(op);
    if (block.value_or(0) == 0) ++ran_[found->second];
    const Op& all = whole_.ops[found->second];
    if (op.inputs.size() != all.inputs.size() || op.outputs.size() != all.outputs.size()) {
      return bad("'" + op.name + "' has other operands than in the whole graph");
    }
    if (op.phase == Phase::update) return judge_update(op);
    const std::variant<OpLoop, std::string> read = loop_of(whole_, id_at<OpId>(found->second));
    const OpLoop* loop = std::get_if<OpLoop>(&read);
    const auto cuts = cuts_of(op, loop);
    std::int64_t ranks = 1;
    for (std::size_t a = 0; a < cuts.size(); ++a) {
      if (cuts[a]) ranks *= mesh_.axes[a].ranks;
    }
    const auto rounds = around(op, loop);
    for (std::size_t a = 0; a < rounds.size(); ++a) {
      if (!rounds[a]) continue;
      ranks *= mesh_.axes[a].ranks;
      auto& [blocks, seen] = rings_[found->second];
      blocks = mesh_.axes[a].ranks;
      if (block && !seen.insert(*block).second) bad("'" + op.name + "' is there twice");
    }
    if (op.flops && all.flops && !agree(op.flops->count * static_cast<double>(ranks), all.flops->count)) {
      bad("'" + op.name + "' has not 1/" + std::to_string(ranks) + " of the work");
    }
    const Lies all_whole(mesh_.axes.size(), lies_whole);
    const auto goes_round = [&](const std::vector<std::uint8_t>& operand) {
      return cuts_by(operand, cuts, rounds) != cuts;
    };
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId t = op.inputs[k];
      if (block) judge_held(op, *block, t, goes_round(loop->inputs[k]), false);
      judge_read(op, t,
                 loop == nullptr ? all_whole : lies_of(loop->inputs[k], cuts_by(loop->inputs[k], cuts, rounds), false),
                 block.has_value());
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const Lies lies = loop == nullptr ? all_whole : lies_of_output(*loop, k, cuts_by(loop->outputs[k], cuts, rounds));
      if (block) judge_held(op, *block, op.outputs[k], goes_round(loop->outputs[k]), true);
      std::optional<Lies>& before = lies_[op.outputs[k].index];
      if (before && *before != lies)
        bad("'" + op.name + "' adds to '" + rank_[op.outputs[k]].name + "', which has another layout");
      judge_size(op.outputs[k], lies);
      before = lies;
    }
    if (loop == nullptr) return;
    for (const LoopReduction& each : loop->reductions) {
      std::vector<std::uint32_t> axes;
      for (std::uint32_t a = 0; a < cuts.size(); ++a) {
        if (cuts[a] == each.dim) axes.push_back(a);
      }
      if (!axes.empty()) owed_[{reduced_tensor(op, each), mesh_.names_of(axes)}] += static_cast<int>(each.count);
    }
  }

  void judge_read(const Op& op, TensorId t, const Lies& needed, bool is_block = false) {
    lay_given(t);
    const std::optional<Lies>& lies = lies_[t.index];
    if (!is_block && !held_[t.index].is_own_and_whole()) {
      bad("'" + op.name + "' reads '" + rank_[t].name + "', which is another rank's or not all of its blocks");
    }
    if (!lies) return bad("'" + op.name + "' reads '" + rank_[t].name + "' before it is made");
    for (std::size_t a = 0; a < needed.size(); ++a) {
      if ((*lies)[a] == needed[a]) continue;
      bad("'" + op.name + "' reads '" + rank_[t].name + "', which " +
          ((*lies)[a] == lies_partial ? "is a partial sum" : "lies otherwise") + " along '" + mesh_.axes[a].name + "'");
    }
  }

  /// Parameters, gradients and states lie alike.
  void judge_update(const Op& op) {
    std::optional<Lies> parameter;
    for (const TensorId t : op.inputs) {
      if (rank_[t].kind != TensorKind::parameter) continue;
      if (!lies_[t.index]) lies_[t.index] = Lies(mesh_.axes.size(), lies_whole);
      parameter = lies_[t.index];
    }
    for (const TensorId t : op.inputs) {
      if (rank_[t].kind == TensorKind::parameter_gradient && parameter) judge_read(op, t, *parameter);
    }
  }

  void judge_collective(const Op& op) {
    const OpCollective what = *collective_of(op);
    const std::vector<std::size_t> axes = mesh_.axes_named(what.axis);
    if (axes.empty() || op.inputs.empty()) return bad("'" + op.name + "' names no axis of the mesh");
    if (op.outputs.empty() && op.mutates.empty()) {  // within an op
      owed_[{op.inputs.front(), std::string(what.axis)}] -= 1;
      return;
    }
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId from = op.inputs[k], to = op.outputs.empty() ? from : op.outputs[k];
      lay_given(from);
      if (!lies_[from.index]) {
        bad("'" + op.name + "' reads '" + rank_[from].name + "' before it is made");
        continue;
      }
      if (what.kind == CollectiveKind::shift) {
        shift(op, axes, from, to);
        continue;
      }
      Lies lies = *lies_[from.index];
      for (const std::size_t a : axes) exchange(op, what.kind, a, from, to, axes, lies);
      judge_sizes_of(op, what.kind, from, to, axes);
      lies_[to.index] = std::move(lies);
    }
  }

  void shift(const Op& op, const std::vector<std::size_t>& axes, TensorId from, TensorId to) {
    if (axes.size() != 1 || rank_[from].shape != rank_[to].shape || rank_[from].bytes != rank_[to].bytes) {
      return bad("'" + op.name + "' does not hand on what it has along one axis");
    }
    Held held = held_[from.index];
    held.moved = (held.moved + 1) % mesh_.axes[axes.front()].ranks;
    hold(to, std::move(held), axes.front());
    lies_[to.index] = lies_[from.index];
  }

  void exchange(const Op& op, CollectiveKind kind, std::size_t axis, TensorId from, TensorId to,
                const std::vector<std::size_t>& axes, Lies& lies) {
    const bool sums = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
    if (sums != (lies[axis] == lies_partial) || (!sums && lies[axis] < 0)) {
      bad("'" + op.name + "' " +
          (sums ? "sums values that are not partial sums" : "gathers values that are not shares") + " along '" +
          mesh_.axes[axis].name + "'");
      return;
    }
    const int grown = dim_that(from, to, true), shrunk = dim_that(from, to, false);
    if (!sums) {
      bool is_innermost = true;
      for (std::size_t a = axis + 1; a < lies.size(); ++a) {
        is_innermost = is_innermost && (lies[a] != lies[axis] || std::ranges::find(axes, a) != axes.end());
      }
      if (!is_innermost || lies[axis] != grown) {
        bad("'" + op.name + "' does not gather the innermost shares along '" + mesh_.axes[axis].name + "'");
      }
    }
    const bool scatters = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
    lies[axis] = scatters ? shrunk : lies_whole;
    if (scatters && shrunk == lies_whole) bad("'" + op.name + "' scatters nothing");
  }

  void judge_share(const Op& op) {
    const std::vector<std::size_t> axes = mesh_.axes_named(attribute_of(op, "axis").value_or(std::string_view()));
    const TensorId from = op.inputs.front(), to = op.outputs.front();
    lay_given(from);
    if (axes.empty() || !lies_[from.index]) return bad("'" + op.name + "' takes a share of nothing");
    Lies lies = *lies_[from.index];
    const int shrunk = dim_that(from, to, false);
    for (const std::size_t a : axes) {
      if (lies[a] != lies_whole || shrunk == lies_whole)
        bad("'" + op.name + "' takes a share of a value that is not whole");
      lies[a] = shrunk;
    }
    if (rank_[to].bytes.count * ranks_of(axes) != rank_[from].bytes.count) bad("'" + op.name + "' takes another share");
    lies_[to.index] = std::move(lies);
  }

  void judge_sizes_of(const Op& op, CollectiveKind kind, TensorId from, TensorId to,
                      const std::vector<std::size_t>& axes) {
    std::int64_t before = rank_[from].bytes.count, after = rank_[to].bytes.count;
    if (kind == CollectiveKind::all_gather) before *= ranks_of(axes);
    if (kind == CollectiveKind::reduce_scatter) after *= ranks_of(axes);
    if (before != after) bad("'" + op.name + "' makes another number of bytes than its kind says");
  }

  /// Of the shape; lies_whole: none.
  int dim_that(TensorId from, TensorId to, bool grows) const {
    const auto &before = rank_[from].shape, &after = rank_[to].shape;
    for (std::size_t d = 0; d < std::min(before.size(), after.size()); ++d) {
      if (grows ? after[d] > before[d] : after[d] < before[d]) return static_cast<int>(d);
    }
    return lies_whole;
  }

  const Graph &whole_, &rank_;
  const Mesh& mesh_;
  std::unordered_map<const Op*, std::size_t> number_;  // by op of the rank's graph: the whole graph's
  std::vector<std::optional<Lies>> lies_;              // by tensor of the rank's graph
  std::vector<Held> held_;                             // by tensor of the rank's graph
  std::map<std::size_t, std::pair<std::size_t, std::set<std::uint32_t>>> rings_;  // ranks, and blocks that were there
  std::vector<int> ran_;                                                          // by op of the whole graph
  std::map<std::pair<TensorId, std::string>, int> owed_;  // exchanges within ops that are still to come
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> check_split(const Graph& whole, const Graph& rank, const Mesh& mesh) {
  return SplitJudge(whole, rank, mesh).run();
}

}  // namespace plimsoll
