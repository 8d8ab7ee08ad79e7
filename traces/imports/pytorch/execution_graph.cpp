// An op of the graph is an operator that computes. With kernels (a linked file) it is the innermost one around them;
// without, one that makes or overwrites a tensor that none of the operators below it makes. Values are followed by
// their storage: its number holds from the operator that makes a new tensor in it to the next that does.

#include "traces/imports/pytorch/execution_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/execution_step.h"
#include "traces/imports/pytorch/execution_trace.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

bool is_collective(const ExecutionNode& node) {
  return node.name.starts_with("c10d::") || node.name.starts_with("_c10d_functional::");
}

/// Which arguments the operator writes: `Tensor(a!) self` in its schema, else by its name.
std::set<std::uint32_t> written_arguments(const ExecutionNode& node, std::string_view word) {
  std::set<std::uint32_t> made;
  const std::string_view schema = node.schema;
  std::uint32_t argument = 0;
  int depth = 0;
  for (std::size_t at = schema.find('('); at != std::string_view::npos && at < schema.size(); ++at) {
    const char c = schema[at];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (depth == 0) break;
    if (c == ',' && depth == 1) ++argument;
    if (c == '*' && depth == 1) --argument;  // `*, ` is none
    if (c == '!') made.insert(argument);
  }
  if (made.empty() && word.ends_with('_') && !word.ends_with("__")) made.insert(0);
  return made;
}

/// Changes what a tensor is, not what its storage holds.
bool changes_no_numbers(std::string_view word) {
  const bool in_place = word.ends_with('_');
  const std::string_view base = in_place ? word.substr(0, word.size() - 1) : word;
  return in_place && (is_aten_view(base) || base == "resize" || base == "set" || base == "requires_grad" ||
                      base == "resize_as" || base == "rename");
}

bool is_allocation(std::string_view word) {
  return word.starts_with("empty") || word.starts_with("new_empty");
}

/// Of an argument it needs only what it is like, so that operators below do not read it.
bool takes_only_likeness(std::string_view word) {
  return reads_no_numbers(word) || word == "type_as";
}

bool overwrites_all(std::string_view word) {
  return word == "copy_" || word == "zero_" || word == "fill_";
}

/// What operators below one have done.
struct DoneBelow {
  std::vector<std::int64_t> read, written;
  std::vector<std::pair<std::int64_t, Bytes>> allocated;
};

bool has(const std::vector<std::int64_t>& storages, std::int64_t storage) {
  return std::ranges::find(storages, storage) != storages.end();
}

class ExecutionLowering {
 public:
  ExecutionLowering(const ExecutionTrace& trace, std::string file) : trace_(trace), file_(std::move(file)) {}

  Graph graph(ImportNumbers& numbers) && {
    step_ = execution_step(trace_, file_, numbers);
    find_sequences();
    find_named();
    for (const std::uint32_t n : step_.order) visit(n);
    if (made().ops.empty() && updates_ == 0) refuse(0, "no operators that compute on a device's tensors");
    name_given();
    add_update();
    mark_saved(made());
    write_source();
    return std::move(draft_.graph);
  }

 private:
  struct Held {
    std::optional<TensorId> value = {};  ///< unset: allocated, and no_node has written
    bool is_given = false;
    const ExecutionTensor* allocated = nullptr;
  };

  Graph& made() { return draft_.graph; }
  const ExecutionNode& node(std::uint32_t n) const { return trace_.nodes[n]; }

  [[noreturn]] void refuse(std::uint32_t n, std::string_view what) const {
    const std::string key = n < trace_.nodes.size() ? fmt::format("nodes[{}]", node(n).position) : "nodes";
    throw InputError(located(file_, {}, key, what));
  }

  /// Forward operators by the number that autograd gave them.
  void find_sequences() {
    for (std::uint32_t n = step_.begin; n < step_.end; ++n) {
      if (!step_.ranges[n].in_backward && node(n).sequence >= 0 && !operator_word(node(n)).empty()) {
        forwards_[node(n).sequence].push_back(n);
      }
    }
  }

  /// What is there before the step: of each storage the tensor that the first operator names, and how far what is
  /// written into it reaches, until the storage's number stands for another.
  void find_named() {
    std::set<std::int64_t> is_made;
    for (std::uint32_t n = step_.begin; n < step_.end; ++n) {
      const std::string_view word = operator_word(node(n));
      if (word.empty()) continue;
      std::vector<std::int64_t> of_inputs;
      const std::set<std::uint32_t> arguments = written_arguments(node(n), word);
      for (const ExecutionTensor& tensor : node(n).inputs) {
        if (!is_on_device(tensor)) continue;
        of_inputs.push_back(tensor.storage);
        if (is_made.contains(tensor.storage)) continue;
        named_.try_emplace(tensor.storage, &tensor);
        std::int64_t& extent = extents_[tensor.storage];
        if (arguments.contains(tensor.argument)) extent = std::max(extent, tensor.offset + tensor.count);
      }
      for (const ExecutionTensor& tensor : node(n).outputs) {
        if (is_on_device(tensor) && !has(of_inputs, tensor.storage)) is_made.insert(tensor.storage);
      }
    }
  }

  // --- operators

  bool is_on_device(const ExecutionTensor& tensor) const {
    return tensor.storage != 0 && tensor.count > 0 && tensor.device == step_.device;
  }

  void visit(std::uint32_t n) {
    const ExecutionNode& each = node(n);
    if (each.name == accumulate_range) return accumulate(n);
    if (each.scope == 1 && each.sequence >= 0) sequence_ = each.sequence;
    const std::string_view word = operator_word(each);
    DoneBelow done = std::move(below_[n]);
    below_.erase(n);
    if (!word.empty()) run(n, word, done);
    const std::uint32_t parent = step_.parents[n];
    if (parent == no_node || !asks(parent)) return;
    DoneBelow& of = below_[parent];
    of.read.insert(of.read.end(), done.read.begin(), done.read.end());
    of.written.insert(of.written.end(), done.written.begin(), done.written.end());
    of.allocated.insert(of.allocated.end(), done.allocated.begin(), done.allocated.end());
  }

  /// Whether somebody around wants to know what is done within.
  bool asks(std::uint32_t n) const {
    for (; n != no_node; n = step_.parents[n]) {
      if (!operator_word(node(n)).empty() || node(n).name == accumulate_range) return true;
    }
    return false;
  }

  void run(std::uint32_t n, std::string_view word, DoneBelow& done) {
    const ExecutionNode& each = node(n);
    if (is_allocation(word) || changes_no_numbers(word)) return allocate(each, done);
    const std::set<std::uint32_t> arguments = written_arguments(each, word);
    std::vector<const ExecutionTensor*> read, written;
    std::vector<std::int64_t> of_inputs;
    for (const ExecutionTensor& tensor : each.inputs) {
      if (!is_on_device(tensor)) continue;
      of_inputs.push_back(tensor.storage);
      const bool is_written = arguments.contains(tensor.argument);
      if (is_written) written.push_back(&tensor);
      const bool is_result = is_written && (overwrites_all(word) || each.schema.find("!) out") != std::string::npos);
      if (!is_result) read.push_back(&tensor);
    }
    for (const ExecutionTensor& tensor : each.outputs) {
      if (is_on_device(tensor) && !has(of_inputs, tensor.storage)) written.push_back(&tensor);
    }
    if (written.empty()) return;
    const auto is_done = [&](const ExecutionTensor* t) { return has(done.written, t->storage); };
    const auto is_seen = [&](std::int64_t s) { return has(done.read, s) || has(done.written, s); };
    const bool by_others =
        std::ranges::all_of(written, is_done) && (takes_only_likeness(word) || std::ranges::all_of(of_inputs, is_seen));
    if (by_others && step_.kernels[n].count == 0) return;
    for (const ExecutionTensor* tensor : written) {
      const auto is_own = [&](const auto& each_of) { return each_of.first == tensor->storage; };
      const bool is_known =
          has(of_inputs, tensor->storage) || is_done(tensor) || std::ranges::any_of(done.allocated, is_own);
      if (is_known) continue;
      held_.erase(tensor->storage);  // what it held before has ended, and its number stands for another storage
      extents_.erase(tensor->storage);
    }
    for (const std::int64_t storage : of_inputs) done.read.push_back(storage);
    for (const ExecutionTensor* tensor : written) done.written.push_back(tensor->storage);
    emit(n, word, read, written, done);
  }

  /// Of a new storage, which `resize_` gives, too.
  void allocate(const ExecutionNode& each, DoneBelow& done) {
    for (const ExecutionTensor& tensor : each.outputs) {
      const auto is_same = [&](const ExecutionTensor& t) { return t.storage == tensor.storage; };
      if (!is_on_device(tensor) || std::ranges::any_of(each.inputs, is_same)) continue;
      held_[tensor.storage] = {.allocated = &tensor};
      done.allocated.emplace_back(tensor.storage, Bytes{bytes_of(tensor)});
    }
  }

  void emit(std::uint32_t n, std::string_view word, const std::vector<const ExecutionTensor*>& read,
            const std::vector<const ExecutionTensor*>& written, DoneBelow& done) {
    if (step_.ranges[n].in_update) return update(n, word, read, written);
    backward_began_ = backward_began_ || step_.ranges[n].in_backward;
    if (has_stepped_) {
      if (step_.ranges[n].in_backward) {
        refuse(n, "a backward after Optimizer.step, expected one step: profiler.step() marks them");
      }
      ++after_update_;
      return;
    }
    const ExecutionNode& each = node(n);
    Op op{.name = fmt::format("{}.{}", word.substr(0, 60), made().ops.size()),
          .kind = std::string(word),
          .phase = backward_began_ ? Phase::backward : Phase::forward};
    const bool adds = step_.ranges[n].accumulates != no_node && word == "add_";
    std::vector<std::int64_t> bytes;
    for (const ExecutionTensor* tensor : read) {
      if (adds && tensor->argument == 0) continue;
      const std::optional<TensorId> t = value_of(*tensor);
      if (!t || std::ranges::find(op.inputs, *t) != op.inputs.end()) continue;
      op.inputs.push_back(*t);
      bytes.push_back(std::min(bytes_of(*tensor), made()[*t].bytes.count));
    }
    std::int64_t moved = 0;
    for (const ExecutionTensor* tensor : written) {
      moved += bytes_of(*tensor);
      if (adds && tensor->argument == 0) {
        add_existing(*tensor, op);
      } else {
        write(*tensor, word, op);
      }
    }
    op.bytes_moved = Bytes{aten_traffic(word, bytes, moved)};
    op.flops = flops_of(n, word, written);
    const LaunchedKernels& launched = step_.kernels[n];
    if (step_.is_linked) {
      op.duration = launched.time;
      op.kernels = launched.count;
      op.attributes.emplace_back("stream", std::to_string(launched.stream));
    }
    for (const auto& [storage, size] : done.allocated) {
      const auto is_result = [s = storage](const ExecutionTensor& t) { return t.storage == s; };
      if (std::ranges::none_of(each.outputs, is_result)) op.workspace += size;
    }
    done.allocated.clear();
    if (is_collective(each)) ++collectives_;
    made().ops.push_back(std::move(op));
  }

  static std::int64_t bytes_of(const ExecutionTensor& tensor) {
    return tensor.count * element_bytes(tensor.dtype).value_or(1);
  }

  TensorId add_tensor(const ExecutionTensor& like, TensorKind kind, std::string name,
                      std::optional<StorageId> storage = {}) {
    return draft_.tensor(std::move(name), kind, {like.shape, like.dtype}, storage);
  }

  /// What the storage holds; what no_node has made is given.
  std::optional<TensorId> value_of(const ExecutionTensor& tensor) {
    const auto [place, is_new] = held_.try_emplace(tensor.storage);
    if (!is_new) return place->second.value;
    const auto first = named_.find(tensor.storage);
    // What is read first is the tensor itself; later it may be expanded.
    const TensorId t = add_tensor(first != named_.end() ? *first->second : tensor, TensorKind::input,
                                  fmt::format("given {}", given_.size()));
    given_.push_back(t);
    place->second = {.value = t, .is_given = true};
    return t;
  }

  void write(const ExecutionTensor& tensor, std::string_view word, Op& op) {
    const bool is_new = !held_.contains(tensor.storage);
    const Held old = is_new ? Held{} : held_[tensor.storage];
    const TensorKind kind = is_backward(op.phase) ? TensorKind::gradient : TensorKind::activation;
    const std::string name = fmt::format("{}:{}", op.name, op.outputs.size());
    const auto is_made_now = [&](TensorId t) { return std::ranges::find(op.outputs, t) != op.outputs.end(); };
    if (old.value && is_made_now(*old.value)) return;  // several views of one storage
    const bool is_gradient = old.value && made()[*old.value].kind == TensorKind::parameter_gradient;
    if (is_gradient) {  // scaled or clipped: it stays the parameter's
      if (std::ranges::find(op.inputs, *old.value) == op.inputs.end()) op.inputs.push_back(*old.value);
      return;
    }
    const bool is_whole = overwrites_all(word) && old.value && bytes_of(tensor) >= made()[*old.value].bytes.count;
    const bool in_place = old.value && !old.is_given && !is_whole;
    if (!in_place) {
      if (old.is_given) ++overwritten_;
      const TensorId t = add_tensor(whole_of(tensor, old), kind, name);
      held_[tensor.storage] = {.value = t};
      op.outputs.push_back(t);
      return;
    }
    if (std::ranges::find(op.inputs, *old.value) == op.inputs.end()) op.inputs.push_back(*old.value);
    op.mutates.push_back(*old.value);
    const Tensor& before = made()[*old.value];
    const RecordedOperand like{before.shape, before.dtype};
    const TensorId t = draft_.tensor(name, kind, like, before.storage);
    made().tensors[t.index].bytes = made()[*old.value].bytes;
    held_[tensor.storage] = {.value = t};
    op.outputs.push_back(t);
  }

  /// All that the storage of a new value takes, where the op writes only a part of it.
  ExecutionTensor whole_of(const ExecutionTensor& tensor, const Held& old) const {
    ExecutionTensor made = tensor;
    std::int64_t numbers = tensor.count;
    if (old.allocated != nullptr) {
      numbers = std::max(numbers, bytes_of(*old.allocated) / element_bytes(tensor.dtype).value_or(1));
    } else if (const auto extent = extents_.find(tensor.storage);
               (old.is_given || !held_.contains(tensor.storage)) && extent != extents_.end()) {
      numbers = std::max(numbers, extent->second);
    }
    if (numbers > tensor.count) made.shape = {numbers};
    return made;
  }

  std::optional<Flops> flops_of(std::uint32_t n, std::string_view word,
                                const std::vector<const ExecutionTensor*>& written) {
    std::vector<AtenShape> shapes;
    for (const ExecutionTensor& tensor : node(n).inputs) {
      if (tensor.storage == 0) continue;
      if (tensor.argument >= shapes.size()) shapes.resize(tensor.argument + 1);
      if (shapes[tensor.argument].empty()) shapes[tensor.argument] = tensor.shape;
    }
    AtenCall call{.op = word, .arguments = shapes, .result = written[0]->shape};
    const std::string& arguments = node(n).arguments;
    const bool is_backward_convolution = word == "convolution_backward";
    if (is_backward_convolution || word == "convolution" || word == "_convolution") {
      call.transposed = execution_argument(arguments, is_backward_convolution ? 7 : 6) == "true";
    }
    if (is_backward_convolution) {
      const std::string_view mask = execution_argument(arguments, 10);
      call.gradients = (mask.starts_with("[true") ? 1 : 0) + (mask.find(",true,") != std::string_view::npos ? 1 : 0);
    }
    const std::optional<Flops> flops = aten_flops(call);
    if (!flops && !step_.is_linked) refuse(n, fmt::format("no rule for the flops of '{}'", node(n).name));
    if (flops && flops->count > 0) flops_by_dtype_[written[0]->dtype] += flops->count;
    return flops;
  }

  // --- parameters

  /// What the forward operator of the last backward node has read, of the gradient's shape.
  std::optional<TensorId> owner_of(const ExecutionTensor& gradient) const {
    const auto fits = [&](TensorId t, const AtenShape& shape) {
      const Tensor& tensor = draft_.graph[t];
      return shape == gradient.shape && tensor.dtype == gradient.dtype && !draft_.is_owned(t);
    };
    if (const auto own = forwards_.find(sequence_); own != forwards_.end()) {
      for (auto n = own->second.rbegin(); n != own->second.rend(); ++n) {
        for (const ExecutionTensor& tensor : node(*n).inputs) {
          const auto held = held_.find(tensor.storage);
          if (held == held_.end() || !held->second.is_given || !held->second.value) continue;
          if (fits(*held->second.value, tensor.shape)) return held->second.value;
        }
      }
    }
    for (auto t = given_.rbegin(); t != given_.rend(); ++t) {
      if (fits(*t, draft_.graph[*t].shape)) return *t;
    }
    return std::nullopt;
  }

  /// `.grad` is there already: the op adds to it.
  void add_existing(const ExecutionTensor& tensor, Op& op) {
    const TensorId t = add_tensor(tensor, TensorKind::gradient, fmt::format("{}:grad", op.name));
    op.outputs.push_back(t);
    held_[tensor.storage] = {.value = t};
    ++existing_;
  }

  /// Comes after what it runs: its gradient is what that has made, or what it was called with.
  void accumulate(std::uint32_t n) {
    const DoneBelow done = std::move(below_[n]);
    below_.erase(n);
    ++accumulated_;
    const auto& inputs = node(n).inputs;
    if (inputs.empty() || !is_on_device(inputs[0])) return;
    const auto held = held_.find(done.written.empty() ? inputs[0].storage : done.written.back());
    if (held == held_.end() || !held->second.value || held->second.is_given) return;
    const std::optional<TensorId> owner = owner_of(inputs[0]);
    if (!owner) return;
    TensorId gradient = *held->second.value;
    const Tensor& tensor = made()[gradient];
    if (tensor.kind != TensorKind::gradient || tensor.bytes.count != bytes_of(inputs[0])) {
      gradient = copied(gradient, inputs[0]);
      held->second.value = gradient;
    }
    draft_.own(gradient, *owner);
    made().tensors[gradient.index].shape = made()[*owner].shape;
  }

  /// A gradient of the parameter's own where the value is another's too.
  TensorId copied(TensorId of, const ExecutionTensor& like) {
    const std::string name = fmt::format("gradient.{}", made().ops.size());
    const TensorId t = add_tensor(like, TensorKind::gradient, name);
    Op op{.name = name, .kind = "clone", .phase = Phase::backward};
    op.flops = Flops{0};
    op.bytes_moved = Bytes{2 * bytes_of(like)};
    if (step_.is_linked) op.duration = Seconds{0};
    op.inputs = {of};
    op.outputs = {t};
    made().ops.push_back(std::move(op));
    return t;
  }

  // --- the optimizer

  void update(std::uint32_t n, std::string_view word, const std::vector<const ExecutionTensor*>& read,
              const std::vector<const ExecutionTensor*>& written) {
    ++updates_;
    if (!word.starts_with("zero_") && !word.starts_with("fill_") && !word.starts_with("_foreach_zero")) {
      has_stepped_ = true;
    }
    std::vector<std::int64_t> bytes;
    std::int64_t moved = 0;
    for (const ExecutionTensor* tensor : read) bytes.push_back(bytes_of(*tensor));
    for (const ExecutionTensor* tensor : written) moved += bytes_of(*tensor);
    update_bytes_ += aten_traffic(word, bytes, moved);
    if (step_.is_linked) {
      update_time_ += step_.kernels[n].time;
      update_kernels_ += step_.kernels[n].count;
    }
    if (!has_stepped_) return;
    for (const ExecutionTensor* tensor : written) {
      if (!has_read(n, tensor->storage)) temporary_.insert(tensor->storage);
      if (held_.contains(tensor->storage) || temporary_.contains(tensor->storage)) continue;
      states_.push_back(*value_of(*tensor));
      made().tensors[states_.back().index].kind = TensorKind::optimizer_state;
    }
  }

  bool has_read(std::uint32_t n, std::int64_t storage) const {
    return std::ranges::any_of(node(n).inputs, [&](const ExecutionTensor& t) { return t.storage == storage; });
  }

  void add_update() {
    if (updates_ == 0) return;
    Op op;
    op.bytes_moved = Bytes{update_bytes_};
    op.flops = Flops{0};
    op.kernels = step_.is_linked ? update_kernels_ : static_cast<double>(updates_);
    if (step_.is_linked) op.duration = update_time_;
    draft_.add_update(std::move(op), states_);
  }

  /// Integers are the batch's, and so are floats with the first extent of integers. Without integers it is the first
  /// float of several dimensions that has the batch's extent.
  void name_given() {
    const auto is_float = [](const Tensor& t) { return t.dtype.find("float") != std::string::npos; };
    std::set<std::int64_t> extents;
    for (const TensorId t : given_) {
      const Tensor& tensor = made()[t];
      if (!is_float(tensor) && element_count(tensor.shape) > 1) extents.insert(tensor.shape[0]);
    }
    for (const TensorId t : given_) {
      if (extents.empty() && is_free(t) && made()[t].shape.size() > 1) extents.insert(made()[t].shape[0]);
    }
    std::size_t inputs = 0, parameters = 0;
    for (const TensorId t : given_) {
      Tensor& tensor = made().tensors[t.index];
      if (tensor.kind == TensorKind::optimizer_state) {
        tensor.name = fmt::format("state of {}", tensor.name);
        continue;
      }
      const bool of_batch = !is_float(tensor) || (tensor.shape.size() > 1 && extents.contains(tensor.shape[0]));
      const bool is_input = is_free(t) && of_batch;
      tensor.kind = is_input ? TensorKind::input : TensorKind::parameter;
      tensor.name = is_input ? fmt::format("input {}", inputs++) : fmt::format("parameter {}", parameters++);
      if (!is_input && is_free(t)) ++frozen_;
    }
  }

  /// Given, neither a parameter with a gradient nor the optimizer's.
  bool is_free(TensorId t) const { return !draft_.is_owned(t) && draft_.graph[t].kind != TensorKind::optimizer_state; }

  void write_source() {
    Source& source = made().source;
    const auto most = std::ranges::max_element(flops_by_dtype_, {}, [](const auto& each) { return each.second; });
    const std::string dtype = most == flops_by_dtype_.end() ? "float32" : most->first;
    source.dtype = dtype == "bfloat16" ? "bf16" : dtype == "float16" ? "fp16" : "fp32";
    if (step_.is_linked) source.kind = Source::Kind::measured;
    if (step_.is_linked) source.device = "unknown, of a recording";
    auto& notes = source.notes;
    notes.emplace_back("imported_from", fmt::format("an execution trace of PyTorch (schema {})", trace_.schema));
    notes.emplace_back("step", step_.number < 0 ? "the whole file" : std::to_string(step_.number));
    notes.emplace_back("tensors_on", step_.device);
    for (const auto& [stream, of] : step_.streams) {
      notes.emplace_back(fmt::format("stream_{}", stream),
                         fmt::format("{} kernels, copies and memsets, {:.9f} s", of.count, of.time.value));
    }
    notes.emplace_back("ops", step_.is_linked ? "the innermost operators around the kernels"
                                              : "operators that make or overwrite what none below them makes; without "
                                                "times in the file, flops and bytes by shapes");
    notes.emplace_back("given",
                       fmt::format("tensors with a gradient are parameters, {} others are taken as frozen ones; "
                                   "integers, and floats with the first extent of integers, are the batch's",
                                   frozen_));
    notes.emplace_back("gradients",
                       fmt::format("{} of {} accumulated gradients found a parameter; {} were there before",
                                   draft_.owned(), accumulated_, existing_));
    std::string left_out = "idle time: ops run one after the other, views and what runs on the host alone take none";
    if (overwritten_ > 0) {
      left_out +=
          fmt::format("; {} results written over what was there before the step are there from then on", overwritten_);
    }
    if (after_update_ > 0) left_out += fmt::format("; {} ops after the optimizer's step", after_update_);
    if (step_.unlaunched > 0) left_out += fmt::format("; {} kernels of no operator", step_.unlaunched);
    if (collectives_ > 0 || step_.exchanges > 0) {
      left_out += fmt::format("; this is one rank of several: {}",
                              step_.is_linked ? "what others wait for is in the times of its collectives"
                                              : "its collectives count as memory traffic of one rank only");
    }
    notes.emplace_back("left_out", std::move(left_out));
  }

  const ExecutionTrace& trace_;
  std::string file_;
  RecordedDraft draft_;
  ExecutionStep step_;
  std::unordered_map<std::int64_t, std::vector<std::uint32_t>> forwards_;
  std::unordered_map<std::uint32_t, DoneBelow> below_;
  std::unordered_map<std::int64_t, Held> held_;  // by storage
  std::unordered_map<std::int64_t, const ExecutionTensor*> named_;
  std::unordered_map<std::int64_t, std::int64_t> extents_;  // of what is there before the step, in elements
  std::set<std::int64_t> temporary_;                        // storages that the optimizer makes
  std::vector<TensorId> given_, states_;
  std::map<std::string, double> flops_by_dtype_;
  std::int64_t sequence_ = -1, update_bytes_ = 0;
  Seconds update_time_{};
  double update_kernels_ = 0;
  bool backward_began_ = false, has_stepped_ = false;
  std::size_t updates_ = 0, accumulated_ = 0, existing_ = 0, overwritten_ = 0, after_update_ = 0, collectives_ = 0,
              frozen_ = 0;
};

}  // namespace

Graph parse_execution_graph(std::string text, const std::string& file_name, ImportNumbers& numbers) {
  const ExecutionTrace trace = parse_execution_trace(std::move(text), file_name);
  Graph graph = ExecutionLowering(trace, file_name).graph(numbers);
  std::filesystem::path name = file_name;
  if (name.extension() == ".gz") name = name.stem();
  graph.name = name.stem().string();
  return checked(std::move(graph), file_name);
}

Graph read_execution_graph(const std::filesystem::path& path, ImportNumbers& numbers) {
  return parse_execution_graph(read_text_file(path), path.string(), numbers);
}

}  // namespace plimsoll
