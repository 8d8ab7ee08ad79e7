#include "sim/memory/addresses.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/judge/workspace_memories.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/round.h"

namespace plimsoll {
namespace {

/// Instants of one stream: 0 at first; the start of its step i: 2 i + 1, its finish: 2 i + 2.
class Instants {
 public:
  Instants(const Schedule& schedule, StreamId clock)
      : clock_(clock), before_(schedule.steps.size()), after_(schedule.steps.size()) {
    find_before(schedule);
    find_after(schedule);
  }

  /// The last instant that is surely not after the step's start.
  std::uint32_t before(StepId step) const { return before_[step.index]; }
  /// The first that is surely not before its finish.
  std::uint32_t after(StepId step) const { return after_[step.index]; }
  std::uint32_t end() const { return 2 * count_ + 1; }

 private:
  void find_before(const Schedule& schedule) {
    std::vector<std::uint32_t> on_stream(schedule.streams.size(), 0);  // known when the next step starts
    const auto finished = [&](StepId s) {
      return schedule[s].stream == clock_ ? before_[s.index] + 1 : before_[s.index];
    };
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      std::uint32_t& known = on_stream[step.stream.index];
      for (const StepId wait : schedule.waits_of(step)) known = std::max(known, finished(wait));
      if (step.stream == clock_) known = 2 * count_++ + 1;
      before_[s] = known;
      if (step.stream == clock_) ++known;
    }
  }

  void find_after(const Schedule& schedule) {
    std::vector<std::uint32_t> on_stream(schedule.streams.size(), end());  // by when the step before is over
    std::fill(after_.begin(), after_.end(), end());
    for (std::size_t s = schedule.steps.size(); s-- > 0;) {
      const Step& step = schedule.steps[s];
      const bool is_clock = step.stream == clock_;
      after_[s] = is_clock ? before_[s] + 1 : std::min(after_[s], on_stream[step.stream.index]);
      const std::uint32_t start = is_clock ? before_[s] : after_[s];  // by when it has surely started
      on_stream[step.stream.index] = start;
      for (const StepId wait : schedule.waits_of(step)) after_[wait.index] = std::min(after_[wait.index], start);
    }
  }

  StreamId clock_;
  std::uint32_t count_ = 0;
  std::vector<std::uint32_t> before_, after_;
};

/// What lies in one memory.
class Tenants {
 public:
  Tenants(const Schedule& schedule, const Platform& platform, MemoryId memory, const Instants& instants)
      : schedule_(schedule), memory_(memory), instants_(instants), of_buffer_(schedule.buffers.size()) {
    const std::vector<MemoryId> workspaces = workspace_memories(schedule, platform);
    for (const BufferId b : schedule.resident) begin(b, 0);
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const Step& step = schedule.steps[s];
      const auto id = id_at<StepId>(s);
      for (const BufferId b : schedule.buffers_in(step.allocates)) begin(b, instants.before(id));
      if (step.workspace > Bytes{0} && workspaces[step.stream.index] == memory) {
        steps_.emplace_back(id, lives_.size());
        lives_.push_back({rounded(step.workspace), instants.before(id), instants.after(id)});
      }
      for (const BufferId b : schedule.buffers_in(step.frees)) {
        if (of_buffer_[b.index]) lives_[*of_buffer_[b.index]].end = instants.after(id);
      }
    }
  }

  AddressBlock place(OffsetSearch search, Addresses& addresses) const {
    const OffsetPlan plan = assign_offsets(lives_, search);
    for (std::size_t b = 0; b < of_buffer_.size(); ++b) {
      if (of_buffer_[b]) addresses.of_buffer[b] = plan.offsets[*of_buffer_[b]];
    }
    for (const auto& [step, life] : steps_) addresses.of_workspace[step.index] = plan.offsets[life];
    return {memory_, plan.size, plan.load, plan.is_optimal};
  }

 private:
  static Bytes rounded(Bytes bytes) { return round_up(bytes, CachingAllocator::rounding); }

  void begin(BufferId b, std::uint32_t when) {
    const Buffer& buffer = schedule_[b];
    if (buffer.memory != memory_ || buffer.bytes == Bytes{0}) return;
    of_buffer_[b.index] = lives_.size();
    lives_.push_back({rounded(buffer.bytes), when, instants_.end()});
  }

  const Schedule& schedule_;
  MemoryId memory_;
  const Instants& instants_;
  std::vector<Lifetime> lives_;
  std::vector<std::optional<std::size_t>> of_buffer_;  ///< which of the lives
  std::vector<std::pair<StepId, std::size_t>> steps_;  ///< with a workspace: which of the lives
};

/// The device's first compute stream; one without any has no order of its own.
StreamId clock_of(const Schedule& schedule, DeviceId device) {
  const auto found = std::ranges::find_if(
      schedule.streams, [&](const Stream& stream) { return stream.device == device && stream.way == way::compute; });
  return id_at<StreamId>(static_cast<std::size_t>(found - schedule.streams.begin()));
}

}  // namespace

Addresses plan_addresses(const Schedule& schedule, const Platform& platform, OffsetSearch search) {
  Addresses addresses{.blocks = {}, .of_buffer = {}, .of_workspace = {}};
  addresses.of_buffer.resize(schedule.buffers.size());
  addresses.of_workspace.resize(schedule.steps.size());
  for (std::size_t d = 0; d < platform.devices.size(); ++d) {
    const Instants instants(schedule, clock_of(schedule, id_at<DeviceId>(d)));
    const Tenants tenants(schedule, platform, platform.devices[d].memory, instants);
    addresses.blocks.push_back(tenants.place(search, addresses));
  }
  return addresses;
}

}  // namespace plimsoll
