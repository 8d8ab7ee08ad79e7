// An op of the graph is the innermost operator that launched kernels, with the time of all of them on a stream;
// operators without kernels are joined with what they call. The recording says which operator ran when, on which
// shapes, and which gradients were accumulated. It has no identities of tensors: a value that is read is the latest one
// made with as many numbers of the type, of the forward operator of the same sequence number first.

#include "experiments/recordings/recorded_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "experiments/recordings/recorded_operands.h"
#include "experiments/recordings/recorded_step.h"
#include "sim/io/input_error.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

class RecordedIteration {
 public:
  RecordedIteration(const StepRecording& recording, std::vector<LaunchingOp> launched)
      : recording_(recording), launched_(std::move(launched)) {}

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
    for (std::size_t k = 0; k < call.operands.size(); ++k) {
      if (call.operands[k].dtype.empty() || element_count(call.operands[k].shape) == 0) continue;
      if (k == 0 && (kind == "copy_" || kind == "zero_" || kind == "fill_")) continue;  // overwritten as a whole
      const std::optional<TensorId> t = read(op, call, k, launched.sequence, found);
      if (!t) continue;
      found.push_back(*t);
      if (std::ranges::find(op.inputs, *t) == op.inputs.end()) op.inputs.push_back(*t);
    }
    const std::optional<AtenShape> convolved = convolved_shape(call);
    if (convolved) op.kind = "convolution";  // by whatever library
    make(op, call, convolved, launched.sequence);
    made_.ops.push_back(std::move(op));
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
    return recorded_call(kind, recording_.words[host.shapes], recording_.words[host.types],
                         recording_.words[host.values]);
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
    const auto is_free = [&](TensorId t) { return std::ranges::find(taken, t) == taken.end() && !is_made_within(t); };
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
  void make(Op& op, const RecordedCall& call, const std::optional<AtenShape>& convolved, std::int64_t sequence) {
    const std::string_view kind = call.kind;
    const TensorKind made_kind = op.phase == Phase::backward ? TensorKind::gradient : TensorKind::activation;
    std::vector<RecordedOperand> results = results_of(call);
    if (convolved) results = {{*convolved, call.operands[0].dtype}};
    for (std::size_t k = 0; k < results.size(); ++k) {
      op.outputs.push_back(draft_.tensor(fmt::format("{}:{}", op.name, k), made_kind, results[k]));
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
    const bool is_unknown = kind.find("conv") != std::string_view::npos && !kind.ends_with("backward") && !convolved;
    if (!shapes.empty() && !is_unknown) {
      op.flops =
          aten_flops({.op = kind, .arguments = shapes, .result = results.empty() ? AtenShape{} : results[0].shape});
    }
    if (sequence >= 0 && op.phase == Phase::forward) {
      auto& saved = saved_[sequence];
      saved.insert(saved.end(), op.inputs.begin(), op.inputs.end());
      saved.insert(saved.end(), op.outputs.begin(), op.outputs.end());
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
    draft_.add_update(std::move(op), {});
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
        "backward and {} ops without shapes; memory events, workspaces",
        unknown_, shapeless_);
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
  std::vector<TensorId> parameters_;
  std::vector<const LaunchingOp*> updates_;
  std::map<std::string, double> flops_;  // by type of the first operand
  Nanoseconds update_ = 0;
  std::map<std::int64_t, std::pair<std::size_t, Nanoseconds>> streams_;
  std::size_t inputs_ = 0, unknown_ = 0, accumulated_ = 0, shapeless_ = 0;
};

}  // namespace

Graph read_recorded_graph(const std::filesystem::path& path, ImportNumbers& numbers) {
  const StepRecording recording = read_step_recording(path);
  const StepWindow step = chosen_window(recording, path.string(), numbers);
  std::vector<LaunchingOp> launched = launching_ops(recording, step);
  if (launched.empty()) {
    throw InputError(located(path.string(), {}, "traceEvents",
                             "no kernels that operators launched, expected a recording of a GPU with CPU activities"));
  }
  const auto has_shapes = [&](const LaunchingOp& op) {
    return op.has_op && recording.words[recording.ops[op.op].shapes].starts_with('[');
  };
  if (std::ranges::none_of(launched, has_shapes)) {
    throw InputError(located(path.string(), {}, "Input Dims",
                             "operators without shapes, of which no tensors follow, expected a recording with "
                             "record_shapes=True"));
  }
  return checked(RecordedIteration(recording, std::move(launched)).graph(path.stem().string(), step), path);
}

}  // namespace plimsoll
