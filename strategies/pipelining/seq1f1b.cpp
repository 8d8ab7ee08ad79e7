// The strategy `seq1f1b`: 1F1B whose turns are slices of a micro-batch's sequence: forwards from the first slice to the
// last, backwards from the last to the first.
// Equation: with k equal slices a micro-batch and free transfers the makespan is (m + (p - 1) / k)(F + B), and stage s
// keeps min(p - s - 1 + k, m k) slices, each 1 / k of a micro-batch.

#include <algorithm>
#include <utility>

#include "sim/core/slices.h"
#include "sim/model/stage_exchanges.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct Seq1f1bOptions : LineOptions {
  std::uint32_t slices = 4;
};

/// Bytes of what products of two activations read of what the stage saves, softmax's results aside: queries, keys and
/// values of attention. 0 where the trace does not list what is saved.
Bytes attended_bytes(const Stage& stage) {
  const auto is_read = [](const LayerUse& use) { return use.by == SavedBy::matmul && !use.is_result; };
  const auto is_weight = [](const LayerUse& use) { return use.by == SavedBy::softmax; };
  Bytes sum;
  for (const InnerTensor& each : stage.inner) {
    if (std::ranges::any_of(each.uses, is_read) && std::ranges::none_of(each.uses, is_weight)) sum += each.bytes;
  }
  return sum;
}

class SequenceSlices {
 public:
  SequenceSlices(const Problem& whole, std::uint32_t slices) : whole_(whole), slices_(slices), made_(whole) {}

  Problem problem() && {
    for (BoundaryTensor& tensor : made_.chain->tensors) {
      if (tensor.gradient) tensor.gradient = part_of(*tensor.gradient);
      tensor.bytes = part_of(tensor.bytes);
    }
    made_.chain->input = boundary(0);
    for (std::size_t i = 0; i < made_.chain->stages.size(); ++i) cut_sizes(i);
    remake_graph(made_, whole_.index->weight.empty() ? Backward::whole : Backward::split, Inner::together);
    for (std::size_t o = 0; o < made_.graph.ops.size(); ++o) {
      if (made_.graph.ops[o].phase != Phase::update) cut_work(made_.graph.ops[o], whole_.graph.ops[o]);
    }
    if (slices_ > 1) let_attend();
    for (std::size_t i = 0; i < made_.chain->stages.size(); ++i) cut_times(i);
    made_.micro_batches = whole_.micro_batches * slices_;
    return std::move(made_);
  }

 private:
  Bytes part_of(Bytes bytes) const { return Bytes{(bytes.count + slices_ - 1) / slices_}; }

  /// Of the boundary before stage i.
  Bytes boundary(std::size_t i) const {
    if (whole_.chain->boundaries.empty()) return part_of(boundary_bytes(*whole_.chain, i));
    Bytes sum;
    for (const std::uint32_t t : whole_.chain->boundaries[i]) sum += made_.chain->tensors[t].bytes;
    return sum;
  }

  void cut_sizes(std::size_t i) {
    const Stage& whole = whole_.chain->stages[i];
    Stage& stage = made_.chain->stages[i];
    stage.inner.clear();  // which dimension is the sequence, a shape does not say
    stage.boundary_uses.clear();
    stage.output = boundary(i + 1);
    const Bytes attended = slices_ > 1 ? attended_bytes(whole) : Bytes{0};
    stage.saved = stage.output + part_of(whole.saved - whole.output - attended);
    stage.input_gradient = part_of(whole.input_gradient);
    if (slices_ > 1) {  // no longer one call of autograd; workspaces stay, as a bound
      stage.backward_workspace = std::max(Bytes{}, stage.backward_workspace);  // not what a whole sequence lets go of
      stage.backward_accumulate_workspace = std::max(Bytes{}, stage.backward_accumulate_workspace);
      stage.backward_released_workspace.reset();
      stage.backward_accumulate_released_workspace.reset();
    }
    stage.weight_made = part_of(whole.weight_made);
    if (whole.weight_saved) stage.weight_saved = stage.weight_made + part_of(*whole.weight_saved - whole.weight_made);
  }

  /// A slice's keys and values stay until its backward, whatever is recomputed, with as much room for their gradients.
  void let_attend() {
    Graph& graph = made_.graph;
    set_slices(graph, slices_);
    for (std::size_t i = 0; i < made_.chain->stages.size(); ++i) {
      const Bytes attended = attended_bytes(whole_.chain->stages[i]);
      if (attended == Bytes{0}) continue;
      const std::string name = "attended in " + whole_.chain->stages[i].name;
      const auto id = id_at<TensorId>(graph.tensors.size());
      graph.tensors.push_back(
          {name, TensorKind::activation, 2 * part_of(attended), StorageId{graph.storages++}, {}, {}});
      Op &forward = graph.ops[made_.index->forward[i].index], &backward = graph.ops[made_.index->backward[i].index];
      forward.outputs.push_back(id);
      backward.inputs.push_back(id);
      set_attended(forward, graph[id]);
      set_attended(backward, graph[id]);
    }
  }

  void cut_work(Op& op, const Op& whole) const {
    const auto share = 1.0 / slices_;
    if (whole.duration) op.duration = share * *whole.duration;
    if (whole.nograd_duration) op.nograd_duration = share * *whole.nograd_duration;
    if (whole.flops) op.flops = Flops{share * whole.flops->count};
    if (whole.bytes_moved) op.bytes_moved = part_of(*whole.bytes_moved);
    op.made_of = times(share, whole.made_of);
    std::vector<ExchangeShare> exchanges = exchanges_within(whole);
    for (ExchangeShare& each : exchanges)
      for (Seconds* seconds : {&each.total, &each.exposed, &each.exposed_unsaved}) *seconds = share * *seconds;
    state_exchanges(op, exchanges);
  }

  void cut_times(std::size_t i) {
    const DeviceId first{0};
    const ChainGraph& index = *made_.index;
    Stage& stage = made_.chain->stages[i];
    stage.forward = duration_on(made_, index.forward[i], first, Saving::keep);
    stage.forward_nograd = duration_on(made_, index.forward[i], first, Saving::nothing);
    if (index.backward[i] == no_op) return;
    stage.backward = duration_on(made_, index.backward[i], first, Saving::keep);
    const bool is_split = !index.weight.empty() && index.weight[i] != no_op;
    if (is_split) {
      stage.backward_weight = duration_on(made_, index.weight[i], first, Saving::keep);
      stage.backward += stage.backward_weight;
    } else {
      stage.backward_weight = (1.0 / slices_) * stage.backward_weight;
    }
  }

  const Problem& whole_;
  std::uint32_t slices_;
  Problem made_;
};

std::uint32_t asked_slices(const Seq1f1bOptions& options) {
  return options.slices;
}

std::variant<Problem, std::string> with_slices(const Problem& problem, const Seq1f1bOptions& options) {
  if (!problem.chain) return "'" + problem.graph.name + "' is a graph, and only chains have sequences to slice";
  if (has_own_states(problem) || !std::ranges::all_of(problem.chain->parameters, &Parameter::trained)) {
    return "it slices a model as its trace states it, but a transform before it has changed which parameters are "
           "trained or their states";
  }
  return SequenceSlices(problem, asked_slices(options)).problem();
}

/// Micro-batch i's slice j is micro-batch i k + j of the sliced problem.
std::vector<Turn> turns_of(PartId part, std::uint32_t m, std::uint32_t k, std::uint32_t warm_up) {
  std::vector<Turn> turns;
  std::uint32_t forwards = 0;
  const auto forward = [&] {
    if (forwards < m * k) turns.push_back({part, forwards++, piece::forward});
  };
  for (std::uint32_t w = 0; w < warm_up; ++w) forward();
  for (std::uint32_t i = 0; i < m; ++i) {
    for (std::uint32_t j = k; j-- > 0;) {
      forward();
      turns.push_back({part, i * k + j, piece::backward});
    }
  }
  return turns;
}

std::vector<PartitionOutcome> seq1f1b_partition(const Problem& problem, const Seq1f1bOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t p = ranks_of(problem, options, "seq1f1b"), k = asked_slices(options);
  PipelineOrder order;
  for (std::uint32_t r = 0; r < p; ++r) {
    order.rank_of.push_back(r);
    order.turns.push_back(turns_of(PartId{r}, problem.micro_batches / k, k, p - r - 2 + k));
  }
  return pipeline(problem, options, "seq1f1b", order, budgets);
}

constexpr auto seq1f1b_options =
    options_of<Seq1f1bOptions>(stages_option, cut_option, shared_updates_option, backward_option,
                               option_of<&Seq1f1bOptions::slices>({
                                   .name = "slices",
                                   .least = 1,
                                   .most = 64,
                                   .help = "number of slices into which the sequence of a micro-batch is cut",
                               }));

}  // namespace

extern constinit const StrategyInfo seq1f1b_strategy{
    .name = "seq1f1b",
    .family = Family::pipelining,
    .summary = "1f1b on slices of the micro-batches' sequences: keeps about one slice per stage",
    .source =
        "Sun et al., 'Seq1F1B: efficient sequence-level pipeline parallelism for large language model training', 2024",
    .chains_only = true,
    .options = seq1f1b_options,
    .kind =
        PartitionStrategy{
            .partition = by_options<seq1f1b_partition>,
            .transform = by_options<with_slices>,
            .splits_backward = by_options<is_backward_split>,
            .slices = by_options<asked_slices>,
        },
};

}  // namespace plimsoll
