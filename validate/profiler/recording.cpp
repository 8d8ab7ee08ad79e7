// The words of PyTorch's profilers. Kineto has written `Operator`, `Runtime`, `Kernel`, `Memcpy` and `Memset` in 2021
// and `cpu_op`, `cuda_runtime`, `kernel`, `gpu_memcpy` and `gpu_memset` since; the profiler without Kineto writes no
// categories at all, only processes "CPU functions" and "CUDA functions". ROCm's activities have CUDA's categories.

#include "validate/profiler/recording.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view b) { return text.starts_with(b); });
}

enum class SliceKind { host_range, launch, kernel, copy, memset, step_of_ours, other };

SliceKind kind_of(const TraceSlice& slice) {
  const std::string_view category = slice.category;
  if (category.empty() && slice.process == "CPU functions") return SliceKind::host_range;
  if (category.empty() && slice.process == "CUDA functions") return SliceKind::kernel;
  if (category == "cpu_op" || category == "Operator" || category == "user_annotation") return SliceKind::host_range;
  if (category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime") return SliceKind::launch;
  if (category == "kernel" || category == "Kernel") return SliceKind::kernel;
  if (category == "gpu_memcpy" || category == "Memcpy") return SliceKind::copy;
  if (category == "gpu_memset" || category == "Memset") return SliceKind::memset;
  if (from_name<StepKind>(category)) return SliceKind::step_of_ours;
  return SliceKind::other;
}

/// Ranges that people and PyTorch's Python code name, which are no operators. Kineto has a category for them since
/// 2022.
bool is_annotation(const TraceSlice& slice) {
  return slice.category == "user_annotation" ||
         starts_with_any(slice.name, {"ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "nn.Module: "});
}

RangeRole role_of(const TraceSlice& slice) {
  const std::string_view name = slice.name;
  if (name.starts_with("autograd::engine::evaluate_function")) {
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
    if (role == RangeRole::update) ++made_.updates;
    made_.ranges.push_back({slice.start, slice.end(), slice.external_id.value_or(-1), slice.thread, role});
  }

  void add_work(const TraceSlice& slice, Activity activity, bool is_kernel) {
    made_.work.push_back(
        {slice.start, slice.duration, slice.correlation.value_or(-1), is_kernel, activity, device_of(slice)});
  }

  std::uint32_t device_of(const TraceSlice& slice) {
    return devices_.try_emplace(slice.process, static_cast<std::uint32_t>(devices_.size())).first->second;
  }

  std::map<std::string, std::uint32_t> devices_;
  std::set<std::uint32_t> host_threads_;
  Recording made_{.begin = std::numeric_limits<Nanoseconds>::max(), .end = std::numeric_limits<Nanoseconds>::min()};
};

}  // namespace

Recording read_recording(const std::filesystem::path& file) {
  Recorder recorder;
  read_chrome_trace(file, {.slice = [&](const TraceSlice& slice) { recorder.add(slice); },
                           .thread_name = [&](const ThreadName& named) { recorder.add(named); },
                           .memory = [&](const MemorySample& sample) { recorder.add(sample); },
                           .counter = [&](const CounterSample& sample) { recorder.add(sample); }});
  Recording recording = recorder.take();
  if (recording.own_steps.empty() && recording.ranges.empty() && recording.work.empty())
    throw InputError(file.string() + ": no steps of Plimsoll's and no operators or kernels of a profiler's in it");
  return recording;
}

}  // namespace plimsoll
