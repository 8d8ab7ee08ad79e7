#include "validate/networks/rank_layouts.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/asynchronous_products.h"
#include "sim/mesh/ring_blocks.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/op_blocks.h"

namespace plimsoll {
namespace {

using enum AxisLayout::Kind;

struct Unknown {
  std::string why;
};

class LayoutFinder {
 public:
  LayoutFinder(const Graph& whole, const Graph& rank, const Mesh& mesh)
      : whole_(whole), rank_(rank), mesh_(mesh), blocks_(rank, mesh), found_(rank.tensors.size()) {
    for (std::size_t o = 0; o < whole.ops.size(); ++o) {
      if (!number_.emplace(whole.ops[o].name, id_at<OpId>(o)).second) repeated_ = whole.ops[o].name;
    }
    for (const Op& op : rank.ops) find_halved(op);
  }

  std::vector<RankLayout> run() {
    if (!repeated_.empty()) throw Unknown{"the network has several ops '" + repeated_ + "'"};
    for (const Op& op : rank_.ops) {
      if (op.phase == Phase::update && !collective_of(op)) continue;
      if (is_of_replicas(op)) continue;
      if (collective_of(op) || op_kind(op) == OpKind::share) {
        lay_out_anew(op);
      } else if (attribute_of(op, sliced_of_key) && !attribute_of(op, sliced_operand_key)) {
        lie_as_sum(op);
      } else if (op.kind == merge_kind) {
        for (std::size_t k = 0; k < op.outputs.size(); ++k) lie(op.outputs[k], found_[op.inputs[2 * k].index]->layout);
      } else {
        lie_as_cut(op);
      }
    }
    for (const Op& op : rank_.ops) {
      if (is_of_replicas(op)) share_out(op);
    }
    for (const Op& op : rank_.ops) {
      if (op.phase == Phase::update && !collective_of(op)) lie_as_parameters(op);
    }
    std::vector<RankLayout> made;
    for (std::size_t t = 0; t < found_.size(); ++t) {
      made.push_back(found_[t].value_or(lies_so(id_at<TensorId>(t), Layout(mesh_.axes.size()))));
    }
    return made;
  }

 private:
  /// Among ranks that each have their own micro-batches, and all of a tensor or a range of it.
  bool is_of_replicas(const Op& op) const {
    const std::vector<std::size_t> axes = axes_of(op);
    return std::ranges::any_of(axes, [&](std::size_t a) { return mesh_.axes[a].shares_micro_batches; });
  }

  /// Of an exchange or a share; of other ops none.
  std::vector<std::size_t> axes_of(const Op& op) const {
    if (op_kind(op) != OpKind::share && !collective_of(op)) return {};
    return mesh_.axes_named(attribute_of(op, "axis").value_or(std::string_view()));
  }

  RankLayout lies_so(TensorId t, Layout layout) const {
    const Tensor& own = rank_[t];
    RankLayout made{std::move(layout), own.shape, own.bytes, {}, halved_};
    for (std::size_t a = 0; a < made.layout.size(); ++a) {
      if (made.layout[a].kind == cut) made.shape[made.layout[a].dim] *= mesh_.axes[a].ranks;
    }
    std::int64_t numbers = 1;
    for (const std::int64_t extent : own.shape) numbers *= extent;
    made.each_number = Bytes{own.bytes.count / std::max<std::int64_t>(numbers, 1)};
    return made;
  }

  void lie(TensorId t, Layout layout) {
    if (!found_[t.index]) found_[t.index] = lies_so(t, std::move(layout));
  }

  using Cuts = std::vector<std::optional<std::uint8_t>>;

  /// The loop of the network's op that the op is of, where that is cut.
  std::optional<OpLoop> loop_if_cut(const Op& op, Cuts& cuts) const {
    const std::string_view of = blocks_.of(op).of, text = attribute_of(op, "cuts").value_or(std::string_view());
    const auto place = number_.find(of);
    if (place == number_.end()) throw Unknown{"the network has no op '" + op.name + "'"};
    if (text.empty()) return std::nullopt;
    std::variant<OpLoop, std::string> read = loop_of(whole_, place->second);
    if (std::string* why = std::get_if<std::string>(&read)) throw Unknown{std::move(*why)};
    read_cuts(text, std::get<OpLoop>(read), cuts);
    return std::get<OpLoop>(std::move(read));
  }

  /// Axes along which an op has queries from both ends; all that they cut are positions, and lies so.
  void find_halved(const Op& op) {
    if (!attribute_of(op, "cuts") || collective_of(op)) return;
    Cuts cuts(mesh_.axes.size());
    const std::optional<OpLoop> loop = loop_if_cut(op, cuts);
    for (std::size_t a = 0; a < cuts.size() && loop; ++a) {
      const bool is_known = std::ranges::find(halved_, a) != halved_.end();
      if (cuts[a] && loop->dims[*cuts[a]].by_halves && !is_known) halved_.push_back(a);
    }
  }

  void lie_as_cut(const Op& op) {
    const OpBlocks blocks = blocks_.of(op);
    Cuts cuts(mesh_.axes.size());
    const std::optional<OpLoop> loop = loop_if_cut(op, cuts);
    const Layout all_whole(mesh_.axes.size());
    for (std::size_t k = 0; k < blocks.inputs.size(); ++k) {
      if (blocks.inputs[k].blocks.size() > 1) continue;
      const TensorId own = blocks.inputs[k].blocks.front();
      lie(own, loop ? layout_of(loop->inputs[k], of_operand(op, *loop, cuts, loop->inputs[k]), false) : all_whole);
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      lie(op.outputs[k], loop ? layout_of_output(*loop, k, of_operand(op, *loop, cuts, loop->outputs[k])) : all_whole);
    }
  }

  /// Of blocks that go round ranks have shares of another dimension than the op's own.
  Cuts of_operand(const Op& op, const OpLoop& loop, Cuts cuts, const std::vector<std::uint8_t>& dims) const {
    const auto ring = attribute_of(op, ring_key);
    if (!ring) return cuts;
    const std::uint8_t around = *loop.dim(*attribute_of(op, around_key));
    if (std::ranges::find(dims, around) != dims.end()) cuts[*mesh_.axis(*ring)] = around;
    return cuts;
  }

  /// What a product in parts has made for a rank is of partial sums, and the last sum that rank's share.
  void lie_as_sum(const Op& op) {
    const TensorId sum = op.outputs.front();
    Layout layout = found_[op.inputs.front().index]->layout;
    const std::size_t axis = *mesh_.axis(*attribute_of(op, sliced_axis_key));
    if (whole_attribute(op, sliced_part_key) + 1 == mesh_.axes[axis].ranks) {
      const Op& product = whole_[number_.at(*attribute_of(op, sliced_of_key))];
      const std::vector<std::int64_t> all = local_shape(whole_[product.outputs.front()].shape, layout, mesh_);
      const auto shared = std::ranges::mismatch(all, rank_[sum].shape).in1;
      EXPECTS(shared != all.end());
      layout[axis] = {cut, static_cast<std::uint8_t>(shared - all.begin())};
    }
    lie(sum, std::move(layout));
  }

  void read_cuts(std::string_view text, const OpLoop& loop, Cuts& cuts) const {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size()), middle = text.find(':');
      const std::optional<std::size_t> axis = mesh_.axis(text.substr(0, middle));
      EXPECTS(axis && middle < end);
      cuts[*axis] = loop.dim(text.substr(middle + 1, end - middle - 1));
      EXPECTS(cuts[*axis]);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  /// What is laid out anew, and sums in place, whose bytes stay where they are.
  void lay_out_anew(const Op& op) {
    if (op.outputs.empty() && op.mutates.empty()) {
      throw Unknown{"'" + op.name + "' is within another op, where the replay exchanges nothing"};
    }
    if (collective_of(op) && collective_of(op)->kind == CollectiveKind::shift) return hand_on(op);
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId from = op.inputs[k], to = op.outputs[k];
      if (!found_[from.index]) lie(from, Layout(mesh_.axes.size()));
      Layout layout = found_[from.index]->layout;
      for (const std::size_t a : axes_of(op)) layout[a] = after(from, to);
      lie(to, std::move(layout));
    }
  }

  /// Another rank's block lies in it as the rank's own does.
  void hand_on(const Op& op) {
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      if (found_[op.inputs[k].index]) lie(op.outputs[k], found_[op.inputs[k].index]->layout);
    }
  }

  /// Along the axes of what lays a tensor out anew: cut where it has become smaller.
  AxisLayout after(TensorId from, TensorId to) const {
    const auto &before = rank_[from].shape, &made = rank_[to].shape;
    for (std::size_t d = 0; d < made.size(); ++d) {
      if (made[d] < before[d]) return {cut, static_cast<std::uint8_t>(d)};
    }
    return {};
  }

  /// Between a value and the range of it that a replica keeps. In place both are one.
  void share_out(const Op& op) {
    const bool gathers = collective_of(op) && collective_of(op)->kind == CollectiveKind::all_gather;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId all = gathers ? op.outputs[k] : op.inputs[k], part = gathers ? op.inputs[k] : op.outputs[k];
      if (!found_[all.index]) throw Unknown{"no op reads '" + rank_[all].name + "'"};
      found_[part.index] = found_[all.index];
      found_[part.index]->range = SharedRange{axes_of(op), rank_[part].bytes};
    }
  }

  /// States lie as their parameter, or a replica has a range of them.
  void lie_as_parameters(const Op& op) {
    const TensorId parameter = op.inputs.front();
    lie(parameter, Layout(mesh_.axes.size()));
    for (const TensorId t : op.inputs) {
      if (rank_[t].kind != TensorKind::optimizer_state || found_[t.index]) continue;
      found_[t.index] = found_[parameter.index];
      if (rank_[t].bytes == rank_[parameter].bytes) continue;
      const auto replicas = std::ranges::find(mesh_.axes, true, &Axis::shares_micro_batches);
      if (replicas == mesh_.axes.end()) throw Unknown{"'" + rank_[t].name + "' has not the bytes of its parameter"};
      found_[t.index]->range = SharedRange{{static_cast<std::size_t>(replicas - mesh_.axes.begin())}, rank_[t].bytes};
    }
  }

  const Graph &whole_, &rank_;
  const Mesh& mesh_;
  BlocksInGraph blocks_;
  std::unordered_map<std::string_view, OpId> number_;
  std::string repeated_;                          // a name that does not tell which op
  std::vector<std::size_t> halved_;               // axes
  std::vector<std::optional<RankLayout>> found_;  // by tensor of the rank's graph
};

/// Indices in a row, of a whole.
struct IndexRow {
  std::int64_t first = 0, count = 0;
};

std::vector<IndexRow> rows_among(const std::vector<std::int64_t>& indices) {
  std::vector<IndexRow> rows;
  for (const std::int64_t i : indices) {
    if (rows.empty() || rows.back().first + rows.back().count != i) rows.push_back({i, 0});
    ++rows.back().count;
  }
  return rows;
}

/// Of what a layout leaves.
std::vector<RankPiece> cut_pieces(const RankLayout& of, const Mesh& mesh, std::uint32_t rank) {
  const std::size_t dims = of.shape.size();
  std::vector<std::vector<std::int64_t>> own;
  for (std::size_t d = 0; d < dims; ++d) own.push_back(indices_of(of, mesh, rank, d));
  const auto count = [&](std::size_t d) { return static_cast<std::int64_t>(own[d].size()); };
  // Pieces are as long as the innermost dimensions of which the rank has all, and its parts of the next one.
  std::size_t outer = dims;
  std::int64_t each = of.each_number.count, stride = 0;
  while (outer > 0 && count(outer - 1) == of.shape[outer - 1]) each *= count(--outer);
  std::vector<IndexRow> parts{{0, 1}};
  if (outer > 0) {
    --outer;
    parts = rows_among(own[outer]);
    stride = each * of.shape[outer];
  }
  std::int64_t rows = 1, at = 0;
  for (std::size_t d = 0; d < outer; ++d) rows *= count(d);
  std::vector<RankPiece> pieces;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t left = r, place = 0, step = 1;
    for (std::size_t d = outer; d-- > 0;) {
      place += own[d][static_cast<std::size_t>(left % count(d))] * step;
      left /= count(d);
      step *= of.shape[d];
    }
    for (const IndexRow& part : parts) {
      pieces.push_back({place * stride + part.first * each, at, part.count * each});
      at += pieces.back().bytes;
    }
  }
  return pieces;
}

}  // namespace

Bytes RankLayout::whole_bytes() const {
  Bytes bytes = each_number;
  for (const std::int64_t extent : shape) bytes = extent * bytes;
  return bytes;
}

Bytes RankLayout::local_bytes(const Mesh& mesh) const {
  std::int64_t ranks = 1;
  for (std::size_t a = 0; a < layout.size(); ++a) {
    if (layout[a].kind == cut) ranks *= mesh.axes[a].ranks;
  }
  return Bytes{whole_bytes().count / ranks};
}

std::uint32_t place_along(const Mesh& mesh, std::size_t axis, std::uint32_t rank) {
  return rank / mesh.stride(axis) % mesh.axes[axis].ranks;
}

std::vector<std::int64_t> indices_of(const RankLayout& of, const Mesh& mesh, std::uint32_t rank, std::size_t dim) {
  std::vector<std::int64_t> own(static_cast<std::size_t>(of.shape[dim]));
  std::iota(own.begin(), own.end(), std::int64_t{0});
  for (std::size_t a = 0; a < of.layout.size(); ++a) {
    if (of.layout[a].kind != cut || of.layout[a].dim != dim) continue;
    const bool is_halved = std::ranges::find(of.halved, a) != of.halved.end();
    const std::size_t pieces = mesh.axes[a].ranks * (is_halved ? 2 : 1), each = own.size() / pieces;
    EXPECTS(own.size() % pieces == 0);
    const std::size_t place = place_along(mesh, a, rank);
    std::vector<std::int64_t> left;
    for (const std::size_t piece : {place, pieces - 1 - place}) {
      const auto first = own.begin() + static_cast<std::ptrdiff_t>(piece * each);
      left.insert(left.end(), first, first + static_cast<std::ptrdiff_t>(each));
      if (!is_halved) break;
    }
    own = std::move(left);
  }
  return own;
}

std::vector<std::uint32_t> group_of(const Mesh& mesh, const std::vector<std::size_t>& axes, std::uint32_t rank) {
  std::vector<std::uint32_t> group;
  for (std::uint32_t other = 0; other < mesh.ranks(); ++other) {
    bool is_of_it = true;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      const bool may_differ = std::ranges::find(axes, a) != axes.end();
      is_of_it = is_of_it && (may_differ || place_along(mesh, a, other) == place_along(mesh, a, rank));
    }
    if (is_of_it) group.push_back(other);
  }
  return group;
}

std::vector<RankPiece> range_of(Bytes whole, const SharedRange& range, const Mesh& mesh, std::uint32_t rank) {
  std::int64_t place = 0;
  for (const std::size_t a : range.axes) place = place * mesh.axes[a].ranks + place_along(mesh, a, rank);
  const std::int64_t begin = range.each.count * place;
  const std::int64_t bytes = std::min(range.each.count, whole.count - begin);
  if (bytes <= 0) return {};
  return {{begin, begin, bytes}};
}

std::vector<RankPiece> pieces_of(const RankLayout& of, const Mesh& mesh, std::uint32_t rank) {
  const std::vector<RankPiece> all = cut_pieces(of, mesh, rank);
  if (!of.range) return all;
  std::vector<RankPiece> pieces;
  for (const RankPiece& range : range_of(of.local_bytes(mesh), *of.range, mesh, rank)) {
    for (const RankPiece& piece : all) {
      const std::int64_t begin = std::max(piece.own, range.own);
      const std::int64_t end = std::min(piece.own + piece.bytes, range.own + range.bytes);
      if (begin < end) pieces.push_back({piece.whole + begin - piece.own, begin - range.own, end - begin});
    }
  }
  return pieces;
}

std::variant<std::vector<RankLayout>, std::string> rank_layouts(const Graph& whole, const Graph& rank,
                                                                const Mesh& mesh) {
  try {
    return LayoutFinder(whole, rank, mesh).run();
  } catch (Unknown& unknown) {
    return std::move(unknown.why);
  }
}

}  // namespace plimsoll
