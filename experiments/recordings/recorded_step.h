#pragma once
// What of a recording of PyTorch's profiler makes the graph of one step: operators, launches, work of the device.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/imports/import_numbers.h"
#include "validate/profiler/chrome_trace.h"

namespace plimsoll {

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
  std::uint32_t thread = 0, name = 0, shapes = 0, types = 0, strides = 0, values = 0;
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
  std::vector<MemorySample> memory;  ///< of devices
  std::string device;                ///< as the recording names it
  std::int64_t ranks = 1, rank = 0;
};

StepRecording read_step_recording(const std::filesystem::path&);

/// `--set step=N`, else the last one that launched work; without steps the whole recording, as number -1.
StepWindow chosen_window(const StepRecording&, const std::string& file, ImportNumbers&);

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

/// In the order of their launches; gradients that are accumulated are among them.
std::vector<LaunchingOp> launching_ops(const StepRecording&, StepWindow);

}  // namespace plimsoll
