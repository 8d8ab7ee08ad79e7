#include "sim/mesh/layout.h"

#include <algorithm>
#include <span>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

using enum AxisLayout::Kind;

bool cuts(const Layout& layout, std::size_t axis, std::uint8_t dim) {
  return layout[axis] == AxisLayout{cut, dim};
}

class Relaying {
 public:
  Relaying(Layout from, const Layout& to) : now_(std::move(from)), to_(to) {}

  std::optional<std::vector<Relayout>> run() {
    EXPECTS(now_.size() == to_.size());
    for (std::uint32_t a = 0; a < now_.size(); ++a) {
      if (to_[a].kind == partial && now_[a].kind != partial) return std::nullopt;
    }
    for (std::uint32_t a = 0; a < now_.size(); ++a) {
      if (now_[a].kind == partial && to_[a].kind != partial) reduce(a);
    }
    for (auto a = static_cast<std::uint32_t>(now_.size()); a-- > 0;) {
      if (now_[a].kind == cut && must_go(a) && !exchange(a)) step(a, CollectiveKind::all_gather, {});
    }
    for (std::uint32_t a = 0; a < now_.size(); ++a) {
      if (now_[a] != to_[a]) step(a, std::nullopt, to_[a]);
    }
    return std::move(steps_);
  }

 private:
  void step(std::uint32_t axis, std::optional<CollectiveKind> kind, AxisLayout to) {
    steps_.push_back({axis, kind, to});
    now_[axis] = to;
  }

  /// Whether shares of the dimension along these axes, ascending, are shares of what the others leave, as they must be
  /// in the end.
  bool may_cut_next(std::span<const std::uint32_t> axes, std::uint8_t dim) const {
    for (std::uint32_t a = 0; a < now_.size(); ++a) {
      const bool is_next = std::ranges::find(axes, a) != axes.end();
      const bool is_cut = is_next || cuts(now_, a, dim), will_be = cuts(to_, a, dim);
      if (a <= axes.back() ? is_cut != will_be : is_cut) return false;
    }
    return true;
  }

  void reduce(std::uint32_t axis) {
    if (to_[axis].kind == cut && may_cut_next(std::span(&axis, 1), to_[axis].dim)) {
      return step(axis, CollectiveKind::reduce_scatter, to_[axis]);
    }
    step(axis, CollectiveKind::all_reduce, {});
  }

  /// Shares lie within those of the axes before: what is inside of one that goes, goes too.
  bool must_go(std::uint32_t axis) const {
    const std::uint8_t dim = now_[axis].dim;
    for (std::size_t a = 0; a <= axis; ++a) {
      if (cuts(now_, a, dim) != cuts(to_, a, dim)) return true;
    }
    return false;
  }

  /// What is cut along this axis, and along axes outside of it that go the same way, becomes shares of another
  /// dimension, along as many of them as can at once. Whether it does.
  bool exchange(std::uint32_t axis) {
    const AxisLayout from = now_[axis], to = to_[axis];
    if (to.kind != cut || to.dim == from.dim) return false;
    std::vector<std::uint32_t> axes;
    for (std::uint32_t a = axis + 1; a-- > 0;) {
      if (now_[a] != from) continue;
      if (to_[a] != to) break;
      axes.insert(axes.begin(), a);
    }
    while (!axes.empty() && !may_cut_next(axes, to.dim)) axes.erase(axes.begin());
    for (std::size_t k = axes.size(); k-- > 0;) step(axes[k], CollectiveKind::all_to_all, to);
    return !axes.empty();
  }

  Layout now_;
  const Layout& to_;
  std::vector<Relayout> steps_;
};

}  // namespace

Layout layout_of(std::span<const std::uint8_t> operand, std::span<const std::optional<std::uint8_t>> cuts,
                 bool is_output) {
  Layout layout;
  for (const std::optional<std::uint8_t>& dim : cuts) {
    AxisLayout& along = layout.emplace_back();
    if (!dim) continue;
    const auto found = std::ranges::find(operand, *dim);
    if (found != operand.end()) {
      along = {cut, static_cast<std::uint8_t>(found - operand.begin())};
    } else if (is_output) {
      along.kind = partial;
    }
  }
  return layout;
}

Layout layout_of_output(const OpLoop& loop, std::size_t output, std::vector<std::optional<std::uint8_t>> cuts) {
  for (std::optional<std::uint8_t>& dim : cuts) {
    if (dim && std::ranges::find(loop.whole[output], *dim) != loop.whole[output].end()) dim.reset();
  }
  return layout_of(loop.outputs[output], cuts, true);
}

std::vector<std::int64_t> local_shape(std::vector<std::int64_t> shape, const Layout& layout, const Mesh& mesh) {
  for (std::size_t a = 0; a < layout.size(); ++a) {
    if (layout[a].kind != cut) continue;
    std::int64_t& size = shape[layout[a].dim];
    EXPECTS(size % mesh.axes[a].ranks == 0);
    size /= mesh.axes[a].ranks;
  }
  return shape;
}

std::optional<std::vector<JointRelayout>> joint_relayouts(const Layout& from, const Layout& to) {
  const std::optional<std::vector<Relayout>> steps = relayouts(from, to);
  if (!steps) return std::nullopt;
  std::vector<JointRelayout> joint;
  Layout now = from;
  std::optional<AxisLayout> before_last;  // of the axis of the last step
  for (const Relayout& step : *steps) {
    const AxisLayout before = now[step.axis];
    now[step.axis] = step.to;
    const bool goes_on = !joint.empty() && joint.back().kind == step.kind && before_last->dim == before.dim &&
                         joint.back().after[joint.back().axes.front()] == step.to;
    if (!goes_on) joint.push_back({{}, step.kind, {}});
    joint.back().axes.push_back(step.axis);
    std::ranges::sort(joint.back().axes);
    joint.back().after = now;
    before_last = before;
  }
  return joint;
}

std::optional<std::vector<Relayout>> relayouts(const Layout& from, const Layout& to) {
  return Relaying(from, to).run();
}

}  // namespace plimsoll
