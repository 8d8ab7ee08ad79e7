// An op of the graph is the innermost operator that launched kernels, with the time of all of them on a stream;
// operators without kernels are joined with what they call. The recording says which operator ran when, on which
// shapes, and which gradients were accumulated. It has no identities of tensors: a value that is read is the latest one
// made with as many numbers of the type, of the forward operator of the same sequence number first.

#include "experiments/recordings/recorded_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "experiments/recordings/recorded_memory.h"
#include "experiments/recordings/recorded_operands.h"
#include "experiments/recordings/recorded_step.h"
#include "sim/io/input_error.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

class RecordedIteration {
 public:
  RecordedIteration(const StepRecording& recording, std::vector<LaunchingOp> launched,
                    const std::optional<RecordedMemory>& memory)
      : recording_(recording), launched_(std::move(launched)), memory_(memory) {
    if (memory_) claims_.emplace(*memory_);
  }

  Graph graph(std::string name, StepWindow step) && {
    made_.name = std::move(name);
    made_.source.kind = Source::Kind::measured;
    made_.source.device = recording_.device.empty() ? "unknown, of a recording" : recording_.device;
    for (const LaunchingOp& op : launched_) {
      if (op.accumulates) {
        accumulate(op);
      } else if (op.in_update) {
        update_ += op.time;
        updates_.push_back(&op);
      } else {
        add(op);
      }
      if (!op.accumulates) count(op);
    }
    add_update();
    made_.source.dtype = dtype_of_products();
    if (memory_) keep_until_freed();
    mark_saved(made_);
    write_source(step);
    return std::move(made_);
  }

 private:
  using Key = std::pair<std::int64_t, std::string>;  ///< numbers and type

  static Key key_of(const RecordedOperand& operand) { return {element_count(operand.shape), operand.dtype}; }

  void count(const LaunchingOp& op) {
    auto& [kernels, time] = streams_[op.stream];
    kernels += op.kernels;
    time += op.time;
  }

  void add(const LaunchingOp& launched) {
    const Phase phase = launched.in_backward ? Phase::backward : Phase::forward;
    const HostOp* const host = launched.has_op ? &recording_.ops[launched.op] : nullptr;
    present_ = host;
    const std::string full = host != nullptr ? recording_.words[host->name] : recording_.words[launched.name];
    const std::string kind = full.starts_with("aten::") ? full.substr(6) : full;
    Op op{.name = fmt::format("{}.{}", kind.substr(0, 60), made_.ops.size()),
          .kind = host != nullptr ? kind : "",
          .phase = phase};
    op.duration = seconds(launched.time);
    op.kernels = launched.kernels;
    op.attributes.emplace_back("stream", std::to_string(launched.stream));
    RecordedCall call{.kind = kind};
    if (host != nullptr) call = call_of(*host, kind);
    if (host != nullptr && call.operands.empty()) ++shapeless_;
    find_dtypes(call);
    std::vector<TensorId> found;
    std::optional<TensorId> first;
    for (std::size_t k = 0; k < call.operands.size(); ++k) {
      if (call.operands[k].dtype.empty() || element_count(call.operands[k].shape) == 0) continue;
      if (is_compiled_kernel(kind) && k + 1 == written_operand(call)) continue;
      if (k == 0 && (kind == "copy_" || kind == "zero_" || kind == "fill_")) continue;  // overwritten as a whole
      const std::optional<TensorId> t = read(op, call, k, launched.sequence, found);
      if (!t) continue;
      found.push_back(*t);
      if (k == 0) first = t;
      if (std::ranges::find(op.inputs, *t) == op.inputs.end()) op.inputs.push_back(*t);
    }
    const std::optional<AtenShape> convolved = convolved_shape(call);
    if (convolved) op.kind = "convolution";  // by whatever library
    make(op, call, convolved, launched.sequence, first);
    if (claims_ && host != nullptr) add_rest(op);
    for (const TensorId t : op.inputs) read_.insert(t.index);
    made_.ops.push_back(std::move(op));
    dates_.push_back(launched.date);
  }

  /// In which most is multiplied.
  std::string dtype_of_products() const {
    const auto is_tf32 = [&](const DeviceSlice& work) {
      return recording_.words[work.name].find("tf32") != std::string::npos;
    };
    const auto most = std::ranges::max_element(flops_, {}, [](const auto& each) { return each.second; });
    if (most != flops_.end() && most->first == "bfloat16") return "bf16";
    if (most != flops_.end() && most->first == "float16") return "fp16";
    return std::ranges::any_of(recording_.work, is_tf32) ? "tf32" : "fp32";
  }

  RecordedCall call_of(const HostOp& host, const std::string& kind) const {
    return recorded_call(kind, {recording_.words[host.shapes], recording_.words[host.types],
                                recording_.words[host.strides], recording_.words[host.values]});
  }

  /// The number of its last tensor, from 1 on.
  static std::size_t written_operand(const RecordedCall& call) {
    std::size_t last = 0;
    for (std::size_t k = 0; k < call.operands.size(); ++k) {
      if (!call.operands[k].dtype.empty()) last = k + 1;
    }
    return last;
  }

  /// Of tensors in lists: that of the latest value with as many numbers, else of the operand before.
  void find_dtypes(RecordedCall& call) const {
    std::string before = "float32";
    for (RecordedOperand& operand : call.operands) {
      if (operand.dtype == unknown_dtype) {
        operand.dtype = dtype_of_latest(element_count(operand.shape)).value_or(before);
      }
      if (!operand.dtype.empty()) before = operand.dtype;
    }
  }

  std::optional<std::string> dtype_of_latest(std::int64_t numbers) const {
    std::optional<TensorId> latest;
    for (const auto* values : {&values_, &gradients_, &casts_}) {
      for (auto at = values->lower_bound({numbers, ""}); at != values->end() && at->first.first == numbers; ++at) {
        if (!at->second.empty() && (!latest || at->second.back().index > latest->index)) latest = at->second.back();
      }
    }
    return latest ? std::optional(made_[*latest].dtype) : std::nullopt;
  }

  /// The value that an operand is, by numbers and type.
  std::optional<TensorId> read(const Op& op, const RecordedCall& call, std::size_t k, std::int64_t sequence,
                               const std::vector<TensorId>& taken) {
    const Key key = key_of(call.operands[k]);
    const RecordedSpan span = k < call.spans.size() ? call.spans[k] : RecordedSpan{key.first, 0};
    const bool is_part = span.numbers != key.first;  // a view of what has other operands too
    const auto is_free = [&](TensorId t) {
      return (is_part || std::ranges::find(taken, t) == taken.end()) && !is_made_within(t) && is_there(t);
    };
    if (is_part) {
      if (const auto t = base_of(span, key.second, op.phase, is_free)) return t;
    }
    const auto latest = [&](const std::map<Key, std::vector<TensorId>>& values) -> std::optional<TensorId> {
      const auto place = values.find(key);
      if (place == values.end()) return std::nullopt;
      const auto back = std::find_if(place->second.rbegin(), place->second.rend(), is_free);
      return back == place->second.rend() ? std::nullopt : std::optional(*back);
    };
    if (op.phase == Phase::backward) {
      if (const auto own = saved_.find(sequence); sequence >= 0 && own != saved_.end()) {
        for (const TensorId t : own->second) {
          if (made_[t].dtype == key.second && element_count(made_[t].shape) == key.first && is_free(t) && k > 0)
            return t;
        }
      }
      if (const auto t = latest(gradients_)) return t;
      if (const auto t = latest(values_)) return t;
      ++unknown_;
      return std::nullopt;
    }
    if (is_parameter_place(call.kind, k)) {
      const auto cast = casts_.find(key);
      if (cast != casts_.end() && !cast->second.empty()) {
        const TensorId t = cast->second.front();
        cast->second.erase(cast->second.begin());
        return t;
      }
      return parameter(call.operands[k]);
    }
    if (const auto t = latest(values_)) return t;
    const bool of_batch = call.operands[k].dtype.find("float") == std::string::npos || inputs_ == 0;
    if (!of_batch) return parameter(call.operands[k]);
    ++inputs_;
    const TensorId t = draft_.tensor(fmt::format("input {}", inputs_), TensorKind::input, call.operands[k]);
    values_[key].push_back(t);
    return t;
  }

  /// By an operator that the present one has called, so that it cannot be an operand.
  bool is_made_within(TensorId t) const {
    const auto maker = maker_of_.find(t.index);
    if (present_ == nullptr || maker == maker_of_.end()) return false;
    return maker->second->thread == present_->thread && maker->second->start >= present_->start;
  }

  TensorId parameter(const RecordedOperand& like) {
    parameters_.push_back(draft_.tensor(fmt::format("parameter {}", parameters_.size()), TensorKind::parameter, like));
    return parameters_.back();
  }

  /// What it makes: by kind and shapes.
  void make(Op& op, const RecordedCall& call, const std::optional<AtenShape>& convolved, std::int64_t sequence,
            std::optional<TensorId> first) {
    const std::string_view kind = call.kind;
    const TensorKind made_kind = op.phase == Phase::backward ? TensorKind::gradient : TensorKind::activation;
    std::vector<RecordedOperand> results = results_of(call);
    if (convolved) results = {{*convolved, call.operands[0].dtype}};
    for (std::size_t k = 0; k < results.size(); ++k) {
      const std::optional<TensorId> old = renewed(op, kind, results[k], k == 0 ? first : std::nullopt);
      const std::optional<std::size_t> block = old ? std::nullopt : block_for(results, k);
      const std::optional<StorageId> storage = old ? std::optional(made_[*old].storage) : std::nullopt;
      op.outputs.push_back(draft_.tensor(fmt::format("{}:{}", op.name, k), made_kind, results[k], storage));
      if (block) block_of_[made_[op.outputs.back()].storage.index] = *block;
      const bool casts = kind == "copy_" && !op.inputs.empty() && made_[op.inputs[0]].kind == TensorKind::parameter;
      auto& values = op.phase == Phase::backward ? gradients_ : casts ? casts_ : values_;
      values[key_of(results[k])].push_back(op.outputs.back());
      if (present_ != nullptr) maker_of_.emplace(op.outputs.back().index, present_);
    }
    std::vector<AtenShape> shapes;
    for (const RecordedOperand& operand : call.operands) shapes.push_back(operand.shape);
    std::vector<std::int64_t> read;
    for (const TensorId t : op.inputs) read.push_back(made_[t].bytes.count);
    std::int64_t written = 0;
    for (const TensorId t : op.outputs) written += made_[t].bytes.count;
    op.bytes_moved = Bytes{aten_traffic(kind, read, written)};
    // The shapes of operands alone do not say that of a convolution's result.
    const bool is_template = is_compiled_kernel(kind) && kind.starts_with("triton_tem");  // products, perhaps
    const bool is_unknown =
        is_template || (kind.find("conv") != std::string_view::npos && !kind.ends_with("backward") && !convolved);
    if (!shapes.empty() && !is_unknown) {
      op.flops =
          aten_flops({.op = kind, .arguments = shapes, .result = results.empty() ? AtenShape{} : results[0].shape});
      if (op.flops) flops_[call.operands[0].dtype] += op.flops->count;
    }
    for (const TensorId old : op.mutates) {
      if (std::ranges::find(op.inputs, old) == op.inputs.end()) op.inputs.push_back(old);
      overwritten_.insert(old.index);
    }
    if (sequence >= 0 && op.phase == Phase::forward) {
      auto& saved = saved_[sequence];
      saved.insert(saved.end(), op.inputs.begin(), op.inputs.end());
      saved.insert(saved.end(), op.outputs.begin(), op.outputs.end());
    }
  }

  /// A value of the step that an op works on in place: by its name, or made by what it has called for just this.
  std::optional<TensorId> renewed(Op& op, std::string_view kind, const RecordedOperand& result,
                                  std::optional<TensorId> first) {
    const auto is_own = [&](TensorId t) {
      const bool is_value = op.phase == Phase::backward
                                ? made_[t].kind == TensorKind::gradient && !read_.contains(t.index)
                                : made_[t].kind == TensorKind::activation;
      return is_value && key_of({made_[t].shape, made_[t].dtype}) == key_of(result);
    };
    std::optional<TensorId> old;
    if (first && kind.ends_with('_') && is_own(*first)) old = first;
    if (!old && claims_ && present_ != nullptr) {
      const auto& values = op.phase == Phase::backward ? gradients_ : values_;
      const auto place = values.find(key_of(result));
      if (place != values.end() && !place->second.empty()) {
        const TensorId t = place->second.back();
        const auto block = block_of_.find(made_[t].storage.index);
        const bool outlives = block != block_of_.end() && memory_->blocks[block->second].freed > present_->end;
        const bool is_called = is_made_within(t) && maker_of_.at(t.index) != present_;
        if (outlives && is_called && is_own(t)) old = t;
      }
    }
    if (old) op.mutates.push_back(*old);
    return old;
  }

  BlockClaims::Range range() const { return {present_->thread, present_->start, present_->end}; }

  /// Of a result: one of its size, else the only one that is left, which then says the size.
  std::optional<std::size_t> block_for(std::vector<RecordedOperand>& results, std::size_t k) {
    if (!claims_ || present_ == nullptr) return std::nullopt;
    const std::int64_t each = element_bytes(results[k].dtype).value_or(1);
    if (const auto block = claims_->claim(range(), {element_count(results[k].shape) * each})) return block;
    return std::nullopt;
  }

  /// What else it has allocated: values that nobody is known to read so far, or workspace.
  void add_rest(Op& op) {
    std::vector<std::pair<Nanoseconds, std::int64_t>> changes;
    for (const std::size_t b : claims_->rest(range())) {
      const RecordedBlock& block = memory_->blocks[b];
      if (block.freed <= present_->end) {
        changes.emplace_back(block.allocated, block.bytes.count);
        changes.emplace_back(block.freed, -block.bytes.count);
        continue;
      }
      const TensorKind kind = op.phase == Phase::backward ? TensorKind::gradient : TensorKind::activation;
      const RecordedOperand like{{block.bytes.count}, "uint8"};
      op.outputs.push_back(draft_.tensor(fmt::format("{}:{}", op.name, op.outputs.size()), kind, like));
      block_of_[made_[op.outputs.back()].storage.index] = b;
    }
    std::ranges::sort(changes);
    std::int64_t now = 0;
    for (const auto& [date, change] : changes) {
      now += change;
      op.workspace = std::max(op.workspace, Bytes{now});
    }
  }

  /// Whether it has not been freed or overwritten.
  bool is_there(TensorId t) const {
    if (overwritten_.contains(t.index)) return false;
    const auto block = block_of_.find(made_[t].storage.index);
    return block == block_of_.end() || present_ == nullptr || memory_->blocks[block->second].freed > present_->start;
  }

  /// What a view lies in: the latest of the smallest that are large enough.
  std::optional<TensorId> base_of(RecordedSpan span, const std::string& dtype, Phase phase, const auto& is_free) const {
    const auto among = [&](const std::map<Key, std::vector<TensorId>>& values) -> std::optional<TensorId> {
      for (auto at = values.lower_bound({span.numbers, ""}); at != values.end(); ++at) {
        if (at->first.first > span.numbers + span.stride) break;
        if (at->first.second != dtype) continue;
        const auto back = std::find_if(at->second.rbegin(), at->second.rend(), is_free);
        if (back != at->second.rend()) return *back;
      }
      return std::nullopt;
    };
    if (phase == Phase::backward) {
      if (const auto t = among(gradients_)) return t;
    }
    return among(values_);
  }

  /// What the forward made and the backward's end freed was kept for the backward: if no op is known to read it there,
  /// the last before that which multiplies nothing does, so that no product has one operand too many.
  void keep_until_freed() {
    const auto is_of_backward = [](const Op& op) { return op.phase == Phase::backward; };
    const auto begin = static_cast<std::size_t>(std::ranges::find_if(made_.ops, is_of_backward) - made_.ops.begin());
    if (begin >= dates_.size()) return;
    std::vector<bool> is_read(made_.storages, false);
    for (std::size_t i = begin; i < dates_.size(); ++i) {
      for (const TensorId t : made_.ops[i].inputs) is_read[made_[t].storage.index] = true;
    }
    std::map<std::uint32_t, TensorId> last;  // by storage, of the forward
    for (std::size_t i = 0; i < begin; ++i) {
      for (const TensorId t : made_.ops[i].outputs) last.insert_or_assign(made_[t].storage.index, t);
    }
    for (const auto& [storage, t] : last) {
      const auto block = block_of_.find(storage);
      if (block == block_of_.end() || is_read[storage]) continue;
      const Nanoseconds freed = memory_->blocks[block->second].freed;
      if (freed == RecordedBlock::never || freed < dates_[begin]) continue;
      auto at = static_cast<std::size_t>(std::ranges::upper_bound(dates_, freed) - dates_.begin()) - 1;
      const auto multiplies = [&](const Op& op) { return op.flops && op.flops->count > 0; };
      while (at > begin && multiplies(made_.ops[at])) --at;
      made_.ops[at].inputs.push_back(t);
      ++kept_;
    }
  }

  /// Autograd adds the latest gradient of as many numbers to a parameter's.
  void accumulate(const LaunchingOp& launched) {
    ++accumulated_;
    const HostOp& host = recording_.ops[launched.op];
    const std::vector<RecordedOperand> operands = call_of(host, "").operands;
    if (operands.empty()) return;
    const Key key = key_of(operands[0]);
    const auto fits = [&](TensorId t) {
      const RecordedOperand like{made_[t].shape, made_[t].dtype};
      return key_of(like) == key && !draft_.is_owned(t);
    };
    const auto owner = std::find_if(parameters_.rbegin(), parameters_.rend(), fits);
    const auto gradients = gradients_.find(key);
    if (owner == parameters_.rend() || gradients == gradients_.end() || gradients->second.empty()) return;
    const TensorId gradient = gradients->second.back();
    gradients->second.pop_back();
    draft_.own(gradient, *owner);
  }

  /// All kernels of the optimizer as one update of what has a gradient.
  void add_update() {
    if (updates_.empty()) return;
    Op op;
    op.duration = seconds(update_);
    op.flops = Flops{0};  // as all that is no product
    double kernels = 0;
    for (const LaunchingOp* each : updates_) kernels += each->kernels;
    op.kernels = kernels;
    draft_.add_update(std::move(op), states());
  }

  /// What was allocated before the step apart from the parameters: states of the optimizer, and what the graph does not
  /// know of.
  std::vector<TensorId> states() {
    if (!memory_ || draft_.owned() == 0) return {};
    std::int64_t known = 0;
    for (const Tensor& tensor : made_.tensors) {
      if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::input) known += tensor.bytes.count;
    }
    before_ = memory_->before - Bytes{known};
    if (before_ <= Bytes{}) return {};
    return {draft_.tensor("allocated before the step", TensorKind::optimizer_state, {{before_.count}, "uint8"})};
  }

  void write_source(StepWindow step) {
    auto& notes = made_.source.notes;
    notes.emplace_back("imported_from", "a recording of PyTorch's profiler (Kineto)");
    notes.emplace_back("step", step.number < 0 ? "the whole recording" : std::to_string(step.number));
    for (const auto& [stream, of] : streams_) {
      notes.emplace_back(fmt::format("stream_{}", stream),
                         fmt::format("{} kernels, copies and memsets, {:.9f} s", of.first, seconds(of.second).value));
    }
    notes.emplace_back("derived",
                       "the recording has no identities of tensors: a value that is read is the latest one "
                       "made with as many numbers of the type, of the forward operator of the same sequence "
                       "number first; results, saved values and parameters by kind and shapes");
    notes.emplace_back("gradients", fmt::format("{} of {} accumulated gradients found a parameter of their size",
                                                draft_.owned(), accumulated_));
    std::string left_out = fmt::format(
        "idle time and overlap of streams: ops run one after the other; {} operands of the "
        "backward and {} ops without shapes{}",
        unknown_, shapeless_, memory_ ? "" : "; workspaces, since it was recorded without profile_memory=True");
    if (memory_) {
      notes.emplace_back("recorded_peak_bytes", std::to_string(memory_->peak.count));
      notes.emplace_back("recorded_before_bytes", std::to_string(memory_->before.count));
      notes.emplace_back("memory",
                         fmt::format("{} of {} blocks that were allocated belong to values; {} values were kept for a "
                                     "backward of which no op is known to read them; {} B were there before the step "
                                     "in addition to the parameters",
                                     block_of_.size(), memory_->blocks.size(), kept_, before_.count));
    }
    if (recording_.ranks > 1) {
      left_out += fmt::format("; this is rank {} of {}: what others wait for is in the times of its collectives",
                              recording_.rank, recording_.ranks);
    }
    notes.emplace_back("left_out", std::move(left_out));
  }

  const StepRecording& recording_;
  std::vector<LaunchingOp> launched_;
  RecordedDraft draft_;
  Graph& made_ = draft_.graph;
  std::map<Key, std::vector<TensorId>> values_, gradients_, casts_;
  std::unordered_map<std::int64_t, std::vector<TensorId>> saved_;  // by sequence number of the forward
  std::unordered_map<std::uint32_t, const HostOp*> maker_of_;      // by tensor
  const HostOp* present_ = nullptr;                                // of the op that is added; null: of no operator
  const std::optional<RecordedMemory>& memory_;
  std::optional<BlockClaims> claims_;
  std::unordered_map<std::uint32_t, std::size_t> block_of_;  // by storage
  std::unordered_set<std::uint32_t> overwritten_, read_;     // tensors
  std::vector<Nanoseconds> dates_;                           // of the ops
  std::size_t kept_ = 0;
  Bytes before_;
  std::vector<TensorId> parameters_;
  std::vector<const LaunchingOp*> updates_;
  std::map<std::string, double> flops_;  // by type of the first operand
  Nanoseconds update_ = 0;
  std::map<std::int64_t, std::pair<std::size_t, Nanoseconds>> streams_;
  std::size_t inputs_ = 0, unknown_ = 0, accumulated_ = 0, shapeless_ = 0;
};

constexpr std::string_view record_again =
    "record again with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], "
    "record_shapes=True, profile_memory=True)";

}  // namespace

Graph read_recorded_graph(const std::filesystem::path& path, ImportNumbers& numbers) {
  const StepRecording recording = read_step_recording(path);
  const StepWindow step = chosen_window(recording, path.string(), numbers);
  std::vector<LaunchingOp> launched = launching_ops(recording, step);
  if (launched.empty()) {
    const std::string what = step.number >= 0 ? fmt::format("ProfilerStep#{} launched no work of a GPU", step.number)
                             : recording.work.empty() ? "no work of a GPU"
                                                      : "work of a GPU that no operator is known to have launched";
    throw InputError(located(path.string(), {}, "traceEvents", fmt::format("{}: {}", what, record_again)));
  }
  const auto has_shapes = [&](const LaunchingOp& op) {
    return op.has_op && recording.words[recording.ops[op.op].shapes].starts_with('[');
  };
  if (std::ranges::none_of(launched, has_shapes)) {
    throw InputError(located(path.string(), {}, "Input Dims",
                             fmt::format("operators without shapes, of which no tensors follow: {}; its times are what "
                                         "'plimsoll compare {}' says",
                                         record_again, path.string())));
  }
  const std::optional<RecordedMemory> memory = memory_of_step(recording, step);
  return checked(RecordedIteration(recording, std::move(launched), memory).graph(path.stem().string(), step), path);
}

}  // namespace plimsoll
