// From printed graphs to one iteration. Forward and backward come as two graphs, whose values have the same names, or
// as one, in which the backward begins where the first gradient from outside (`tangents_1`) is read. What a
// partitioner lets the backward compute again is the forward's op, and is joined with it: planners choose anew.

#include "traces/imports/pytorch/fx_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/fx_text.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

/// `addmm` of `aten.addmm.default`
std::string_view op_word(std::string_view target) {
  const std::size_t dot = target.find('.');
  if (dot == std::string_view::npos) return target;
  target.remove_prefix(dot + 1);
  return target.substr(0, target.find('.'));
}

std::string_view name_space(std::string_view target) {
  return target.substr(0, target.find('.'));
}

bool is_float(std::string_view dtype) {
  return !dtype.starts_with('i') && !dtype.starts_with('u') && !dtype.starts_with("b8");
}

/// Calls each(node) for all nodes that arguments name.
void for_nodes(const std::vector<FxArgument>& arguments, const auto& each) {
  for (const FxArgument& argument : arguments) {
    if (argument.kind == FxArgument::Kind::node) each(argument.node);
    for_nodes(argument.items, each);
  }
}

class FxLowering {
 public:
  FxLowering(std::string_view text, Complaints& complaints) : text_(text), complaints_(complaints) {}

  Graph graph(const std::vector<FxGraph>& graphs, std::string name) && {
    made_.name = std::move(name);
    choose(graphs);
    find_gradients();
    lower(*forward_);
    if (backward_ != nullptr) lower(*backward_);
    mark_gradients();
    complaints_.throw_if_any();
    mark_saved(made_);
    write_source();
    return std::move(made_);
  }

 private:
  void complain(std::size_t offset, std::string_view key, std::string_view what) {
    complaints_.add(position_of(text_, offset), key, what);
  }
  [[noreturn]] void refuse(std::size_t offset, std::string_view key, std::string_view what) {
    complain(offset, key, what);
    complaints_.throw_now();
  }

  // --- which graphs

  void choose(const std::vector<FxGraph>& graphs) {
    const bool any_marked = std::ranges::any_of(graphs, &FxGraph::is_marked);
    std::map<FxGraph::Role, std::vector<const FxGraph*>> found;
    for (const FxGraph& graph : graphs) {
      if (graph.is_marked || !any_marked) found[graph.role].push_back(&graph);
    }
    auto& forwards = found[FxGraph::Role::forward];
    auto& backwards = found[FxGraph::Role::backward];
    auto& joints = found[FxGraph::Role::joint];
    if (graphs.empty())
      refuse(0, "", "no graph, expected 'def forward(...)' and lines 'NAME: \"f32[8]\" = torch.ops...'");
    if (forwards.empty() && backwards.empty() && joints.size() == 1) {
      forward_ = joints.front();
      return;
    }
    for (const auto* list : {&forwards, &backwards}) {
      if (list->size() < 2) continue;
      refuse((*list)[1]->offset, "",
             "a second graph of the same pass, expected one iteration: compile without graph breaks");
    }
    if (forwards.empty()) refuse(backwards.front()->offset, "", "a backward graph without its forward graph");
    if (backwards.empty()) {
      refuse(forwards.front()->offset, "",
             "a forward graph without its backward graph: dump a model in training mode, and put both into one file");
    }
    forward_ = forwards.front();
    backward_ = backwards.front();
  }

  // --- what is given

  /// Which of the given values the last results are gradients of: those of autograd come in the order of the primals.
  void find_gradients() {
    const FxGraph& last = backward_ != nullptr ? *backward_ : *forward_;
    std::vector<std::uint32_t> primals;
    for (std::uint32_t n = 0; n < forward_->nodes.size(); ++n) {
      const FxNode& node = forward_->nodes[n];
      if (node.kind == FxNode::Kind::given && !is_tangent(node)) primals.push_back(n);
    }
    const std::size_t first =
        backward_ != nullptr ? 0 : last.results.size() - std::min(last.results.size(), primals.size());
    if (last.results.size() - first < primals.size()) {
      refuse(last.offset, "return",
             fmt::format("expected a gradient or None for each of {} primals, found {}", primals.size(),
                         last.results.size() - first));
    }
    for (std::size_t k = 0; k < primals.size(); ++k) {
      const FxArgument& result = last.results[first + k];
      if (result.kind != FxArgument::Kind::node) continue;
      trained_.insert(primals[k]);
      gradients_.emplace_back(primals[k], result.node);
    }
    if (trained_.empty()) refuse(last.offset, "return", "no gradients, expected at least one");
  }

  static bool is_tangent(const FxNode& node) { return node.name.starts_with("tangents_"); }

  std::int64_t storage_bytes(const FxType& type) const {
    std::int64_t numbers = element_count(type.shape);
    if (type.has_strides && numbers > 0) {
      std::int64_t extent = 1;
      for (std::size_t k = 0; k < type.shape.size(); ++k) extent += (type.shape[k] - 1) * type.strides[k];
      numbers = std::max(numbers, extent);
    }
    return numbers * *element_bytes(type.dtype);
  }

  TensorId add_tensor(std::string name, TensorKind kind, const FxNode& node, std::optional<StorageId> storage = {}) {
    const FxType& type = *node.type;
    double numbers = 1;
    for (const std::int64_t n : type.shape) numbers *= static_cast<double>(n);
    for (std::size_t k = 0; k < type.strides.size(); ++k) {
      numbers += static_cast<double>(type.strides[k]) * static_cast<double>(type.shape[k]);
    }
    constexpr double most = 1e14, most_together = 4e17;  // so that bytes stay below 2^62
    sum_ += numbers;
    if (numbers > most || sum_ > most_together) refuse(node.offset, node.name, "absurdly large");
    const Bytes own{storage_bytes(type)};
    if (storage && bytes_of_[storage->index] < own) storage.reset();
    if (!storage) {
      storage = id_at<StorageId>(made_.storages++);
      bytes_of_.push_back(own);
    }
    made_.tensors.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = bytes_of_[storage->index],
                             .storage = *storage,
                             .shape = type.shape,
                             .dtype = std::string(long_dtype(type.dtype))});
    return id_at<TensorId>(made_.tensors.size() - 1);
  }

  /// Of integers: a batch's; of floats without a gradient: one of the batch where it has the first extent of integers.
  TensorKind kind_of_given(std::uint32_t n, const FxNode& node) const {
    if (trained_.contains(n)) return TensorKind::parameter;
    if (!is_float(node.type->dtype)) return TensorKind::input;
    if (node.type->shape.size() < 2) return TensorKind::parameter;
    for (const FxNode& other : forward_->nodes) {
      if (other.kind != FxNode::Kind::given || !other.type || is_float(other.type->dtype)) continue;
      if (!other.type->shape.empty() && other.type->shape[0] == node.type->shape[0]) return TensorKind::input;
    }
    return TensorKind::parameter;
  }

  // --- ops

  void lower(const FxGraph& graph) {
    is_second_ = &graph == backward_;
    nodes_ = &graph.nodes;
    values_.assign(graph.nodes.size(), std::nullopt);
    items_.clear();
    for (std::uint32_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n].kind == FxNode::Kind::item) items_[graph.nodes[n].item_of].push_back(n);
    }
    phase_ = is_second_ ? Phase::backward : Phase::forward;
    for (std::uint32_t n = 0; n < graph.nodes.size(); ++n) {
      const FxNode& node = graph.nodes[n];
      if (node.kind == FxNode::Kind::call) call(n, node);
      if (node.kind == FxNode::Kind::given || node.kind == FxNode::Kind::constant) given(n, node);
    }
  }

  void given(std::uint32_t n, const FxNode& node) {
    if (is_second_ && !is_tangent(node)) {
      const auto known = by_name_.find(node.name);
      if (known != by_name_.end()) {
        values_[n] = known->second;
      } else if (node.type) {
        refuse(node.offset, node.name, "the forward graph has no such value");
      }
      return;
    }
    if (!node.type) {
      if (node.written.empty() && node.kind == FxNode::Kind::given && name_is_plain(node)) {
        refuse(node.offset, node.name, "has no shape, expected 'NAME: \"f32[8, 16]\"' as print_readable() writes");
      }
      return;  // a number
    }
    if (is_tangent(node)) return tangent(n, node);
    const TensorKind kind = node.kind == FxNode::Kind::constant ? TensorKind::parameter : kind_of_given(n, node);
    if (kind == TensorKind::parameter && !trained_.contains(n)) ++frozen_;
    set(n, node, add_tensor(std::string(node.name), kind, node));
  }

  /// Of a given value without an annotation: text behind its name would have been a number's `"Sym(4)"`.
  bool name_is_plain(const FxNode& node) const {
    const std::size_t behind = node.offset + node.name.size();
    return behind >= text_.size() || text_[behind] != ':';
  }

  /// The gradient from outside, of the loss: ones.
  void tangent(std::uint32_t n, const FxNode& node) {
    const TensorId made = add_tensor(fmt::format("gradient from outside {}", node.name), TensorKind::gradient, node);
    made_.ops.push_back({.name = std::string(node.name),
                         .kind = "ones_like",
                         .phase = Phase::backward,
                         .flops = Flops{0},
                         .bytes_moved = made_[made].bytes,
                         .outputs = {made}});
    set(n, node, made);
  }

  void set(std::uint32_t n, const FxNode& node, TensorId tensor) {
    values_[n] = tensor;
    if (!is_second_) by_name_[node.name] = tensor;
  }

  bool reads_tangent(const FxNode& node) const {
    bool reads = false;
    for_nodes(node.arguments, [&](std::uint32_t n) { reads = reads || is_tangent((*nodes_)[n]); });
    return reads;
  }

  void call(std::uint32_t n, const FxNode& node) {
    if (node.target.empty()) return;  // arithmetic of sizes
    if (phase_ == Phase::forward && reads_tangent(node)) phase_ = Phase::backward;
    if (joined(n, node)) return;
    const std::string_view space = name_space(node.target), word = op_word(node.target);
    constexpr std::array<std::string_view, 5> known{"aten", "prims", "_c10d_functional", "inductor", "rngprims"};
    if (std::ranges::find(known, space) == known.end()) {
      refuse(node.offset, node.name,
             fmt::format("no rule for what '{}' computes; known are the ops of {}", node.target, alternatives(known)));
    }
    std::vector<std::uint32_t> results = node.type ? std::vector{n} : items_of(n);
    if (results.empty()) {
      if (word.starts_with("sym_") || word.starts_with("_assert") || word.starts_with("_foreach")) return;
      if (node.arguments.empty()) return;
      bool any = false;
      for_nodes(node.arguments, [&](std::uint32_t a) { any = any || values_[a].has_value(); });
      if (any && node.written.find('(') != std::string_view::npos && !is_void(word)) {
        refuse(node.offset, node.name,
               "has no shape, expected 'NAME: \"f32[8, 16]\" = ...' as print_readable() writes");
      }
      return;
    }
    add_op(node, word, results);
  }

  static bool is_void(std::string_view word) { return word == "barrier" || word.starts_with("record_stream"); }

  /// Items of items, too, with a shape.
  std::vector<std::uint32_t> items_of(std::uint32_t n) const {
    std::vector<std::uint32_t> found;
    const auto place = items_.find(n);
    if (place == items_.end()) return found;
    for (const std::uint32_t item : place->second) {
      if ((*nodes_)[item].type) found.push_back(item);
      if (!(*nodes_)[item].type) std::ranges::copy(items_of(item), std::back_inserter(found));
    }
    return found;
  }

  /// The op of the forward that a partitioner has written into the backward, too.
  bool joined(std::uint32_t n, const FxNode& node) {
    if (!is_second_) {
      written_[node.name] = node.written;
      return false;
    }
    const auto known = written_.find(node.name);
    if (known == written_.end() || known->second != node.written) return false;
    std::vector<std::uint32_t> results = node.type ? std::vector{n} : items_of(n);
    for (const std::uint32_t result : results) {
      if (!by_name_.contains((*nodes_)[result].name)) return false;
    }
    for (const std::uint32_t result : results) values_[result] = by_name_.at((*nodes_)[result].name);
    if (!is_aten_view(op_word(node.target))) ++joined_;
    return true;
  }

  void add_op(const FxNode& node, std::string_view word, const std::vector<std::uint32_t>& results) {
    Op op{.name = fmt::format("{}{}", is_second_ ? "backward." : "", node.name),
          .kind = std::string(word),
          .phase = phase_};
    std::vector<std::pair<TensorId, const FxNode*>> read;
    for_nodes(node.arguments, [&](std::uint32_t a) {
      if (!values_[a]) return;
      const TensorId t = *values_[a];
      if (std::ranges::find(op.inputs, t) != op.inputs.end()) return;
      op.inputs.push_back(t);
      read.emplace_back(t, &(*nodes_)[a]);
    });
    const bool is_view = is_aten_view(word) && !op.inputs.empty();
    const bool in_place = word.ends_with('_') && !word.ends_with("__") && !op.inputs.empty();
    const TensorKind kind = is_backward(phase_) ? TensorKind::gradient : TensorKind::activation;
    for (const std::uint32_t result : results) {
      const FxNode& made = (*nodes_)[result];
      std::optional<StorageId> storage;
      if (is_view || in_place) storage = made_[op.inputs[0]].storage;
      op.outputs.push_back(add_tensor(std::string(made.name), kind, made, storage));
      set(result, made, op.outputs.back());
    }
    if (in_place) overwrite(op);
    if (!is_view && reads_no_numbers(word)) op.inputs.clear(), read.clear();
    work(op, node, word, is_view, read);
    made_.ops.push_back(std::move(op));
  }

  /// Who reads the old value later reads the new one.
  void overwrite(Op& op) {
    const TensorId old = op.inputs[0];
    op.mutates = {old};
    std::ranges::replace(values_, std::optional(old), std::optional(op.outputs[0]));
    for (auto& [name, tensor] : by_name_) {
      if (tensor == old) tensor = op.outputs[0];
    }
  }

  std::int64_t traffic(TensorId t) const {
    const Tensor& tensor = made_[t];
    return std::min(element_count(tensor.shape) * element_bytes(tensor.dtype).value_or(1), tensor.bytes.count);
  }

  void work(Op& op, const FxNode& node, std::string_view word, bool is_view,
            const std::vector<std::pair<TensorId, const FxNode*>>& read) {
    op.flops = Flops{0};
    op.bytes_moved = Bytes{};
    if (is_view) return;
    std::int64_t written = 0;
    std::vector<std::int64_t> bytes;
    for (const TensorId t : op.outputs) written += traffic(t);
    for (const auto& [t, node_read] : read) bytes.push_back(traffic(t));
    if (word.starts_with("empty") || word.starts_with("new_empty")) written = 0;
    op.bytes_moved = Bytes{aten_traffic(word, bytes, written)};
    op.flops = flops_of(op, node, word);
    if (name_space(node.target) == "_c10d_functional") ++collectives_;
  }

  Flops flops_of(const Op& op, const FxNode& node, std::string_view word) {
    std::vector<AtenShape> shapes(node.arguments.size());
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      const FxArgument& argument = node.arguments[k];
      if (argument.kind == FxArgument::Kind::node && values_[argument.node])
        shapes[k] = made_[*values_[argument.node]].shape;
    }
    AtenCall call{.op = word, .arguments = shapes, .result = made_[op.outputs[0]].shape};
    const bool is_backward_convolution = word == "convolution_backward";
    const std::size_t transposed = is_backward_convolution ? 7 : 6;
    if (word.find("convolution") != std::string_view::npos && node.arguments.size() > transposed) {
      call.transposed = node.arguments[transposed].truth;
    }
    if (is_backward_convolution && node.arguments.size() > 10) {
      call.gradients = 0;
      for (std::size_t k = 0; k < std::min<std::size_t>(2, node.arguments[10].items.size()); ++k) {
        call.gradients += node.arguments[10].items[k].truth ? 1 : 0;
      }
    }
    const std::optional<Flops> flops = aten_flops(call);
    if (!flops) refuse(node.offset, node.name, fmt::format("no rule for the flops of '{}'", node.target));
    if (flops->count > 0) flops_by_dtype_[made_[op.outputs[0]].dtype] += flops->count;
    return *flops;
  }

  // --- afterwards

  void mark_gradients() {
    std::set<TensorId> taken;
    for (const auto& [primal, result] : gradients_) {
      const FxNode& parameter = forward_->nodes[primal];
      const auto owner = by_name_.find(parameter.name);
      if (!values_[result] || owner == by_name_.end()) {
        complain((*nodes_)[result].offset, "return", fmt::format("no such gradient of '{}'", parameter.name));
        continue;
      }
      TensorId gradient = *values_[result];
      const bool is_own = made_[gradient].kind == TensorKind::gradient &&
                          (*nodes_)[result].kind != FxNode::Kind::given && taken.insert(gradient).second;
      if (!is_own) gradient = copied(gradient, parameter);
      Tensor& tensor = made_.tensors[gradient.index];
      tensor.kind = TensorKind::parameter_gradient;
      tensor.gradient_of = owner->second;
    }
  }

  /// Autograd gives each parameter a gradient of its own.
  TensorId copied(TensorId of, const FxNode& parameter) {
    const TensorId made = add_tensor(fmt::format("gradient of {}", parameter.name), TensorKind::gradient, parameter);
    made_.ops.push_back({.name = fmt::format("gradient of {}", parameter.name),
                         .kind = "clone",
                         .phase = Phase::backward,
                         .flops = Flops{0},
                         .bytes_moved = Bytes{traffic(of) + traffic(made)},
                         .inputs = {of},
                         .outputs = {made}});
    return made;
  }

  void write_source() {
    auto& notes = made_.source.notes;
    const auto most = std::ranges::max_element(flops_by_dtype_, {}, [](const auto& each) { return each.second; });
    const std::string dtype = most == flops_by_dtype_.end() ? "float32" : most->first;
    made_.source.dtype = dtype == "bfloat16" ? "bf16" : dtype == "float16" ? "fp16" : "fp32";
    notes.emplace_back("imported_from", backward_ != nullptr ? "printed forward and backward graph of AOTAutograd"
                                                             : "printed joint graph of AOTAutograd");
    notes.emplace_back("flops", "2 per multiply-add of products, convolutions and attention, all else 0");
    notes.emplace_back("bytes", "distinct tensors that each op reads and writes; views move nothing");
    notes.emplace_back("given",
                       fmt::format("values with a gradient are parameters, {} others are taken as frozen ones; "
                                   "integers, and floats with the first extent of integers, are the batch's",
                                   frozen_));
    notes.emplace_back("left_out", "times and workspaces, which the text does not have");
    if (joined_ > 0)
      notes.emplace_back("joined", fmt::format("{} ops that the backward repeats are the forward's", joined_));
    if (collectives_ > 0) {
      notes.emplace_back("collectives",
                         fmt::format("{} collectives count as memory traffic of one rank only", collectives_));
    }
  }

  std::string_view text_;
  Complaints& complaints_;
  Graph made_;
  double sum_ = 0;               // of all numbers
  std::vector<Bytes> bytes_of_;  // by storage
  const FxGraph *forward_ = nullptr, *backward_ = nullptr;
  std::set<std::uint32_t> trained_;                                 // nodes of the forward
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gradients_;  // of which given value which node is the gradient
  bool is_second_ = false;
  Phase phase_ = Phase::forward;
  const std::vector<FxNode>* nodes_ = nullptr;
  std::vector<std::optional<TensorId>> values_;                          // by node of the present graph
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> items_;  // by node
  std::unordered_map<std::string_view, TensorId> by_name_;               // of the forward
  std::unordered_map<std::string_view, std::string_view> written_;       // calls of the forward
  std::map<std::string, double> flops_by_dtype_;
  std::size_t joined_ = 0, frozen_ = 0, collectives_ = 0;
};

}  // namespace

Graph parse_fx_graph(const std::string& text, const std::string& file_name, ImportNumbers& numbers) {
  Complaints complaints(file_name, text);
  const std::vector<FxGraph> graphs = parse_fx_text(text, complaints, numbers);
  Graph graph = FxLowering(text, complaints).graph(graphs, std::filesystem::path(file_name).stem().string());
  return checked(std::move(graph), file_name);
}

Graph read_fx(const std::filesystem::path& path, ImportNumbers& numbers) {
  const std::string text = read_text_file(path);
  constexpr std::string_view list_columns = "name,kind,inputs,";
  return text.starts_with(list_columns) ? parse_fx_list(text, path.string(), numbers)
                                        : parse_fx_graph(text, path.string(), numbers);
}

}  // namespace plimsoll
