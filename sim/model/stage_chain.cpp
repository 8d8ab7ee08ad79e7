#include "sim/model/stage_chain.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/op_kind.h"
#include "sim/model/device_classes.h"
#include "sim/model/graph_updates.h"
#include "sim/model/stage_exchanges.h"
#include "sim/ops/layers.h"

namespace plimsoll {
namespace {

constexpr std::size_t nowhere = SIZE_MAX;

struct NotAChain {
  std::string why;
};

/// Ops of one stage, and the tensors that matter outside of it: one of each storage.
struct StageOps {
  std::vector<std::size_t> forward, backward;
  std::vector<TensorId> output;           ///< what later stages read, made here or before
  std::vector<TensorId> input_gradients;  ///< what earlier stages read, made here or later
  std::vector<TensorId> inner;
};

class ChainOfGraph {
 public:
  ChainOfGraph(Problem problem, Backward backward, Unread unread, Inner inner)
      : problem_(std::move(problem)), graph_(problem_.graph), backward_(backward), unread_(unread), inner_(inner) {}

  Problem run() {
    if (device_classes(problem_.platform, problem_.platform.devices.size()).one.size() > 1) {
      throw NotAChain{"devices of '" + problem_.platform.name +
                      "' are not alike: its times as a chain are of one kind"};
    }
    if (backward_ == Backward::split && inner_ == Inner::apart) {
      throw NotAChain{
          "which of the tensors that a stage saves stay for its weight gradient is not known, so that they "
          "cannot be packed where backwards are split"};
    }
    gather_stages();
    find_uses();
    trained_ = find_trained();
    chain_.name = graph_.name;
    chain_.source = graph_.source;
    for (Device& device : problem_.platform.devices) {
      if (device.model.empty()) device.model = "as planned";  // a name by which the times hold
    }
    chain_.source.device = problem_.platform.devices.front().model;
    add_boundaries();
    for (std::size_t i = 0; i < stages_.size(); ++i) add_stage(i);
    if (unread_ == Unread::stay) add_unread();
    Problem made = problem_;
    made.chain = with_loss(chain_);
    exchanges_.resize(made.chain->stages.size());
    within_.resize(made.chain->stages.size());
    const Chain without_waits = *made.chain;
    add_exchanges(*made.chain, exchanges_, gathers_ahead());
    made.index = chain_graph(*made.chain, Optimizer::none, backward_, States::by_dtype, inner_);
    made.graph = std::move(made.index->graph);
    made.index->graph = {};
    state_exchanges(made.graph, *made.index, without_waits, *made.chain, within_);
    add_updates(made);
    made.of_ops = std::make_shared<const Graph>(std::move(problem_.graph));
    return made;
  }

 private:
  Bytes bytes(TensorId t) const { return graph_[t].bytes; }
  static bool is_value(TensorKind kind) { return kind == TensorKind::activation || kind == TensorKind::gradient; }

  void gather_stages() {
    std::map<std::uint32_t, std::size_t> number;
    stage_of_.resize(graph_.ops.size(), nowhere);
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward || runs_beside(op)) continue;  // what is gathered ahead stands in no order
      const std::size_t next = stages_.size();
      if (number.try_emplace(op.stage, next).second) stages_.emplace_back();
      if (number[op.stage] + 1 == stages_.size()) continue;
      throw NotAChain{"the forward of stage " + std::to_string(op.stage) + " goes on at '" + op.name +
                      "', behind that of another stage"};
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase == Phase::update) continue;
      const auto place = number.find(op.stage);
      if (place == number.end()) throw NotAChain{"'" + op.name + "' is of a stage without a forward"};
      (op.phase == Phase::forward ? stages_[place->second].forward : stages_[place->second].backward).push_back(o);
      stage_of_[o] = place->second;
    }
  }

  /// By storage: who reads it.
  void find_uses() {
    readers_.resize(graph_.storages);
    made_by_.resize(graph_.storages);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const TensorId t : graph_.ops[o].inputs) readers_[graph_[t].storage.index].push_back(o);
      if (graph_.ops[o].phase != Phase::forward) continue;
      for (const TensorId t : graph_.ops[o].outputs) made_by_[graph_[t].storage.index].insert(layer_of(graph_.ops[o]));
    }
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      std::set<StorageId> seen;
      for (const std::size_t o : stages_[i].forward) {
        for (const TensorId t : graph_.ops[o].outputs) {
          if (seen.insert(graph_[t].storage).second) sort_value(i, t);
        }
      }
      std::set<StorageId> handed;
      for (const std::size_t o : stages_[i].backward) {
        for (const TensorId t : graph_.ops[o].outputs) {
          if (graph_[t].kind != TensorKind::parameter_gradient && handed.insert(graph_[t].storage).second) {
            hand_back(i, t);
          }
        }
      }
    }
  }

  /// To the first stage that reads it, by all those between.
  void hand_back(std::size_t i, TensorId t) {
    std::size_t first = i;
    for (const std::size_t o : readers_[graph_[t].storage.index]) {
      if (stage_of_[o] != nowhere) first = std::min(first, stage_of_[o]);
    }
    for (std::size_t by = i; by > first; --by) stages_[by].input_gradients.push_back(t);
  }

  /// On to the last stage that reads it, by all those between.
  void sort_value(std::size_t i, TensorId t) {
    std::size_t last = i;
    bool is_kept = false;
    for (const std::size_t reader : readers_[graph_[t].storage.index]) {
      const std::size_t by = stage_of_[reader];
      if (by == nowhere) continue;
      if (by < i) {
        throw NotAChain{"'" + graph_[t].name + "' goes back from stage " + std::to_string(i) + " to stage " +
                        std::to_string(by)};
      }
      last = std::max(last, by);
      is_kept |= is_backward(graph_.ops[reader].phase);
    }
    for (std::size_t by = i; by < last; ++by) stages_[by].output.push_back(t);
    if (last == i && is_kept) stages_[i].inner.push_back(t);
  }

  bool read_by(const std::vector<TensorId>& tensors, const std::vector<std::size_t>& ops) const {
    return std::ranges::any_of(tensors, [&](TensorId t) {
      const auto& readers = readers_[graph_[t].storage.index];
      return std::ranges::any_of(ops, [&](std::size_t o) { return std::ranges::find(readers, o) != readers.end(); });
    });
  }

  Bytes sum(const std::vector<TensorId>& tensors) const {
    Bytes sum;
    for (const TensorId t : tensors) sum += bytes(t);
    return sum;
  }

  bool is_among(const std::vector<TensorId>& tensors, TensorId t) const {
    return std::ranges::any_of(tensors, [&](TensorId each) { return graph_[each].storage == graph_[t].storage; });
  }

  /// What passes a stage by is made and counted once.
  void add_boundaries() {
    const bool are_single = std::ranges::all_of(stages_, [](const StageOps& ops) { return ops.output.size() < 2; });
    if (are_single && inner_ == Inner::together) return;
    const auto boundary = [&](const std::vector<TensorId>& tensors) {
      std::vector<std::uint32_t>& made = chain_.boundaries.emplace_back();
      for (const TensorId t : tensors) {
        const auto next = static_cast<std::uint32_t>(chain_.tensors.size());
        const auto [place, is_new] = boundary_tensors_.try_emplace(graph_[t].storage, next);
        if (is_new) chain_.tensors.push_back({graph_[t].name, bytes(t), graph_[t].shape, graph_[t].dtype});
        made.push_back(place->second);
      }
    };
    boundary(network_input());
    for (const StageOps& ops : stages_) boundary(ops.output);
  }

  /// The most that is there while these ops run one after the other, of what they make and of their workspaces; what
  /// `stays` is not freed, the rest after its last reader among them.
  template <class Stays>
  Bytes most_made(const std::vector<std::size_t>& ops, Stays stays) const {
    std::map<StorageId, std::size_t> last;
    for (const std::size_t o : ops) {
      for (const auto* list : {&graph_.ops[o].inputs, &graph_.ops[o].outputs}) {
        for (const TensorId t : *list) last[graph_[t].storage] = o;
      }
    }
    std::map<StorageId, Bytes> live;
    Bytes now, most;
    for (const std::size_t o : ops) {
      const Op& op = graph_.ops[o];
      for (const TensorId t : op.outputs) {
        if (!is_value(graph_[t].kind) || !live.try_emplace(graph_[t].storage, bytes(t)).second) continue;
        now += bytes(t);
      }
      most = std::max(most, now + op.workspace);
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) {
          const auto found = live.find(graph_[t].storage);
          if (found == live.end() || last[found->first] != o || stays(t)) continue;
          now -= found->second;
          live.erase(found);
        }
      }
    }
    return most;
  }

  Seconds seconds(const std::vector<std::size_t>& ops, Saving saving) const {
    return pass_time(problem_, ops, saving).seconds;
  }

  double kernels(const std::vector<std::size_t>& ops) const {
    double sum = 0;
    for (const std::size_t o : ops) sum += issued_kernels(graph_.ops[o]);
    return sum;
  }

  /// Whether what a stage needs is gathered before the one that runs before it.
  bool gathers_ahead() const {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase == Phase::update || !runs_beside(op)) continue;
      if (collective_of(op)->kind != CollectiveKind::all_gather) continue;
      const auto next =
          std::ranges::find_if_not(graph_.ops.begin() + static_cast<std::ptrdiff_t>(o), graph_.ops.end(), runs_beside);
      const bool is_own =
          next != graph_.ops.end() && next->stage == op.stage && is_backward(next->phase) == is_backward(op.phase);
      if (!is_own) return true;
    }
    return false;
  }

  /// Ops that make nothing but gradients of parameters, and what only these read: in the order of the backward, so that
  /// their times, rounded as they are added up, never come to more than the whole backward's.
  std::vector<std::size_t> weight_ops(const std::vector<std::size_t>& backward) const {
    std::vector<std::size_t> found;
    std::set<std::size_t> is_weight;
    for (std::size_t k = backward.size(); k-- > 0;) {
      const Op& op = graph_.ops[backward[k]];
      const bool only = std::ranges::all_of(op.outputs, [&](TensorId t) {
        if (graph_[t].kind == TensorKind::parameter_gradient) return true;
        const auto& readers = readers_[graph_[t].storage.index];
        return !readers.empty() && std::ranges::all_of(readers, [&](std::size_t o) { return is_weight.contains(o); });
      });
      if (!only || op.outputs.empty()) continue;
      is_weight.insert(backward[k]);
      found.push_back(backward[k]);
    }
    std::ranges::reverse(found);
    return found;
  }

  void add_stage(std::size_t i) {
    const StageOps& ops = stages_[i];
    Stage stage;
    stage.name = name_of(i);
    const std::vector<TensorId> input = i == 0 ? network_input() : stages_[i - 1].output;
    if (i == 0) chain_.input = sum(input);
    stage.forward = seconds(ops.forward, Saving::keep);
    stage.forward_nograd = seconds(ops.forward, Saving::nothing);
    stage.backward = seconds(ops.backward, Saving::keep);
    stage.backward_weight = seconds(weight_ops(ops.backward), Saving::keep);
    stage.has_backward_weight = true;
    stage.forward_kernels = kernels(ops.forward);
    stage.backward_kernels = kernels(ops.backward);
    stage.output = sum(ops.output);
    stage.saved = stage.output + sum(ops.inner);
    stage.input_gradient = sum(ops.input_gradients);
    stage.keeps_input = read_by(input, ops.backward);
    stage.keeps_output = read_by(ops.output, ops.backward);
    Bytes passed;
    for (const TensorId t : ops.output) passed += is_among(input, t) ? bytes(t) : Bytes{0};
    const auto is_output = [&](TensorId t) { return is_among(ops.output, t); };
    const auto is_kept = [&](TensorId t) { return is_output(t) || is_among(ops.inner, t); };
    stage.forward_workspace = beyond(most_made(ops.forward, is_kept), stage.saved - passed);
    stage.forward_nograd_workspace = beyond(most_made(ops.forward, is_output), stage.output - passed);
    stage.backward_workspace = stage.backward_accumulate_workspace = beyond(
        most_made(ops.backward, [&](TensorId t) { return is_among(ops.input_gradients, t); }), stage.input_gradient);
    if (inner_ == Inner::apart) list_saved(stage, i, input);
    add_parameters(stage, ops);
    chain_.stages.push_back(std::move(stage));
    exchanges_.push_back(exchanges_beside(problem_, ops.forward, ops.backward));
    within_.push_back(exchanges_by_axis(problem_, ops.forward, ops.backward, weight_ops(ops.backward)));
  }

  void list_saved(Stage& stage, std::size_t i, const std::vector<TensorId>& input) const {
    const StageOps& ops = stages_[i];
    for (const TensorId t : ops.inner) {
      stage.inner.push_back({graph_[t].name, bytes(t), graph_[t].shape, graph_[t].dtype, uses_in(i, t)});
    }
    std::set<StorageId> listed;
    for (const auto* boundary : {&input, &ops.output}) {
      for (const TensorId t : *boundary) {
        std::vector<LayerUse> uses = uses_in(i, t);
        if (uses.empty() || !listed.insert(graph_[t].storage).second) continue;
        stage.boundary_uses.push_back({boundary_tensors_.at(graph_[t].storage), std::move(uses)});
      }
    }
  }

  /// By the layers of the ops of the stage's backward that read it.
  std::vector<LayerUse> uses_in(std::size_t i, TensorId t) const {
    std::vector<LayerUse> uses;
    for (const std::size_t o : readers_[graph_[t].storage.index]) {
      const Op& op = graph_.ops[o];
      if (stage_of_[o] != i || !is_backward(op.phase)) continue;
      LayerUse use{.by = layer_of(op)};
      use.is_result = made_by_[graph_[t].storage.index].contains(use.by);
      if (use.by == SavedBy::conv) use.kernel = kernel_of(graph_, op);
      if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
    }
    return uses;
  }

  /// What the names of its ops begin with, up to a dot: `layer3.attention`; else its number.
  std::string name_of(std::size_t i) const {
    std::optional<std::string> common;
    for (const std::size_t o : stages_[i].forward) {
      const Op& op = graph_.ops[o];
      if (collective_of(op) || op_kind(op) == OpKind::share) continue;
      if (!common) common = op.name;
      while (!common->empty() && op.name != *common && !op.name.starts_with(*common + ".")) {
        const std::size_t dot = common->rfind('.');
        common->erase(dot == std::string::npos ? 0 : dot);
      }
    }
    return common && !common->empty() ? *common : "stage" + std::to_string(i);
  }

  static Bytes beyond(Bytes most, Bytes counted) { return most > counted ? most - counted : Bytes{0}; }

  std::vector<TensorId> network_input() const {
    for (const std::size_t o : stages_.front().forward) {
      for (const TensorId t : graph_.ops[o].inputs) {
        if (graph_[t].kind == TensorKind::input) return {t};
      }
    }
    return {};
  }

  void add_parameters(Stage& stage, const StageOps& ops) {
    Bytes trained, gradients;
    for (const auto* list : {&ops.forward, &ops.backward}) {
      for (const std::size_t o : *list) {
        for (const TensorId t : graph_.ops[o].inputs) {
          if (graph_[t].kind != TensorKind::parameter) continue;
          const auto [place, fresh] = parameters_.try_emplace(graph_[t].storage, chain_.parameters.size());
          if (fresh) chain_.parameters.push_back({graph_[t].name, bytes(t), graph_[t].dtype, is_trained(t)});
          const auto number = static_cast<std::uint32_t>(place->second);
          if (std::ranges::find(stage.parameters, number) != stage.parameters.end()) continue;
          stage.parameters.push_back(number);
          if (is_trained(t)) trained += bytes(t);
        }
      }
    }
    std::set<StorageId> made;
    for (const std::size_t o : ops.backward) {
      for (const TensorId t : graph_.ops[o].outputs) {
        if (graph_[t].kind != TensorKind::parameter_gradient || !made.insert(graph_[t].storage).second) continue;
        gradients += bytes(t);
        stage_of_gradient_[graph_[t].storage] = stage.name;
      }
    }
    if (gradients != trained) stage.parameter_gradient = gradients;
  }

  /// As parameters that nobody trains.
  void add_unread() {
    std::set<StorageId> known;
    for (const TensorId t : network_input()) known.insert(graph_[t].storage);
    for (const Tensor& tensor : graph_.tensors) {
      const bool counts = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::input;
      if (!counts || parameters_.contains(tensor.storage) || !known.insert(tensor.storage).second) continue;
      chain_.parameters.push_back({tensor.name, tensor.bytes, tensor.dtype, false});
    }
  }

  /// By storage: parameters that a gradient is of, or that an update changes.
  std::set<StorageId> find_trained() const {
    std::set<StorageId> found;
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.gradient_of) found.insert(graph_[*tensor.gradient_of].storage);
    }
    for (const Op& op : graph_.ops) {
      for (const TensorId t : op.mutates) {
        if (op.phase == Phase::update) found.insert(graph_[t].storage);
      }
    }
    return found;
  }

  /// All of them where the graph does not say.
  bool is_trained(TensorId t) const { return trained_.empty() || trained_.contains(graph_[t].storage); }

  /// The graph's, on the chain's parameters and gradients.
  void add_updates(Problem& made) const {
    std::map<std::string, TensorId> by_name;
    for (std::size_t t = 0; t < made.graph.tensors.size(); ++t) {
      by_name.try_emplace(made.graph.tensors[t].name, id_at<TensorId>(t));
    }
    std::map<StorageId, TensorId> moved;
    const auto place_of = [&](TensorId t) {
      const Tensor& tensor = graph_[t];
      const auto known = moved.find(tensor.storage);
      if (known != moved.end()) return known->second;
      std::optional<TensorId> found;
      if (const auto p = parameters_.find(tensor.storage); p != parameters_.end()) {
        found = by_name.at(chain_.parameters[p->second].name);
      } else if (const auto g = stage_of_gradient_.find(tensor.storage); g != stage_of_gradient_.end()) {
        const auto own = by_name.find("gradient of " + g->second);
        const auto of_parameter = own == by_name.end() ? by_name.find(gradient_name(t)) : own;
        if (of_parameter == by_name.end()) throw NotAChain{"'" + tensor.name + "' is the gradient of no parameter"};
        found = of_parameter->second;
      } else {
        found = id_at<TensorId>(made.graph.tensors.size());
        made.graph.tensors.push_back(tensor);
        made.graph.tensors.back().storage = id_at<StorageId>(made.graph.storages++);
        made.graph.tensors.back().gradient_of.reset();
      }
      return moved.try_emplace(tensor.storage, *found).first->second;
    };
    std::map<TensorId, std::size_t> update_of;  // by gradient
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      Op update = op;
      for (auto* list : {&update.inputs, &update.outputs, &update.mutates}) {
        std::vector<TensorId> placed;
        for (const TensorId t : *list) {
          const TensorId to = place_of(t);
          if (std::ranges::find(placed, to) == placed.end()) placed.push_back(to);
        }
        *list = std::move(placed);
      }
      update.duration = duration_on(problem_, id_at<OpId>(static_cast<std::size_t>(&op - graph_.ops.data())),
                                    DeviceId{0}, Saving::keep);
      if (const std::size_t takes = first_to_take(made.graph, update, update_of); takes < made.graph.ops.size()) {
        join_update(made.graph.ops[takes], update);
        continue;
      }
      made.index->updates.push_back(id_at<OpId>(made.graph.ops.size()));
      made.graph.ops.push_back(std::move(update));
    }
  }

  /// The update that takes the same gradient, which parameters of a stage may have together; else the next op's number.
  static std::size_t first_to_take(const Graph& graph, const Op& update, std::map<TensorId, std::size_t>& update_of) {
    const auto is_gradient = [&](TensorId t) { return graph[t].kind == TensorKind::parameter_gradient; };
    const auto gradient = std::ranges::find_if(update.inputs, is_gradient);
    const bool takes_one = updates_parameters(update) && gradient != update.inputs.end();
    return takes_one ? update_of.try_emplace(*gradient, graph.ops.size()).first->second : graph.ops.size();
  }

  /// As the chain's graph calls it: of the parameter that the trace states, or that an update takes it for.
  std::string gradient_name(TensorId t) const {
    const Tensor& gradient = graph_[t];
    if (gradient.gradient_of) return "gradient of " + graph_[*gradient.gradient_of].name;
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update || collective_of(op)) continue;
      const auto takes = [&](TensorId in) { return graph_[in].storage == gradient.storage; };
      if (std::ranges::none_of(op.inputs, takes)) continue;
      for (const TensorId updated : op.mutates) {
        if (graph_[updated].kind == TensorKind::parameter) return "gradient of " + graph_[updated].name;
      }
    }
    return gradient.name;
  }

  Problem problem_;
  const Graph& graph_;
  Backward backward_;
  Unread unread_;
  Inner inner_;
  Chain chain_;
  std::vector<StageExchanges> exchanges_;  // by stage
  std::vector<PassExchanges> within_;
  std::vector<StageOps> stages_;
  std::vector<std::size_t> stage_of_;  // by op; nowhere: an update
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<std::set<SavedBy>> made_by_;  // by storage: the layers of the forwards that write it
  std::set<StorageId> trained_;
  std::map<StorageId, std::size_t> parameters_;  // number in the chain
  std::map<StorageId, std::uint32_t> boundary_tensors_;
  std::map<StorageId, std::string> stage_of_gradient_;  // the stage that makes it
};

}  // namespace

std::variant<Problem, std::string> as_chain(Problem problem, Backward backward, Inner inner, Unread unread) {
  try {
    return ChainOfGraph(std::move(problem), backward, unread, inner).run();
  } catch (NotAChain& cannot) {
    return std::move(cannot.why);
  }
}

}  // namespace plimsoll
