// The words of PyTorch's profilers. Kineto has written `Operator`, `Runtime`, `Kernel`, `Memcpy` and `Memset` in 2021
// and `cpu_op`, `cuda_runtime`, `kernel`, `gpu_memcpy` and `gpu_memset` since; the profiler without Kineto writes no
// categories at all, only processes "CPU functions" and "CUDA functions". ROCm's activities have CUDA's categories;
// other devices have their own, of which only the launches' endings are common.

#include "validate/profiler/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>

#include "sim/io/input_error.h"
#include "sim/io/printable.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view b) { return text.starts_with(b); });
}

enum class SliceKind { host_range, launch, kernel, copy, memset, step_of_ours, unknown_work, other };

/// Categories of what is no work of a device though it has a correlation.
bool is_known_aside(std::string_view category) {
  return starts_with_any(category, {"cuda_sync", "gpu_user_annotation", "overhead", "cuda_profiler_range",
                                    "external_correlation", "collective_comm", "python_function", "Trace"});
}

SliceKind kind_of(const TraceSlice& slice) {
  const std::string_view category = slice.category;
  if (category.empty() && slice.process == "CPU functions") return SliceKind::host_range;
  if (category.empty() && slice.process == "CUDA functions") return SliceKind::kernel;
  if (category == "cpu_op" || category == "Operator" || category == "user_annotation") return SliceKind::host_range;
  if (category.ends_with("_runtime") || category.ends_with("_driver") || category == "Runtime") {
    return SliceKind::launch;
  }
  if (category == "kernel" || category == "Kernel") return SliceKind::kernel;
  if (category == "gpu_memcpy" || category == "Memcpy") return SliceKind::copy;
  if (category == "gpu_memset" || category == "Memset") return SliceKind::memset;
  if (from_name<StepKind>(category)) return SliceKind::step_of_ours;
  const bool is_work = category == "hpu_op" || (slice.correlation && !category.empty() && !is_known_aside(category));
  return is_work ? SliceKind::unknown_work : SliceKind::other;
}

/// Ranges that people and PyTorch's Python code name, which are no operators. Kineto has a category for them since
/// 2022.
bool is_annotation(const TraceSlice& slice) {
  return slice.category == "user_annotation" ||
         starts_with_any(slice.name, {"ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "nn.Module: "});
}

constexpr std::string_view engine_event = "autograd::engine::evaluate_function";

/// `AddmmBackward0`, `torch::autograd::AccumulateGrad`: a node as such. Recordings of 2021 have no event of the engine
/// around it.
bool is_node(std::string_view name) {
  if (name.starts_with("torch::autograd::")) return true;
  name = name.substr(0, name.find_last_not_of("0123456789") + 1);
  const bool is_word = std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word && name.ends_with("Backward") && name != "Backward";
}

RangeRole role_of(const TraceSlice& slice) {
  const std::string_view name = slice.name;
  if (name.starts_with(engine_event) || (slice.category != "user_annotation" && is_node(name))) {
    const bool runs_forward_again = has(name, "Checkpoint") && has(name, "Backward");
    return runs_forward_again ? RangeRole::checkpoint_backward : RangeRole::backward;
  }
  if (name.starts_with("Optimizer.step")) return RangeRole::update;
  if (name.starts_with("Optimizer.zero_grad")) return RangeRole::zero_grad;
  if (starts_with_any(name, {"gloo:", "mpi:", "ucc:"})) return RangeRole::communication;
  if (is_annotation(slice)) return RangeRole::label;
  const bool of_backward = slice.forward_thread.value_or(0) != 0;
  return slice.sequence_number && !of_backward ? RangeRole::recorded_op : RangeRole::op;
}

Activity activity_of_copy(std::string_view name) {
  if (has(name, "DtoH") || has(name, "DeviceToHost")) return Activity::offload;
  if (has(name, "HtoD") || has(name, "HostToDevice")) return Activity::prefetch;
  if (has(name, "DtoD") || has(name, "DeviceToDevice")) return Activity::device_copy;
  if (has(name, "PtoP") || has(name, "PeerToPeer")) return Activity::send;
  return Activity::unmatched;
}

/// Kernels of NCCL and RCCL, which both call theirs nccl..., say so themselves.
std::optional<Activity> communication_of(std::string_view kernel) {
  if (!has(kernel, "nccl") && !has(kernel, "rccl")) return std::nullopt;
  return has(kernel, "SendRecv") ? Activity::send : Activity::collective;
}

std::optional<std::int64_t> step_number(std::string_view name) {
  constexpr std::string_view beginning = "ProfilerStep#";
  if (!name.starts_with(beginning)) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + beginning.size(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

class Recorder {
 public:
  void add(const TraceSlice& slice) {
    switch (kind_of(slice)) {
      case SliceKind::host_range:
        add_range(slice);
        break;
      case SliceKind::launch:
        if (!slice.correlation) return;
        made_.launches.push_back({*slice.correlation, slice.external_id.value_or(-1), slice.start, slice.thread,
                                  has(slice.name, "GraphLaunch")});
        break;
      case SliceKind::kernel: {
        const std::optional<Activity> known = communication_of(slice.name);
        add_work(slice, known.value_or(Activity::unmatched), !known);
        break;
      }
      case SliceKind::copy:
        add_work(slice, activity_of_copy(slice.name), false);
        break;
      case SliceKind::memset:
        add_work(slice, Activity::memset, false);
        break;
      case SliceKind::step_of_ours:
        made_.own_steps[*from_name<Activity>(slice.category)] += seconds(slice.duration);
        if (!host_threads_.contains(slice.thread)) {
          made_.own_busy.push_back({device_of(slice), slice.start, slice.end(), std::nullopt});
        }
        break;
      case SliceKind::unknown_work: {
        UnknownWork& unknown = made_.unknown[slice.category];
        ++unknown.events;
        unknown.time += seconds(slice.duration);
        return;
      }
      case SliceKind::other:
        return;
    }
    made_.begin = std::min(made_.begin, slice.start);
    made_.end = std::max(made_.end, slice.end());
  }

  /// Threads of ours are streams: "compute" or from one place "_to_" another; those of a host alone are called as it
  /// is.
  void add(const ThreadName& named) {
    const bool is_of_device = named.name.starts_with("compute") || has(named.name, "device");
    if (!is_of_device) host_threads_.insert(named.thread);
  }
  void add(const MemorySample& sample) { made_.memory.push_back(sample); }
  void add(const CounterSample& sample) { made_.own_memory.push_back(sample); }

  Recording take() {
    if (made_.steps.empty()) cut_at_updates();
    std::ranges::sort(made_.steps, {}, [](const RecordedStep& s) { return std::pair(s.start, s.number); });
    return std::move(made_);
  }

 private:
  void add_range(const TraceSlice& slice) {
    if (const std::optional<std::int64_t> number = step_number(slice.name)) {
      made_.steps.push_back({*number, slice.start, slice.end()});
      return;
    }
    const RangeRole role = role_of(slice);
    if (role == RangeRole::update) updates_.push_back({slice.start, slice.end(), slice.name});
    made_.names_engine = made_.names_engine || slice.name.starts_with(engine_event);
    made_.ranges.push_back({slice.start, slice.end(), slice.external_id.value_or(-1), slice.thread, role});
  }

  void add_work(const TraceSlice& slice, Activity activity, bool is_kernel) {
    made_.work.push_back(
        {slice.start, slice.duration, slice.correlation.value_or(-1), is_kernel, activity, device_of(slice)});
  }

  /// A run of an optimizer's step.
  struct Update {
    Nanoseconds start, end;
    std::string name;
  };

  /// Without steps of the profiler's an iteration ends with the optimizer's step, with the last one's where there are
  /// optimizers of several names. A step within another's is a part of it.
  void cut_at_updates() {
    std::ranges::sort(updates_, {}, [](const Update& u) { return std::pair(u.start, -u.end); });
    Nanoseconds end = std::numeric_limits<Nanoseconds>::min();
    std::erase_if(updates_, [&](const Update& u) {
      const bool is_within = u.end <= end;
      end = std::max(end, u.end);
      return is_within;
    });
    made_.updates = updates_.size();
    if (updates_.empty()) return;
    const std::string last = updates_.back().name;
    std::erase_if(updates_, [&](const Update& u) { return u.name != last; });
    if (updates_.size() < 2) return;
    made_.cut_at = last;
    Nanoseconds begin = made_.begin;
    for (const Update& update : updates_) {
      made_.steps.push_back({static_cast<std::int64_t>(made_.steps.size()) + 1, begin, update.end});
      begin = update.end;
    }
  }

  std::uint32_t device_of(const TraceSlice& slice) {
    return devices_.try_emplace(slice.process, static_cast<std::uint32_t>(devices_.size())).first->second;
  }

  std::map<std::string, std::uint32_t> devices_;
  std::set<std::uint32_t> host_threads_;
  std::vector<Update> updates_;
  Recording made_{.begin = std::numeric_limits<Nanoseconds>::max(), .end = std::numeric_limits<Nanoseconds>::min()};
};

}  // namespace

std::string unknown_text(const std::map<std::string, UnknownWork>& unknown) {
  std::string text = "work of devices of unknown categories:";
  std::string_view before = " ";
  for (const auto& [category, work] : unknown) {
    text += fmt::format("{}{} ({} event{}, {})", before, printable(category), work.events, work.events == 1 ? "" : "s",
                        format_seconds(work.time));
    before = ", ";
  }
  return text;
}

Recording read_recording(const std::filesystem::path& file) {
  Recorder recorder;
  read_chrome_trace(file, {.slice = [&](const TraceSlice& slice) { recorder.add(slice); },
                           .thread_name = [&](const ThreadName& named) { recorder.add(named); },
                           .memory = [&](const MemorySample& sample) { recorder.add(sample); },
                           .counter = [&](const CounterSample& sample) { recorder.add(sample); }});
  Recording recording = recorder.take();
  if (recording.own_steps.empty() && recording.ranges.empty() && recording.work.empty()) {
    const std::string unknown = recording.unknown.empty() ? "" : "; " + unknown_text(recording.unknown);
    throw InputError(file.string() + ": no steps of Plimsoll's and no operators or kernels of a profiler's in it" +
                     unknown);
  }
  return recording;
}

}  // namespace plimsoll
