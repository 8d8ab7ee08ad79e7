#include "strategies/hybrid/built.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/optimizer.h"
#include "sim/mesh/asynchronous_products.h"
#include "sim/ops/op_loop.h"
#include "sim/ops/padding.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

/// What words of a vocabulary are padded to at most, beyond what they are: a multiple of so many for each rank.
constexpr std::int64_t most_padding = 128;

std::string names_of_dims(const OpLoop& loop) {
  std::string names;
  for (const LoopDim& dim : loop.dims) names += (names.empty() ? "" : ", ") + dim.name;
  return names;
}

/// Reads decisions against the problem that they are for.
class Building {
 public:
  Building(const Problem& problem, const Decisions& decisions) : problem_(problem), decisions_(decisions) {}

  std::variant<Problem, CannotBuild> run() && {
    if (problem_.mesh) return CannotBuild{std::string(cuts_first)};
    std::uint64_t ranks = 1;
    for (const Axis& axis : decisions_.mesh.axes) ranks = std::min<std::uint64_t>(ranks * axis.ranks, UINT32_MAX);
    if (ranks > problem_.platform.devices.size()) {
      return CannotBuild{
          fmt::format("{} ranks, but '{}' has {} device{}", ranks, problem_.platform.name,
                      problem_.platform.devices.size(), problem_.platform.devices.size() == 1 ? "" : "s"),
          "mesh"};
    }
    Mesh mesh = decisions_.mesh;
    std::optional<Axis> replicas;
    if (!mesh.axes.empty() && mesh.axes.front().shares_micro_batches) {
      replicas = mesh.axes.front();
      mesh.axes.erase(mesh.axes.begin());
    }
    if (std::optional<CannotBuild> why = pad(static_cast<std::int64_t>(ranks))) return *std::move(why);
    if (std::optional<CannotBuild> why = split(std::move(mesh))) return *std::move(why);
    keep_main_gradients();
    if (replicas) {
      std::variant<Problem, std::string> made =
          on_axis(problem_, *replicas, {.sharded = Sharded::nothing, .bucket = usual_bucket});
      if (std::string* why = std::get_if<std::string>(&made)) return CannotBuild{std::move(*why), "mesh"};
      problem_ = std::get<Problem>(std::move(made));
    }
    problem_.notes.insert(problem_.notes.end(), decisions_.notes.begin(), decisions_.notes.end());
    return std::move(problem_);
  }

 private:
  /// Sizes of one dimension are padded from the smallest to the largest, each once.
  std::optional<CannotBuild> pad(std::int64_t ranks) {
    std::map<std::string_view, std::int64_t> last;
    for (std::size_t p = 0; p < decisions_.paddings.size(); ++p) {
      const auto& [dimension, from, to] = decisions_.paddings[p];
      const std::string key = fmt::format("paddings[{}]", p);
      const std::int64_t most = from + most_padding * ranks;
      if (to <= from || to > most) {
        return CannotBuild{fmt::format("expected {} to {}, found {}", from + 1, most, to), key + ".to"};
      }
      std::int64_t& before = last[dimension];
      if (from <= before) {
        return CannotBuild{fmt::format("expected more than {}, which was padded before, found {}", before, from),
                           key + ".from"};
      }
      before = from;
      for (std::size_t q = 0; q < p; ++q) {
        const Decisions::Padding& other = decisions_.paddings[q];
        if (other.dimension == dimension && other.to == from) {
          return CannotBuild{fmt::format("{} is what 'paddings[{}]' pads to", from, q), key + ".from"};
        }
      }
      problem_.graph = padded(std::move(problem_.graph), dimension, from, to);
    }
    return std::nullopt;
  }

  std::optional<CannotBuild> split(Mesh mesh) {
    const bool is_copied_whole = mesh.axes.empty() && !decisions_.mesh.axes.empty();
    if (is_copied_whole && decisions_.cuts.empty()) return std::nullopt;
    if (problem_.chain && mesh.ranks() == 1 && decisions_.cuts.empty()) {  // a chain by itself on every device
      problem_.mesh = std::move(mesh);
      return std::nullopt;
    }
    if (problem_.chain) return CannotBuild{no_operators(*problem_.chain)};
    SplitPlan plan{std::move(mesh), {}};
    plan.cuts.assign(problem_.graph.ops.size(),
                     std::vector<std::optional<std::uint8_t>>(plan.mesh.axes.size(), std::nullopt));
    for (std::size_t c = 0; c < decisions_.cuts.size(); ++c) {
      if (std::optional<CannotBuild> why = cut(c, plan)) return why;
    }
    std::variant<Problem, std::string> made = on_mesh(std::move(problem_), std::move(plan));
    if (std::string* why = std::get_if<std::string>(&made)) return CannotBuild{std::move(*why)};
    problem_ = std::get<Problem>(std::move(made));
    if (decisions_.asynchronous.empty()) return std::nullopt;
    if (!problem_.mesh->axis(decisions_.asynchronous)) {
      return CannotBuild{
          fmt::format("'{}' is not an axis of the mesh along which operators are split", decisions_.asynchronous),
          "asynchronous"};
    }
    problem_.graph = with_asynchronous_products(std::move(problem_.graph), *problem_.mesh, decisions_.asynchronous);
    return std::nullopt;
  }

  std::optional<CannotBuild> cut(std::size_t c, SplitPlan& plan) const {
    const Decisions::Cut& cut = decisions_.cuts[c];
    const auto wrong = [&](std::string why, std::string_view key) {
      return CannotBuild{std::move(why), fmt::format("cuts[{}].{}", c, key)};
    };
    const std::size_t ops = problem_.graph.ops.size();
    if (cut.op.index >= ops) return wrong(fmt::format("{} of {} ops", cut.op.index, ops), "op");
    if (c > 0 && cut.op <= decisions_.cuts[c - 1].op) {
      return wrong(fmt::format("expected more than {}, since ops ascend, found {}", decisions_.cuts[c - 1].op.index,
                               cut.op.index),
                   "op");
    }
    const Op& op = problem_.graph[cut.op];
    if (op.phase == Phase::update)
      return wrong(fmt::format("'{}' is an update, which lies as its parameters", op.name), "op");
    std::variant<OpLoop, std::string> found = loop_of(problem_.graph, cut.op);
    if (std::string* why = std::get_if<std::string>(&found)) return wrong(std::move(*why), "op");
    const OpLoop& loop = std::get<OpLoop>(found);
    for (const Decisions::Share& share : cut.shares) {
      const std::string key = "shares." + share.axis;
      const std::optional<std::size_t> axis = plan.mesh.axis(share.axis);
      if (!axis)
        return wrong(fmt::format("'{}' is not an axis of the mesh along which operators are split", share.axis), key);
      const std::optional<std::uint8_t> dim = loop.dim(share.dimension);
      if (!dim) {
        return wrong(fmt::format("'{}' has no dimension '{}', but {}", op.name, share.dimension, names_of_dims(loop)),
                     key);
      }
      plan.cuts[cut.op.index][*axis] = dim;
      if (share.around.empty()) continue;
      const std::optional<std::uint8_t> around = loop.dim(share.around);
      if (!around) {
        return wrong(fmt::format("'{}' has no dimension '{}', but {}", op.name, share.around, names_of_dims(loop)),
                     key);
      }
      plan.around.resize(ops, std::vector<std::optional<std::uint8_t>>(plan.mesh.axes.size()));
      plan.around[cut.op.index][*axis] = around;
    }
    return std::nullopt;
  }

  /// Gradients of parameters in fp32 where that was decided, and what ops move because of it.
  void keep_main_gradients() {
    Graph& graph = problem_.graph;
    std::map<TensorId, Bytes> more;
    const MainGradients asked = decisions_.main_gradients;
    for (std::size_t t = 0; t < graph.tensors.size() && asked != MainGradients::as_parameters; ++t) {
      Tensor& tensor = graph.tensors[t];
      const std::string& dtype = dtype_of(graph, tensor);
      const bool is_bf16 = dtype == "bf16" || dtype == "bfloat16";
      if (tensor.kind != TensorKind::parameter_gradient || bytes_of_dtype(dtype) != 2) continue;
      if (asked == MainGradients::automatic && !is_bf16) continue;
      more[id_at<TensorId>(t)] = tensor.bytes;
      tensor.bytes = 2 * tensor.bytes;
      tensor.dtype = "fp32";
    }
    for (Op& op : graph.ops) {
      if (!op.bytes_moved) continue;
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) {
          if (const auto found = more.find(t); found != more.end()) *op.bytes_moved += found->second;
        }
      }
    }
  }

  Problem problem_;
  const Decisions& decisions_;
};

/// Of several passes about one graph: axes of later ones lie within those of earlier ones.
std::variant<Decisions, CannotBuild> joined(std::span<const Decisions> before, const Decisions& last) {
  Decisions all;
  std::map<OpId, std::vector<Decisions::Share>> shares;
  const auto add = [&](const Decisions& one) -> std::optional<CannotBuild> {
    for (const Axis& axis : one.mesh.axes) {
      if (axis.shares_micro_batches) return CannotBuild{std::string(cuts_first), "mesh"};
      if (all.mesh.axis(axis.name)) {
        return CannotBuild{fmt::format("operators are cut along an axis '{}' already", axis.name), "mesh"};
      }
      all.mesh.axes.push_back(axis);
    }
    all.paddings.insert(all.paddings.end(), one.paddings.begin(), one.paddings.end());
    for (const Decisions::Cut& cut : one.cuts) {
      std::vector<Decisions::Share>& of_op = shares[cut.op];
      of_op.insert(of_op.end(), cut.shares.begin(), cut.shares.end());
    }
    if (one.main_gradients != MainGradients::as_parameters) all.main_gradients = one.main_gradients;
    if (!one.asynchronous.empty()) all.asynchronous = one.asynchronous;
    all.notes.insert(all.notes.end(), one.notes.begin(), one.notes.end());
    return std::nullopt;
  };
  for (const Decisions& one : before) {
    if (std::optional<CannotBuild> why = add(one)) return *std::move(why);
  }
  if (std::optional<CannotBuild> why = add(last)) return *std::move(why);
  for (auto& [op, of_op] : shares) all.cuts.push_back({op, std::move(of_op)});
  return all;
}

}  // namespace

std::variant<Problem, CannotBuild> built(const Problem& problem, const Decisions& decisions) {
  std::variant<Problem, CannotBuild> made;
  if (problem.uncut) {
    const auto before = std::span(problem.decisions).subspan(problem.uncut->decisions.size());
    std::variant<Decisions, CannotBuild> all = joined(before, decisions);
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&all)) return std::move(*cannot);
    made = Building(*problem.uncut, std::get<Decisions>(all)).run();
  } else {
    made = Building(problem, decisions).run();
  }
  if (Problem* of_rank = std::get_if<Problem>(&made)) {
    of_rank->decisions = problem.decisions;
    of_rank->decisions.push_back(decisions);
  }
  return made;
}

Decisions decisions_of(const Graph& graph, SplitPlan plan) {
  Decisions made{.strategy = {}, .mesh = std::move(plan.mesh)};
  for (std::size_t o = 0; o < plan.cuts.size(); ++o) {
    if (std::ranges::none_of(plan.cuts[o], [](const auto& dim) { return dim.has_value(); })) continue;
    const std::variant<OpLoop, std::string> loop = loop_of(graph, id_at<OpId>(o));
    Decisions::Cut cut{id_at<OpId>(o), {}};
    for (std::size_t a = 0; a < plan.cuts[o].size(); ++a) {
      const auto name = [&](std::uint8_t dim) { return std::get<OpLoop>(loop).dims[dim].name; };
      const auto dim = plan.cuts[o][a];
      if (!dim) continue;
      cut.shares.push_back({made.mesh.axes[a].name, name(*dim)});
      if (!plan.around.empty() && plan.around[o][a]) cut.shares.back().around = name(*plan.around[o][a]);
    }
    made.cuts.push_back(std::move(cut));
  }
  return made;
}

std::string no_operators(const Chain& chain) {
  return fmt::format(
      "'{}' is a chain of stages, whose operators are not known: give a graph, such as transformer:view=graph",
      chain.name);
}

}  // namespace plimsoll
