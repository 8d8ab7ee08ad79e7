// The strategy `context`: ranks share out the positions of a sequence. Only an attention needs other positions than a
// rank's own: it gathers the keys and values of all, computes with them in blocks that go round, or its heads are
// shared out instead.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/core/op_kind.h"
#include "sim/ops/op_loop.h"
#include "strategies/api/strategy.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

enum class ContextWay : std::uint8_t { all_gather, all_to_all, ring };

struct ContextOptions : MeshOptions {
  std::optional<std::uint32_t> ranks;
  ContextWay way = ContextWay::all_gather;
};

constexpr auto context_options = options_of<ContextOptions>(
    option_of<&ContextOptions::ranks>({
        .name = "ranks",
        .least = 1,
        .most = 65'536,
        .none = "all",
        .help = "devices that share out the positions",
    }),
    option_of<&ContextOptions::way>({
        .name = "way",
        .words = "all_gather all_to_all ring",
        .help =
            "how an attention gets what other ranks have: all_gather: keys and values of all positions; all_to_all: "
            "all positions of some heads; ring: keys and values in blocks that go round while it computes",
    }),
    collectives_option);

/// As `loop` in traces names them: positions of queries and of all between attentions, positions of keys, heads.
constexpr std::string_view positions = "s", key_positions = "t", heads = "a";

std::uint32_t context_ranks(const ContextOptions& options, std::uint32_t devices) {
  return options.ranks.value_or(devices);
}

/// Why an attention cannot run in equal blocks of keys, in one sentence. The pairs of queries and keys that see each
/// other, all or the half before each query, have two products in the forward.
std::optional<std::string> cannot_go_round(const Graph& graph, const Op& op, const OpLoop& loop) {
  const std::optional<std::uint8_t> keys = loop.dim(key_positions), queries = loop.dim(positions);
  const auto has = [](const std::vector<std::uint8_t>& operand, std::optional<std::uint8_t> dim) {
    return dim && std::ranges::find(operand, *dim) != operand.end();
  };
  const auto has_both = [&](const std::vector<std::uint8_t>& operand) {
    return has(operand, keys) && has(operand, queries);
  };
  const std::optional<OpKind> kind = nearest_kind(op.kind);
  const bool is_forward = kind == OpKind::fused_attention;
  const bool is_fused = keys && (is_forward || kind == OpKind::fused_attention_backward);
  if (!is_fused || std::ranges::any_of(loop.inputs, has_both) || std::ranges::any_of(loop.outputs, has_both) ||
      (is_forward && op.outputs.size() < 2)) {
    return fmt::format(
        "'{}' makes no sums of a softmax, as fused attention does: blocks are merged by them; way=all_gather "
        "needs none",
        op.name);
  }
  if (!is_forward || !op.flops) return std::nullopt;
  const auto numbers = [&](TensorId t) {
    double product = 1;
    for (const std::int64_t extent : graph[t].shape) product *= static_cast<double>(extent);
    return product;
  };
  const double pairs = loop.dims[*queries].by_halves ? 0.5 : 1.0;
  const double all = 2 * pairs * static_cast<double>(loop.dims[*keys].size) *
                     (numbers(op.inputs.front()) + numbers(op.outputs.front()));
  constexpr double near = 0.01;
  if (std::abs(op.flops->count / all - 1) <= near) return std::nullopt;
  return fmt::format(
      "'{}' has not the work of all its pairs of queries and keys, as with a window: its blocks of keys would not have "
      "the same work; way=all_gather needs no blocks",
      op.name);
}

/// How one op is cut; or in one sentence why it cannot be.
class ContextCut {
 public:
  ContextCut(const ContextOptions& options, std::uint32_t ranks) : way_(options.way), ranks_(ranks) {}

  std::variant<std::optional<std::uint8_t>, std::string> of(const Graph& graph, const Op& op, const OpLoop& loop) {
    const std::optional<std::uint8_t> along = loop.dim(positions), over_heads = loop.dim(heads);
    if (!along) return std::nullopt;
    const LoopDim& dim = loop.dims[*along];
    const bool mixes = loop.dim(key_positions) || (!dim.cuttable && over_heads);
    has_attention_ = has_attention_ || mixes;
    if (mixes && way_ == ContextWay::ring) {
      if (std::optional<std::string> why = cannot_go_round(graph, op, loop)) return std::move(*why);
    }
    if (mixes && way_ == ContextWay::all_to_all) {
      if (over_heads && loop.dims[*over_heads].cuttable) return over_heads;
      return fmt::format("'{}' needs all positions, and has no heads that could be shared out instead", op.name);
    }
    if (dim.by_halves && dim.size % (2 * std::int64_t{ranks_}) != 0) {
      return fmt::format(
          "'{}' is causal: each of {} ranks takes two pieces of its positions, one from either end, and "
          "{} do not divide {} positions",
          op.name, ranks_, 2 * ranks_, dim.size);
    }
    if (dim.cuttable || dim.by_halves) return along;
    if (!mixes) return std::nullopt;
    return fmt::format("'{}' needs the queries of all positions; way=all_to_all shares out its heads", op.name);
  }

  bool has_attention() const { return has_attention_; }

 private:
  ContextWay way_;
  std::uint32_t ranks_;
  bool has_attention_ = false;
};

std::variant<Decisions, std::string> context_splits(const Problem& problem, const ContextOptions& options,
                                                    const Deadline&) {
  if (problem.chain) return no_operators(*problem.chain);
  if (problem.mesh) return std::string(cuts_first);
  const Graph& graph = problem.graph;
  const std::uint32_t ranks = context_ranks(options, devices_left(problem));
  SplitPlan plan{{{{"context", ranks, false, options.collectives}}}, {}};
  plan.cuts.assign(graph.ops.size(), {std::nullopt});
  if (options.way == ContextWay::ring) plan.around = plan.cuts;
  ContextCut cut(options, ranks);
  for (std::size_t o = 0; o < graph.ops.size() && ranks > 1; ++o) {
    if (graph.ops[o].phase == Phase::update) continue;
    const std::variant<OpLoop, std::string> found = loop_of(graph, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    if (loop == nullptr) continue;
    auto along = cut.of(graph, graph.ops[o], *loop);
    if (std::string* why = std::get_if<std::string>(&along)) return std::move(*why);
    plan.cuts[o].front() = std::get<std::optional<std::uint8_t>>(along);
    if (!plan.around.empty()) plan.around[o].front() = loop->dim(key_positions);
  }
  if (ranks > 1 && !cut.has_attention()) {
    return fmt::format(
        "no op of '{}' has a loop over positions of queries ('s') and of keys ('t'): there is no "
        "attention to share out",
        graph.name);
  }
  return decisions_of(graph, std::move(plan));
}

}  // namespace

extern constinit const StrategyInfo context_strategy{
    .name = "context",
    .family = Family::hybrid,
    .summary =
        "Context parallelism: devices share the positions of the sequence, whose attentions exchange keys and "
        "values, at once or in a ring, or heads.",
    .source =
        "all_gather: Grattafiori et al., The Llama 3 Herd of Models, 2024, section 3.3.2; all_to_all: Jacobs et "
        "al., DeepSpeed Ulysses, 2023; ring: Liu et al., Ring Attention with Blockwise Transformers, 2023",
    .options = context_options,
    .kind = SplitStrategy{.decide = by_options<context_splits>, .ranks = by_options<context_ranks>, .is_cut_on = true},
};

}  // namespace plimsoll
