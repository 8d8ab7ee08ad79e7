#include "sim/mesh/shared_experts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

/// As `loop` in traces names experts, and positions or rows, of which a rank has some more or less.
constexpr std::string_view experts_name = "x", positions_name = "s", rows_name = "n";
/// Attribute of an op on rows of experts: how many each of them has.
constexpr std::string_view rows_stated = "expert_rows";

bool is_of_rows(std::string_view dim) {
  return dim == positions_name || dim == rows_name;
}

/// Rows of the rank with the most over the mean, of equal parts of the list in a row; unset: it is no such list.
std::optional<double> stated_imbalance(std::string_view text, std::int64_t experts, std::int64_t ranks) {
  const std::vector<std::string_view> words = words_of(text);
  if (static_cast<std::int64_t>(words.size()) != experts) return std::nullopt;
  double all = 0, most = 0, of_rank = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::int64_t rows = 0;
    const auto [end, error] = std::from_chars(words[i].data(), words[i].data() + words[i].size(), rows);
    if (error != std::errc{} || end != words[i].data() + words[i].size() || rows < 0) return std::nullopt;
    of_rank += static_cast<double>(rows);
    all += static_cast<double>(rows);
    if (static_cast<std::int64_t>(i + 1) % (experts / ranks) != 0) continue;
    most = std::max(most, std::exchange(of_rank, 0.0));
  }
  if (all <= 0) return std::nullopt;
  return most * static_cast<double>(ranks) / all;
}

class ExpertSharing {
 public:
  ExpertSharing(Graph graph, const Axis& axis, double imbalance)
      : graph_(std::move(graph)), axis_(axis), imbalance_(imbalance), works_(graph_.ops.size(), false) {
    made_ = graph_;
    made_.ops.clear();
  }

  std::variant<SharedExperts, std::string> run() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const std::variant<OpLoop, std::string> found = loop_of(graph_, id_at<OpId>(o));
      const OpLoop* loop = std::get_if<OpLoop>(&found);
      loops_.push_back(loop == nullptr || graph_.ops[o].phase == Phase::update ? std::nullopt : std::optional(*loop));
    }
    find_experts();
    if (dim_of_.empty()) {
      return "no op of '" + graph_.name +
             "' has a loop over experts ('x') that only its parameters have: there are none to share out";
    }
    if (std::optional<std::string> why = cannot_divide()) return *std::move(why);
    if (std::optional<std::string> why = read_rows()) return *std::move(why);
    find_work();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!works_[o]) continue;
      for (const TensorId t : graph_.ops[o].outputs) {
        if (!dim_of_.contains(t)) is_inside_.insert(t);
      }
    }
    grow();
    for (const auto& [t, dim] : dim_of_) take_share(t, dim);
    share_states();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) add(o);
    for (std::vector<OpId>& group : made_.colocate) {
      for (OpId& op : group) op = new_id_[op.index];
    }
    SharedExperts result{std::move(made_), {}};
    for (const auto& [t, dim] : dim_of_) {
      if (result.graph[t].kind == TensorKind::parameter_gradient) result.gradients.push_back(t);
    }
    return result;
  }

 private:
  /// Where an operand's shape has the experts, if no other operand has them.
  static std::optional<std::uint8_t> own_experts(const OpLoop& loop, std::size_t k) {
    const std::optional<std::uint8_t> experts = loop.dim(experts_name);
    if (!experts) return std::nullopt;
    std::ptrdiff_t uses = 0;
    for (const auto* list : {&loop.inputs, &loop.outputs}) {
      for (const std::vector<std::uint8_t>& operand : *list) uses += std::ranges::count(operand, *experts);
    }
    const auto place = std::ranges::find(loop.inputs[k], *experts);
    if (uses != 1 || place == loop.inputs[k].end()) return std::nullopt;
    return static_cast<std::uint8_t>(place - loop.inputs[k].begin());
  }

  void find_experts() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (!loops_[o] || op.phase != Phase::forward || op.inputs.size() < 2) continue;
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (graph_[op.inputs[k]].kind != TensorKind::parameter) continue;
        if (const auto dim = own_experts(*loops_[o], k)) {
          dim_of_[op.inputs[k]] = *dim;
          name_.try_emplace(op.inputs[k], op.name);
        }
      }
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const auto& of = graph_.tensors[t].gradient_of;
      if (of && dim_of_.contains(*of)) dim_of_[id_at<TensorId>(t)] = dim_of_.at(*of);
    }
  }

  std::optional<std::string> cannot_divide() const {
    for (const auto& [t, name] : name_) {
      const std::int64_t experts = graph_[t].shape[dim_of_.at(t)], ranks = axis_.ranks;
      if (experts % ranks == 0) continue;
      std::int64_t below = ranks, above = ranks;
      while (experts % below != 0) --below;
      while (above < experts && experts % above != 0) ++above;
      return "'" + name + "' has " + std::to_string(experts) + " experts, which " + std::to_string(ranks) +
             " ranks do not divide; " + std::to_string(below) +
             (above <= experts ? " or " + std::to_string(above) : std::string()) + " would";
    }
    return std::nullopt;
  }

  /// Of stages whose ops state them. In one sentence what is wrong.
  std::optional<std::string> read_rows() {
    for (const Op& op : graph_.ops) {
      const auto text = attribute_of(op, rows_stated);
      const auto parameter = std::ranges::find_if(op.inputs, [&](TensorId t) { return dim_of_.contains(t); });
      if (!text || parameter == op.inputs.end()) continue;
      const std::int64_t experts = graph_[*parameter].shape[dim_of_.at(*parameter)];
      const std::optional<double> stated = stated_imbalance(*text, experts, axis_.ranks);
      if (!stated) {
        return "'" + op.name + "' states '" + std::string(*text) + "' as the rows of its " + std::to_string(experts) +
               " experts: expected a whole number for each";
      }
      stated_[op.stage] = std::max(stated_[op.stage], *stated);
    }
    return std::nullopt;
  }

  /// Of the rank with the most rows, in a stage.
  double imbalance(const Op& op) const {
    const auto found = stated_.find(op.stage);
    return imbalance_ * (found == stated_.end() ? 1 : found->second);
  }

  bool touches_experts(const Op& op) const {
    return std::ranges::any_of(op.inputs, [&](TensorId t) { return dim_of_.contains(t); }) ||
           std::ranges::any_of(op.outputs, [&](TensorId t) { return dim_of_.contains(t); });
  }

  /// Ops on the rows of experts: those that touch these, and what is both behind one and before one of them.
  void find_work() {
    const std::size_t count = graph_.ops.size();
    using Place = std::pair<std::uint32_t, bool>;  // stage, whether backward
    const auto place = [&](const Op& op) { return Place{op.stage, is_backward(op.phase)}; };
    std::vector<bool> is_behind(count, false), is_before(count, false);
    std::map<TensorId, std::set<Place>> made_behind, read_before;
    for (std::size_t o = 0; o < count; ++o) {
      const Op& op = graph_.ops[o];
      if (op.phase == Phase::update || collective_of(op)) continue;
      is_behind[o] = touches_experts(op) ||
                     std::ranges::any_of(op.inputs, [&](TensorId t) { return made_behind[t].contains(place(op)); });
      if (!is_behind[o]) continue;
      for (const TensorId t : op.outputs) made_behind[t].insert(place(op));
    }
    for (std::size_t o = count; o-- > 0;) {
      const Op& op = graph_.ops[o];
      if (op.phase == Phase::update || collective_of(op)) continue;
      is_before[o] = touches_experts(op) ||
                     std::ranges::any_of(op.outputs, [&](TensorId t) { return read_before[t].contains(place(op)); });
      if (!is_before[o]) continue;
      for (const TensorId t : op.inputs) read_before[t].insert(place(op));
    }
    for (std::size_t o = 0; o < count; ++o) works_[o] = is_behind[o] && is_before[o];
  }

  std::optional<std::size_t> rows_dim(std::size_t o, TensorId t) const {
    const auto in = [&](const std::vector<TensorId>& tensors,
                        const std::vector<std::vector<std::uint8_t>>& operands) -> std::optional<std::size_t> {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        for (std::size_t d = 0; tensors[k] == t && d < operands[k].size(); ++d) {
          if (is_of_rows(loops_[o]->dims[operands[k][d]].name)) return d;
        }
      }
      return std::nullopt;
    };
    if (!loops_[o]) return std::nullopt;
    const std::optional<std::size_t> found = in(graph_.ops[o].inputs, loops_[o]->inputs);
    return found ? found : in(graph_.ops[o].outputs, loops_[o]->outputs);
  }

  /// As many more rows as the rank with the most has, in whole positions.
  Tensor grown(Tensor tensor, std::size_t o, std::optional<std::size_t> dim) const {
    const double times = imbalance(graph_.ops[o]);
    if (!dim || times <= 1) return tensor;
    std::int64_t& rows = tensor.shape[*dim];
    const auto more = static_cast<std::int64_t>(std::ceil(static_cast<double>(rows) * times));
    tensor.bytes = tensor.bytes.count / rows * Bytes{more};
    rows = more;
    return tensor;
  }

  void grow() {
    std::set<TensorId> done;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!works_[o]) continue;
      for (const TensorId t : graph_.ops[o].outputs) {
        if (!is_inside_.contains(t) || !done.insert(t).second) continue;
        made_.tensors[t.index] = grown(made_[t], o, rows_dim(o, t));
      }
    }
  }

  void take_share(TensorId t, std::uint8_t dim) {
    Tensor& tensor = made_.tensors[t.index];
    tensor.shape[dim] /= axis_.ranks;
    tensor.bytes = Bytes{tensor.bytes.count / axis_.ranks};
  }

  /// States of updates that change nothing but parameters of experts.
  void share_states() {
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update || collective_of(op)) continue;
      const auto parameter =
          std::ranges::find_if(op.inputs, [&](TensorId t) { return graph_[t].kind == TensorKind::parameter; });
      if (parameter == op.inputs.end() || !dim_of_.contains(*parameter)) continue;
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind != TensorKind::optimizer_state) continue;
        Tensor& state = made_.tensors[t.index];
        if (state.shape == graph_[*parameter].shape) state.shape = made_[*parameter].shape;
        state.bytes = Bytes{(state.bytes.count + axis_.ranks - 1) / axis_.ranks};
      }
    }
  }

  /// The value as it is inside or outside: exchanged once.
  TensorId exchanged(TensorId t, std::size_t o, bool to_inside) {
    const auto [known, is_new] = exchanged_.try_emplace(t, t);
    if (!is_new) return known->second;
    const Op& reader = graph_.ops[o];
    Tensor tensor = to_inside ? grown(graph_[t], o, rows_dim(o, t)) : graph_[t];
    if (tensor.kind != TensorKind::gradient) tensor.kind = TensorKind::activation;
    tensor.name = "all_to_all over " + axis_.name + " of " + tensor.name;
    tensor.storage = id_at<StorageId>(made_.storages++);
    known->second = id_at<TensorId>(made_.tensors.size());
    made_.tensors.push_back(tensor);
    Op op = collective_op(tensor.name, {CollectiveKind::all_to_all, axis_.name}, reader.phase);
    op.stage = reader.stage;
    op.inputs = {t};
    op.outputs = {known->second};
    made_.ops.push_back(std::move(op));
    return known->second;
  }

  void add(std::size_t o) {
    Op op = graph_.ops[o];
    if (op.phase != Phase::update) {
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        const TensorId t = op.inputs[k];
        const TensorKind kind = graph_[t].kind;
        const bool is_value = kind == TensorKind::activation || kind == TensorKind::gradient;
        if (!is_value || is_inside_.contains(t) == works_[o]) continue;
        op.inputs[k] = exchanged(t, o, works_[o]);
        std::ranges::replace(op.mutates, t, op.inputs[k]);
      }
    }
    if (works_[o] || (op.phase == Phase::update && touches_experts(op))) take_work(op, graph_.ops[o]);
    new_id_.push_back(id_at<OpId>(made_.ops.size()));
    made_.ops.push_back(std::move(op));
  }

  /// Traffic in proportion to the operands; work to the rows, and of updates to the parameters.
  void take_work(Op& op, const Op& before) const {
    const auto bytes_of = [](const Graph& graph, const Op& of) {
      double sum = 0;
      for (const auto* list : {&of.inputs, &of.outputs}) {
        for (const TensorId t : *list) sum += static_cast<double>(graph[t].bytes.count);
      }
      return sum;
    };
    const double all = bytes_of(graph_, before), traffic = all > 0 ? bytes_of(made_, op) / all : 1;
    const double work = op.phase == Phase::update ? traffic : more_rows(before);
    const auto times = [](std::optional<Bytes>& bytes, double share) {
      if (bytes) bytes = Bytes{static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes->count) * share))};
    };
    if (op.flops) op.flops = Flops{work * op.flops->count};
    for (auto* duration : {&op.duration, &op.nograd_duration}) {
      if (*duration) *duration = work * **duration;
    }
    times(op.bytes_moved, traffic);
    std::optional<Bytes> workspace = op.workspace;
    times(workspace, work);
    op.workspace = *workspace;
    for (auto* space :
         {&op.nograd_workspace, &op.accumulate_workspace, &op.released_workspace, &op.released_accumulate_workspace}) {
      times(*space, work);
    }
    for (Alternative& other : op.alternatives) {
      if (other.duration) other.duration = work * *other.duration;
      if (other.flops) other.flops = Flops{work * other.flops->count};
      times(other.bytes_moved, traffic);
    }
  }

  /// Of an op on rows of experts: how many times its own ones.
  double more_rows(const Op& op) const {
    const double times = imbalance(op);
    if (times <= 1) return 1;
    const auto o = static_cast<std::size_t>(&op - graph_.ops.data());
    if (!loops_[o]) return times;
    const auto rows = std::ranges::find_if(loops_[o]->dims, [](const LoopDim& dim) { return is_of_rows(dim.name); });
    if (rows == loops_[o]->dims.end()) return times;
    const auto count = static_cast<double>(rows->size);
    return std::ceil(count * times) / count;
  }

  Graph graph_, made_;
  const Axis& axis_;
  double imbalance_;
  std::map<std::uint32_t, double> stated_;    // by stage: what its ops' rows make of it
  std::vector<std::optional<OpLoop>> loops_;  // by op
  std::map<TensorId, std::uint8_t> dim_of_;   // of parameters of experts and their gradients: which are the experts
  std::map<TensorId, std::string> name_;      // of these parameters: the first op that reads it
  std::vector<bool> works_;                   // by op: on rows of experts
  std::set<TensorId> is_inside_;              // values that such ops make
  std::map<TensorId, TensorId> exchanged_;
  std::vector<OpId> new_id_;
};

}  // namespace

std::variant<SharedExperts, std::string> with_shared_experts(Graph graph, const Axis& axis, double imbalance) {
  return ExpertSharing(std::move(graph), axis, imbalance).run();
}

}  // namespace plimsoll
