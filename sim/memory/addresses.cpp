#include "sim/memory/addresses.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/core/expects.h"
#include "sim/judge/workspace_memories.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/live_pieces.h"
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
        buffers_.emplace_back();
        lives_.push_back({rounded(step.workspace), instants.before(id), instants.after(id)});
      }
      for (const BufferId b : schedule.buffers_in(step.frees)) {
        if (of_buffer_[b.index]) lives_[*of_buffer_[b.index]].end = instants.after(id);
      }
    }
    join_parts();
  }

  AddressBlock place(OffsetSearch search, Addresses& addresses) const {
    const OffsetPlan plan = has_parts_ ? plan_by_pieces(search) : assign_offsets(lives_, search);
    for (std::size_t b = 0; b < of_buffer_.size(); ++b) {
      if (of_buffer_[b]) addresses.of_buffer[b] = plan.offsets[*of_buffer_[b]];
    }
    for (const auto& [step, life] : steps_) addresses.of_workspace[step.index] = plan.offsets[life];
    return {memory_, plan.size, plan.load, plan.is_optimal};
  }

 private:
  static constexpr Bytes unit = CachingAllocator::rounding;
  using Value = std::tuple<TensorId, std::uint32_t, std::uint32_t, CodecId>;

  /// Each in a piece of its own but for the parts that a step takes together.
  void join_parts() {
    piece_of_.resize(lives_.size());
    std::iota(piece_of_.begin(), piece_of_.end(), std::size_t{0});
    for (const std::size_t piece : piece_of_) in_piece_.push_back({piece});
    for (const Step& step : schedule_.steps) {
      if (step.op != no_op && !step.work.is_transfer()) join_parts(step);
    }
  }

  void join_parts(const Step& step) {
    std::map<Value, std::size_t> first;
    for (const Slice slice : {step.reads, step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (!of_buffer_[b.index]) continue;
        const Buffer& buffer = schedule_[b];
        const Value value{buffer.tensor, buffer.micro_batch, buffer.replica, buffer.codec};
        const std::size_t life = *of_buffer_[b.index], other = first.try_emplace(value, life).first->second;
        if (piece_of_[other] != piece_of_[life]) join(piece_of_[other], piece_of_[life]);
      }
    }
  }

  void join(std::size_t into, std::size_t from) {
    for (const std::size_t one : in_piece_[into]) {
      for (const std::size_t other : in_piece_[from]) {
        if (may_meet(one, other)) return;
      }
    }
    for (const std::size_t life : in_piece_[from]) piece_of_[life] = into;
    in_piece_[into].insert(in_piece_[into].end(), in_piece_[from].begin(), in_piece_[from].end());
    in_piece_[from].clear();
    has_parts_ = true;
  }

  /// Whether both may be there with the same bytes of their value.
  bool may_meet(std::size_t one, std::size_t other) const {
    if (lives_[one].begin >= lives_[other].end || lives_[other].begin >= lives_[one].end) return false;
    const Buffer &a = schedule_[*buffers_[one]], &b = schedule_[*buffers_[other]];
    return a.range_offset < b.range_offset + b.range_length && b.range_offset < a.range_offset + a.range_length;
  }

  /// Offsets by life.
  OffsetPlan plan_by_pieces(OffsetSearch search) const {
    std::vector<LivePiece> pieces;
    std::vector<Bytes> offsets(lives_.size());
    for (const std::vector<std::size_t>& parts : in_piece_) {
      if (parts.empty()) continue;
      pieces.emplace_back();
      for (const std::size_t life : parts) pieces.back().parts.push_back(part_of(life, parts));
    }
    constexpr std::int64_t pairs_a_node = 10'000;  // a try looks at all pairs
    const auto lives = static_cast<std::int64_t>(lives_.size());
    const std::int64_t tries =
        lives_.size() > search.most_buffers ? 0 : std::min(search.nodes, pairs_a_node * search.nodes / (lives * lives));
    OffsetPlan plan = assign_pieces(pieces, unit, static_cast<std::size_t>(tries));
    std::size_t piece = 0;
    for (const std::vector<std::size_t>& parts : in_piece_) {
      for (const std::size_t life : parts) offsets[life] = plan.offsets[piece] + part_of(life, parts).above;
      piece += parts.empty() ? 0 : 1;
    }
    plan.offsets = std::move(offsets);
    return plan;
  }

  /// Of a piece with more than one part none is rounded.
  LivePiece::Part part_of(std::size_t life, const std::vector<std::size_t>& parts) const {
    if (parts.size() == 1) return {lives_[life], {}};
    const auto begins = [&](std::size_t part) { return schedule_[*buffers_[part]].range_offset; };
    const Buffer& buffer = schedule_[*buffers_[life]];
    return {{buffer.bytes, lives_[life].begin, lives_[life].end},
            buffer.range_offset - begins(std::ranges::min(parts, {}, begins))};
  }

  static Bytes rounded(Bytes bytes) { return round_up(bytes, unit); }

  void begin(BufferId b, std::uint32_t when) {
    const Buffer& buffer = schedule_[b];
    if (buffer.memory != memory_ || buffer.bytes == Bytes{0}) return;
    of_buffer_[b.index] = lives_.size();
    buffers_.emplace_back(b);
    lives_.push_back({rounded(buffer.bytes), when, instants_.end()});
  }

  const Schedule& schedule_;
  MemoryId memory_;
  const Instants& instants_;
  std::vector<Lifetime> lives_;
  std::vector<std::optional<BufferId>> buffers_;       ///< by life; unset: a workspace
  std::vector<std::optional<std::size_t>> of_buffer_;  ///< which of the lives
  std::vector<std::pair<StepId, std::size_t>> steps_;  ///< with a workspace: which of the lives
  std::vector<std::size_t> piece_of_;                  ///< by life
  std::vector<std::vector<std::size_t>> in_piece_;     ///< lives; none where they have gone to another one
  bool has_parts_ = false;                             ///< some piece has several
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
