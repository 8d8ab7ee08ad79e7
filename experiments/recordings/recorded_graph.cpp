// An op of the graph is the innermost operator that launched kernels, with the time of all of them on a stream;
// operators without kernels are joined with what they call. The recording says which operator ran when, on which
// shapes, and which gradients were accumulated. It has no identities of tensors: a value that is read is the latest one
// made with as many numbers of the type, of the forward operator of the same sequence number first.

#include "experiments/recordings/recorded_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "sim/io/byte_source.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/step_draft.h"
#include "validate/profiler/chrome_trace.h"

namespace plimsoll {
namespace {

/// Texts by number: a recording repeats few.
class RecordedWords {
 public:
  std::uint32_t number(std::string text) {
    const auto next = static_cast<std::uint32_t>(texts_.size());
    const auto [place, is_new] = numbers_.try_emplace(std::move(text), next);
    if (is_new) texts_.push_back(&place->first);
    return place->second;
  }
  const std::string& operator[](std::uint32_t number) const { return *texts_[number]; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<const std::string*> texts_;
};

struct HostOp {
  Nanoseconds start = 0, end = 0;
  std::int64_t sequence = -1;
  std::uint32_t thread = 0, name = 0, shapes = 0, types = 0, values = 0;
};

struct HostLaunch {
  Nanoseconds date = 0;
  std::int64_t correlation = 0;
  std::uint32_t thread = 0;
};

struct DeviceSlice {
  Nanoseconds start = 0, duration = 0;
  std::int64_t correlation = -1, stream = 0;
  std::uint32_t name = 0;
};

struct StepWindow {
  std::int64_t number = 0;
  Nanoseconds start = 0, end = 0;
};

struct StepRecording {
  RecordedWords words;
  std::vector<HostOp> ops;
  std::vector<HostLaunch> launches;
  std::vector<DeviceSlice> work;
  std::vector<StepWindow> steps;
  std::string device;  ///< as the recording names it
  std::int64_t ranks = 1, rank = 0;
};

bool is_one_of_words(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::optional<std::int64_t> number_behind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t from = at + key.size();
  while (from < text.size() && text[from] == ' ') ++from;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + from, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// What stands before the events: the device's name, and which rank of how many.
void read_head(const std::filesystem::path& path, StepRecording& made) {
  const std::string head(ByteSource(path).next());
  const std::string_view before = std::string_view(head).substr(0, head.find("\"traceEvents\""));
  if (const std::size_t devices = before.find("\"deviceProperties\""); devices != std::string_view::npos) {
    constexpr std::string_view key = "\"name\": \"";
    const std::size_t name = before.find(key, devices);
    if (name != std::string_view::npos) {
      const std::size_t first = name + key.size();
      made.device = before.substr(first, before.find('"', first) - first);
    }
  }
  made.rank = number_behind(before, "\"rank\":").value_or(0);
  made.ranks = number_behind(before, "\"world_size\":").value_or(1);
}

void add_slice(StepRecording& made, const TraceSlice& slice) {
  const std::string_view category = slice.category;
  if (const auto step = profiler_step(slice.name); step && !category.starts_with("gpu_")) {
    made.steps.push_back({*step, slice.start, slice.end()});
  } else if (is_one_of_words(category, {"cpu_op", "Operator", "user_annotation"})) {
    made.ops.push_back({slice.start, slice.end(), slice.sequence_number.value_or(-1), slice.thread,
                        made.words.number(slice.name), made.words.number(slice.shapes), made.words.number(slice.types),
                        made.words.number(slice.values)});
  } else if (category.ends_with("_runtime") || category.ends_with("_driver") || category == "Runtime") {
    if (slice.correlation) made.launches.push_back({slice.start, *slice.correlation, slice.thread});
  } else if (is_one_of_words(category, {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})) {
    made.work.push_back({slice.start, slice.duration, slice.correlation.value_or(-1), slice.stream.value_or(0),
                         made.words.number(slice.name)});
  }
}

StepRecording read_step_recording(const std::filesystem::path& path) {
  StepRecording made;
  read_head(path, made);
  TraceVisitor visitor{.slice = [&](const TraceSlice& slice) { add_slice(made, slice); },
                       .thread_name = [](const ThreadName&) {},
                       .memory = [](const MemorySample&) {},
                       .counter = [](const CounterSample&) {},
                       .wants_arguments = true};
  read_chrome_trace(path, visitor);
  return made;
}

/// An operator's arguments as text: `[1, 1]`, `False`; tensors are empty.
std::vector<std::string> recorded_values(const std::string& values) {
  std::vector<std::string> made;
  if (!values.starts_with('[')) return made;
  JsonDocument document(values, "Concrete Inputs");
  document.read([&](JsonCursor root) {
    root.array([&](JsonCursor one) { made.push_back(one.is_word() ? one.string() : one.compact()); });
  });
  document.throw_if_any();
  return made;
}

/// Of a list of whole numbers; what is none ends it.
std::vector<std::int64_t> numbers_of(std::string_view list) {
  std::vector<std::int64_t> made;
  for (std::size_t at = 1; list.starts_with('[') && at < list.size();) {
    if (list[at] == ' ') {
      ++at;
      continue;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(list.data() + at, list.data() + list.size(), value);
    if (error != std::errc()) break;
    made.push_back(value);
    at = static_cast<std::size_t>(end - list.data()) + 1;
  }
  return made;
}

/// Of a forward convolution, from the places of stride, padding and dilation among its arguments; unset where it is
/// transposed, or does not say them.
std::optional<AtenShape> convolved_shape(std::string_view kind, const std::vector<RecordedOperand>& operands,
                                         const std::string& values) {
  const bool is_library = kind == "cudnn_convolution" || kind == "miopen_convolution";
  if (!is_library && kind != "convolution" && kind != "_convolution") return std::nullopt;
  constexpr std::size_t transposed_at = 6, stride_at = 3;
  const std::size_t padding_at = is_library ? 2 : 4, dilation_at = is_library ? 4 : 5;
  const std::vector<std::string> words = recorded_values(values);
  if (words.size() <= transposed_at || operands.size() < 2) return std::nullopt;
  const auto strides = numbers_of(words[stride_at]), paddings = numbers_of(words[padding_at]),
             dilations = numbers_of(words[dilation_at]);
  const AtenShape &x = operands[0].shape, &weight = operands[1].shape;
  const std::size_t axes = x.size() < 3 ? 0 : x.size() - 2;
  const bool says_all = axes > 0 && weight.size() == x.size() && strides.size() == axes && paddings.size() == axes &&
                        dilations.size() == axes;
  if (!says_all || (!is_library && words[transposed_at] != "False")) return std::nullopt;
  AtenShape made{x[0], weight[0]};
  for (std::size_t k = 0; k < axes; ++k) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    const std::int64_t stride = strides[k], padding = paddings[k], dilation = dilations[k];
    if (stride < 1 || std::max({stride, padding, dilation}) > most || std::min(padding, dilation) < 0)
      return std::nullopt;
    made.push_back((x[k + 2] + 2 * padding - dilation * (weight[k + 2] - 1) - 1) / stride + 1);
    if (made.back() < 1) return std::nullopt;
  }
  return made;
}

/// An operator with the work that it launched itself on a stream.
struct LaunchingOp {
  std::uint32_t op = 0;  ///< in the recording
  bool has_op = false, in_backward = false, in_update = false, accumulates = false;
  std::uint32_t name = 0;      ///< of the first kernel
  std::int64_t sequence = -1;  ///< that autograd gave the forward, of the range next around it
  std::int64_t stream = 0;
  Nanoseconds date = 0;  ///< of its first launch
  Nanoseconds time = 0;
  std::uint32_t kernels = 0;
};

/// Launches, and gradients that are accumulated, with the operators around them.
class LaunchReader {
 public:
  LaunchReader(const StepRecording& recording, StepWindow step) : recording_(recording), step_(step) {}

  std::vector<LaunchingOp> ops() && {
    for (const DeviceSlice& work : recording_.work) work_of_[work.correlation].push_back(&work);
    for (std::uint32_t k = 0; k < recording_.ops.size(); ++k) {
      if (is_within(recording_.ops[k].start)) on_[recording_.ops[k].thread].first.push_back(k);
    }
    for (std::uint32_t k = 0; k < recording_.launches.size(); ++k) {
      if (is_within(recording_.launches[k].date)) on_[recording_.launches[k].thread].second.push_back(k);
    }
    for (auto& [thread, both] : on_) walk(both.first, both.second);
    std::ranges::stable_sort(made_, {}, &LaunchingOp::date);
    return std::move(made_);
  }

 private:
  bool is_within(Nanoseconds date) const { return date >= step_.start && date < step_.end; }
  const std::string& name(std::uint32_t op) const { return recording_.words[recording_.ops[op].name]; }

  void walk(std::vector<std::uint32_t>& ops, std::vector<std::uint32_t>& launches) {
    std::ranges::sort(ops, {},
                      [&](std::uint32_t k) { return std::pair(recording_.ops[k].start, -recording_.ops[k].end); });
    std::ranges::sort(launches, {}, [&](std::uint32_t k) { return recording_.launches[k].date; });
    std::vector<std::uint32_t> open;
    std::size_t next = 0;
    const auto close = [&](Nanoseconds date) {
      while (!open.empty() && recording_.ops[open.back()].end < date) open.pop_back();
    };
    for (const std::uint32_t launch : launches) {
      const Nanoseconds date = recording_.launches[launch].date;
      for (; next < ops.size() && recording_.ops[ops[next]].start <= date; ++next) enter(ops[next], open, close);
      close(date);
      add(recording_.launches[launch], open);
    }
    for (; next < ops.size(); ++next) enter(ops[next], open, close);
  }

  void enter(std::uint32_t op, std::vector<std::uint32_t>& open, const auto& close) {
    close(recording_.ops[op].start + 1);
    open.push_back(op);
    if (name(op) != "torch::autograd::AccumulateGrad") return;
    made_.push_back(
        {.op = op, .has_op = true, .in_backward = true, .accumulates = true, .date = recording_.ops[op].start});
  }

  void add(const HostLaunch& launch, const std::vector<std::uint32_t>& open) {
    const auto work = work_of_.find(launch.correlation);
    if (work == work_of_.end()) return;
    LaunchingOp op{.date = launch.date};
    for (const std::uint32_t k : open) {
      const std::string& range = name(k);
      if (is_backward_range(range)) op.in_backward = true;
      if (is_update_range(range)) op.in_update = true;
      if (recording_.ops[k].sequence >= 0) op.sequence = recording_.ops[k].sequence;
      if (!range.starts_with("aten::")) continue;
      op.op = k;
      op.has_op = true;
    }
    for (const DeviceSlice* slice : work->second) add(op, *slice);
  }

  void add(LaunchingOp op, const DeviceSlice& slice) {
    const std::tuple key(op.has_op ? op.op : ~std::uint32_t{0}, slice.stream, op.has_op ? 0 : slice.start);
    const auto [place, is_new] = places_.try_emplace(key, made_.size());
    if (is_new) {
      op.name = slice.name;
      op.stream = slice.stream;
      made_.push_back(op);
    }
    LaunchingOp& all = made_[place->second];
    all.time += slice.duration;
    ++all.kernels;
  }

  const StepRecording& recording_;
  StepWindow step_;
  std::unordered_map<std::int64_t, std::vector<const DeviceSlice*>> work_of_;
  std::map<std::uint32_t, std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> on_;  // by thread
  std::map<std::tuple<std::uint32_t, std::int64_t, Nanoseconds>, std::size_t> places_;
  std::vector<LaunchingOp> made_;
};

/// `[[2, 3], [], [[4], [5]]]`; operands that are lists of tensors are passed over.
std::vector<RecordedOperand> recorded_operands(const std::string& shapes, const std::string& types) {
  std::vector<RecordedOperand> made;
  if (!shapes.starts_with('[')) return made;
  JsonDocument dims(shapes, "Input Dims");
  dims.read([&](JsonCursor root) {
    root.array([&](JsonCursor one) {
      RecordedOperand& operand = made.emplace_back();
      const std::string text = one.compact();
      if (text.starts_with("[[") || text.size() < 2) return;
      double numbers = 1;
      for (std::size_t at = 1; at < text.size();) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
        if (error != std::errc() || value < 0) break;
        numbers *= static_cast<double>(value);
        constexpr double most = 1e13;
        if (numbers > most) throw InputError(fmt::format("Input Dims: absurdly large: {}", text));
        operand.shape.push_back(value);
        at = static_cast<std::size_t>(end - text.data()) + 1;
      }
    });
  });
  if (!types.starts_with('[')) return made;
  JsonDocument words(types, "Input type");
  std::size_t k = 0;
  words.read([&](JsonCursor root) {
    root.array([&](JsonCursor one) {
      const std::string word = one.is_word() ? one.string() : one.compact();
      if (k < made.size() && element_bytes(word)) made[k].dtype = long_dtype(word);
      ++k;
    });
  });
  return made;
}

class RecordedIteration {
 public:
  RecordedIteration(const StepRecording& recording, std::vector<LaunchingOp> launched)
      : recording_(recording), launched_(std::move(launched)) {}

  Graph graph(std::string name, StepWindow step) && {
    made_.name = std::move(name);
    made_.source.kind = Source::Kind::measured;
    made_.source.device = recording_.device.empty() ? "unknown, of a recording" : recording_.device;
    const auto is_tf32 = [&](const DeviceSlice& work) {
      return recording_.words[work.name].find("tf32") != std::string::npos;
    };
    if (std::ranges::any_of(recording_.work, is_tf32)) made_.source.dtype = "tf32";
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
    std::vector<RecordedOperand> operands;
    if (host != nullptr) operands = recorded_operands(recording_.words[host->shapes], recording_.words[host->types]);
    if (host != nullptr && operands.empty()) ++shapeless_;
    std::vector<TensorId> found;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].dtype.empty() || element_count(operands[k].shape) == 0) continue;
      if (k == 0 && is_one_of_words(kind, {"copy_", "zero_", "fill_"})) continue;  // overwritten as a whole
      const std::optional<TensorId> t = read(op, kind, operands, k, launched.sequence, found);
      if (!t) continue;
      found.push_back(*t);
      if (std::ranges::find(op.inputs, *t) == op.inputs.end()) op.inputs.push_back(*t);
    }
    const std::string values = host == nullptr ? "" : recording_.words[host->values];
    const std::optional<AtenShape> convolved = convolved_shape(kind, operands, values);
    if (convolved) op.kind = "convolution";  // by whatever library
    make(op, kind, operands, convolved, launched.sequence);
    made_.ops.push_back(std::move(op));
  }

  /// The value that an operand is, by numbers and type.
  std::optional<TensorId> read(const Op& op, std::string_view kind, const std::vector<RecordedOperand>& operands,
                               std::size_t k, std::int64_t sequence, const std::vector<TensorId>& taken) {
    const Key key = key_of(operands[k]);
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
    if (is_parameter_place(kind, k)) {
      const auto cast = casts_.find(key);
      if (cast != casts_.end() && !cast->second.empty()) {
        const TensorId t = cast->second.front();
        cast->second.erase(cast->second.begin());
        return t;
      }
      return parameter(operands[k]);
    }
    if (const auto t = latest(values_)) return t;
    const bool of_batch = operands[k].dtype.find("float") == std::string::npos || inputs_ == 0;
    if (!of_batch) return parameter(operands[k]);
    ++inputs_;
    const TensorId t = draft_.tensor(fmt::format("input {}", inputs_), TensorKind::input, operands[k]);
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

  static bool is_parameter_place(std::string_view kind, std::size_t k) {
    if (is_one_of_words(kind, {"addmm"})) return k == 0 || k == 2;
    if (is_one_of_words(kind, {"linear", "convolution", "cudnn_convolution", "conv2d", "miopen_convolution"}))
      return k >= 1;
    if (is_one_of_words(kind, {"native_layer_norm"})) return k == 2 || k == 3;
    if (kind.find("batch_norm") != std::string_view::npos) return k >= 1 && k <= 4;
    return is_one_of_words(kind, {"embedding"}) && k == 0;
  }

  /// What it makes: by kind and shapes.
  void make(Op& op, std::string_view kind, const std::vector<RecordedOperand>& operands,
            const std::optional<AtenShape>& convolved, std::int64_t sequence) {
    const TensorKind made_kind = op.phase == Phase::backward ? TensorKind::gradient : TensorKind::activation;
    std::vector<RecordedOperand> results = results_of(kind, operands);
    if (convolved) results = {{*convolved, operands[0].dtype}};
    for (std::size_t k = 0; k < results.size(); ++k) {
      op.outputs.push_back(draft_.tensor(fmt::format("{}:{}", op.name, k), made_kind, results[k]));
      const bool casts = kind == "copy_" && !op.inputs.empty() && made_[op.inputs[0]].kind == TensorKind::parameter;
      auto& values = op.phase == Phase::backward ? gradients_ : casts ? casts_ : values_;
      values[key_of(results[k])].push_back(op.outputs.back());
      if (present_ != nullptr) maker_of_.emplace(op.outputs.back().index, present_);
    }
    std::vector<AtenShape> shapes;
    for (const RecordedOperand& operand : operands) shapes.push_back(operand.shape);
    std::vector<std::int64_t> read;
    for (const TensorId t : op.inputs) read.push_back(made_[t].bytes.count);
    std::int64_t written = 0;
    for (const TensorId t : op.outputs) written += made_[t].bytes.count;
    op.bytes_moved = Bytes{aten_traffic(kind, read, written)};
    // The shapes of operands alone do not say that of a convolution's result.
    const bool is_unknown = kind.find("conv") != std::string_view::npos && !kind.ends_with("backward") && !convolved;
    if (!shapes.empty() && !results.empty() && !is_unknown) {
      op.flops = aten_flops({.op = kind, .arguments = shapes, .result = results[0].shape});
    }
    if (sequence >= 0 && op.phase == Phase::forward) {
      auto& saved = saved_[sequence];
      saved.insert(saved.end(), op.inputs.begin(), op.inputs.end());
      saved.insert(saved.end(), op.outputs.begin(), op.outputs.end());
    }
  }

  static std::vector<RecordedOperand> results_of(std::string_view kind, const std::vector<RecordedOperand>& operands) {
    std::vector<const RecordedOperand*> tensors;
    for (const RecordedOperand& operand : operands) {
      if (!operand.dtype.empty()) tensors.push_back(&operand);
    }
    if (tensors.empty()) return {};
    const auto product = [&](std::size_t a, std::size_t b) -> std::vector<RecordedOperand> {
      if (b >= operands.size() || operands[a].shape.size() < 2 || operands[b].shape.size() < 2) return {*tensors[0]};
      RecordedOperand made = operands[a];
      made.shape.back() = operands[b].shape.back();
      return {made};
    };
    if (is_one_of_words(kind, {"mm", "bmm"})) return product(0, 1);
    if (is_one_of_words(kind, {"addmm", "baddbmm"})) return product(1, 2);
    if (kind == "embedding" && operands.size() > 1 && !operands[0].shape.empty()) {
      RecordedOperand made{operands[1].shape, operands[0].dtype};
      made.shape.push_back(operands[0].shape.back());
      return {made};
    }
    if (kind == "embedding_dense_backward") return {};
    const auto gradients_of = [&](std::initializer_list<std::size_t> places) {
      std::vector<RecordedOperand> made;
      for (const std::size_t k : places) {
        if (k < operands.size() && !operands[k].dtype.empty()) made.push_back(operands[k]);
      }
      return made;
    };
    if (kind == "convolution_backward") return gradients_of({1, 2});
    if (kind == "native_layer_norm_backward") return gradients_of({0, 5, 6});
    if (kind.ends_with("batch_norm_backward")) return gradients_of({0, 2, 2});
    RecordedOperand most = *tensors[0];
    for (const RecordedOperand* each : tensors) {
      const bool is_larger = element_count(each->shape) > element_count(most.shape);
      if (is_larger && each->dtype == most.dtype) most = *each;
    }
    if (is_one_of_words(kind, {"sum", "mean", "var_mean", "nll_loss_forward", "amax"})) most.shape.clear();
    return {most};
  }

  /// Autograd adds the latest gradient of as many numbers to a parameter's.
  void accumulate(const LaunchingOp& launched) {
    ++accumulated_;
    const HostOp& host = recording_.ops[launched.op];
    const std::vector<RecordedOperand> operands =
        recorded_operands(recording_.words[host.shapes], recording_.words[host.types]);
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
  Nanoseconds update_ = 0;
  std::map<std::int64_t, std::pair<std::size_t, Nanoseconds>> streams_;
  std::size_t inputs_ = 0, unknown_ = 0, accumulated_ = 0, shapeless_ = 0;
};

StepWindow chosen_step(const StepRecording& recording, const std::string& file, ImportNumbers& numbers) {
  std::vector<StepWindow> steps = recording.steps;
  std::ranges::sort(steps, {}, &StepWindow::start);
  std::vector<std::int64_t> found;
  for (const StepWindow& step : steps) found.push_back(step.number);
  const std::optional<std::size_t> which = chosen_step(found, file, numbers);
  if (which) return steps[*which];
  return {-1, std::numeric_limits<Nanoseconds>::min(), std::numeric_limits<Nanoseconds>::max()};
}

}  // namespace

Graph read_recorded_graph(const std::filesystem::path& path, ImportNumbers& numbers) {
  const StepRecording recording = read_step_recording(path);
  const StepWindow step = chosen_step(recording, path.string(), numbers);
  std::vector<LaunchingOp> launched = LaunchReader(recording, step).ops();
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
