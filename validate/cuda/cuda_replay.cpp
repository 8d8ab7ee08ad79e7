#include "validate/cuda/cuda_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_objects.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/step_range.h"
#include "validate/device/issue_order.h"
#include "validate/networks/initial_values.h"
#include "validate/replay_plan.h"

namespace plimsoll {
namespace {

// Where a run's buffers and workspaces lie: every memory of the platform gives room in the order of issue, and says
// which steps used it before.

// Device memory from CUDA's own stream-ordered pool, for one run.

/// What the memory must know of the run: streams and finish events of its steps.
struct RunEvents {
  std::function<cudaStream_t(StreamId)> stream;
  std::function<cudaStream_t(StepId)> stream_of;
  std::function<cudaEvent_t(StepId)> finish_of;
};

/// cudaMallocAsync on the stream of the step that takes, cudaFreeAsync behind the steps that used it. The pool decides
/// what is used again, and orders it. What a run took is given back when this dies.
class StreamOrderedMemory : public RunMemory {
 public:
  /// `begins_empty`: the pool reserves anew, so that its peaks are this run's.
  StreamOrderedMemory(Gpu&, std::optional<Bytes> capacity, RunEvents, bool begins_empty);
  ~StreamOrderedMemory() override;

  std::optional<Grant> take(Bytes, StreamId) override;
  void give_back(std::byte*, Bytes, std::span<const StepId> by) override;
  std::optional<AllocatorPeaks> peaks() const override;

 private:
  Gpu& gpu_;
  std::optional<Bytes> capacity_;
  RunEvents events_;
  OwnedStream release_;  ///< frees what several streams used
  std::map<std::byte*, Bytes> taken_;
  Bytes live_;
};

/// The GPUs of a run: the platform's devices in order, or of a rank one, which is the first device.
struct GpuRange {
  std::size_t first = 0, count = 0;
  std::uint32_t rank = 0;

  bool has(DeviceId device) const { return device.index < count; }
  std::size_t of(DeviceId device) const { return first + device.index; }
};

/// What was asked for and is not there, with its step.
struct NoRoom {
  std::string what;
};

class RunRooms {
 public:
  /// `events` are those of the run's streams and steps, which outlive this.
  RunRooms(const Problem&, const Schedule&, const ReplayPlan&, CudaMachine&, const GpuRange&, Allocation,
           const RunEvents& events, bool begins_empty);

  /// What must come before a room is used: the end of steps, and the start of the one for which it was made.
  struct Opened {
    std::vector<StepId> after;
    std::optional<StepId> made_for = {};
  };

  /// Room for a buffer, for a step or before the first one. In a block of planned addresses the schedule's own waits
  /// are enough.
  Opened open(BufferId, std::optional<StepId>);
  /// The step has done with a buffer.
  void close(BufferId, StepId);
  /// For the step's workspace, which is not empty.
  Grant open_workspace(StepId);
  /// Of a step that may have none.
  void close_workspace(StepId);

  std::byte* address_of(BufferId b) const { return room_of(b).address + schedule_[b].range_offset.count; }
  std::byte* address_of(RegionId region) const { return rooms_[region.index].address; }
  /// Of what a call of the step reads or makes; null where there is nothing.
  std::byte* address_of(const Address&, StepId) const;

  std::vector<std::optional<AllocatorPeaks>> peaks() const;  ///< by memory

 private:
  /// What a region's bytes are made of while it is live.
  struct Room {
    std::byte* address = nullptr;
    std::uint32_t buffers = 0;
    std::vector<StepId> users;       ///< who freed buffers in it: what comes next waits for them
    std::optional<StepId> made_for;  ///< whose stream had it first
  };

  const Room& room_of(BufferId b) const { return rooms_[plan_.region_of[b.index].index]; }
  Room& room_of(BufferId b) { return rooms_[plan_.region_of[b.index].index]; }
  MemoryId own_memory(StepId s) const { return platform_[schedule_[schedule_[s].stream].device].memory; }
  StreamId home_of(DeviceId) const;
  StreamId taker(MemoryId, std::optional<StepId>) const;
  Grant taken(MemoryId, Bytes, std::optional<StepId>, const std::string& what);

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  GpuRange gpus_;
  std::vector<std::unique_ptr<RunMemory>> owned_memories_;  // by memory; the machine has those of hosts
  std::vector<RunMemory*> memories_;                        // by memory
  std::vector<StreamId> homes_;                             // by memory
  bool in_stream_order_;                                    // whether devices' memory comes when a stream gets there
  std::vector<std::byte*> blocks_;                          // by memory; null: its rooms come one by one
  std::vector<Room> rooms_;                                 // by region
  std::vector<std::byte*> workspaces_;                      // by step, while it runs
};

OwnedStream stream_on(const Gpu& gpu) {
  CUDA_CHECK(cudaSetDevice(gpu.ordinal));
  return new_stream();
}

Bytes attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t bytes = 0;
  CUDA_CHECK(cudaMemPoolGetAttribute(pool, which, &bytes));
  return Bytes{static_cast<std::int64_t>(bytes)};
}

/// The capacity, or what the GPU has if that is less: then the rules give back what they keep before they give up.
Bytes room_on(const Gpu& gpu, std::optional<Bytes> capacity) {
  CUDA_CHECK(cudaSetDevice(gpu.ordinal));
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const Bytes here = Bytes{static_cast<std::int64_t>(free)} + gpu.segments.kept();
  return capacity ? std::min(*capacity, here) : here;
}

StreamOrderedMemory::StreamOrderedMemory(Gpu& gpu, std::optional<Bytes> capacity, RunEvents events, bool begins_empty)
    : gpu_(gpu), capacity_(capacity), events_(std::move(events)), release_(stream_on(gpu)) {
  CUDA_CHECK(cudaDeviceSynchronize());
  if (begins_empty) CUDA_CHECK(cudaMemPoolTrimTo(gpu_.pool(), 0));
  for (const cudaMemPoolAttr high : {cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemHigh}) {
    std::uint64_t reset = 0;
    CUDA_CHECK(cudaMemPoolSetAttribute(gpu_.pool(), high, &reset));
  }
}

StreamOrderedMemory::~StreamOrderedMemory() {
  static_cast<void>(cudaSetDevice(gpu_.ordinal));
  static_cast<void>(cudaDeviceSynchronize());
  for (const auto& [address, bytes] : taken_) static_cast<void>(cudaFreeAsync(address, *release_));
  static_cast<void>(cudaStreamSynchronize(*release_));
}

std::optional<Grant> StreamOrderedMemory::take(Bytes bytes, StreamId stream) {
  if (bytes == Bytes{0}) return Grant{};
  if (capacity_ && live_ + bytes > *capacity_) return std::nullopt;
  void* made = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&made, static_cast<std::size_t>(bytes.count), gpu_.pool(), events_.stream(stream));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return std::nullopt;
  }
  check_cuda(status, "cudaMallocFromPoolAsync");
  auto* address = static_cast<std::byte*>(made);
  taken_[address] = bytes;
  live_ += bytes;
  return Grant{address, {}};
}

void StreamOrderedMemory::give_back(std::byte* address, Bytes bytes, std::span<const StepId> by) {
  if (bytes == Bytes{0}) return;
  cudaStream_t stream = *release_;
  if (by.size() == 1) {
    stream = events_.stream_of(by[0]);
  } else {
    for (const StepId user : by) CUDA_CHECK(cudaStreamWaitEvent(stream, events_.finish_of(user), 0));
  }
  CUDA_CHECK(cudaFreeAsync(address, stream));
  taken_.erase(address);
  live_ -= bytes;
}

std::optional<AllocatorPeaks> StreamOrderedMemory::peaks() const {
  return AllocatorPeaks{attribute(gpu_.pool(), cudaMemPoolAttrReservedMemHigh),
                        attribute(gpu_.pool(), cudaMemPoolAttrUsedMemHigh)};
}

/// The GPU whose memory this is; nothing for hosts and disks.
std::optional<std::size_t> gpu_of(const Platform& platform, MemoryId memory, const GpuRange& gpus) {
  const std::optional<DeviceId> device = platform[memory].device;
  return device ? std::optional<std::size_t>(gpus.of(*device)) : std::nullopt;
}

/// What its kernels take, which of a rank's is perhaps more than the schedule says.
Bytes workspace_of(const Schedule& schedule, const ReplayPlan& plan, StepId s) {
  return std::max(schedule[s].workspace, plan.steps[s.index].workspace);
}

/// A step as messages name it: `step 7 ('block2')`.
std::string text_of(const Graph& graph, const Schedule& schedule, StepId s) {
  const OpId op = schedule[s].op;
  return fmt::format("step {}{}", s.index, op == no_op ? "" : " ('" + graph[op].name + "')");
}

RunRooms::RunRooms(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, CudaMachine& machine,
                   const GpuRange& gpus, Allocation allocation, const RunEvents& events, bool begins_empty)
    : graph_(problem.graph),
      platform_(problem.platform),
      schedule_(schedule),
      plan_(plan),
      gpus_(gpus),
      in_stream_order_(allocation == Allocation::stream_ordered),
      rooms_(plan.regions.size()),
      workspaces_(schedule.steps.size(), nullptr) {
  for (std::size_t m = 0; m < platform_.memories.size(); ++m) {
    const Memory& memory = platform_.memories[m];
    std::unique_ptr<RunMemory>& own = owned_memories_.emplace_back();
    if (!memory.device) {
      KeptBlocks& host = machine.host(gpus.rank, id_at<MemoryId>(m));
      host.begin_run(memory.capacity);
      memories_.push_back(&host);
      homes_.emplace_back();
      continue;
    }
    if (!gpus.has(*memory.device)) {
      memories_.push_back(nullptr);
      homes_.emplace_back();
      continue;
    }
    Gpu& gpu = machine.gpu(gpus.of(*memory.device));
    if (allocation == Allocation::caching) {
      own = std::make_unique<CachingMemory>(gpu.segments, room_on(gpu, memory.capacity));
    } else {
      own = std::make_unique<StreamOrderedMemory>(gpu, memory.capacity, events, begins_empty);
    }
    memories_.push_back(own.get());
    homes_.push_back(home_of(*memory.device));
  }
  machine.staging(gpus.rank).begin_run(std::nullopt);
  blocks_.resize(memories_.size(), nullptr);
  for (std::size_t m = 0; m < plan_.blocks.size(); ++m) {
    if (!plan_.blocks[m]) continue;
    blocks_[m] = taken(id_at<MemoryId>(m), *plan_.blocks[m], std::nullopt, "the block of planned addresses").address;
  }
}

/// What no stream of the device allocates belongs to its first compute stream, as sim/memory has it.
StreamId RunRooms::home_of(DeviceId device) const {
  for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
    const Stream& stream = schedule_.streams[s];
    if (stream.device == device && stream.way == way::compute) return id_at<StreamId>(s);
  }
  return StreamId{};
}

/// Memory in stream order belongs to the stream of the step that asks, on whichever device: its order is then that of
/// allocation and use. A stream of another device has no blocks of the caching rules.
StreamId RunRooms::taker(MemoryId memory, std::optional<StepId> s) const {
  const bool is_own = s && (in_stream_order_ || own_memory(*s) == memory);
  return is_own ? schedule_[*s].stream : homes_[memory.index];
}

Grant RunRooms::taken(MemoryId memory, Bytes bytes, std::optional<StepId> s, const std::string& what) {
  const StreamId stream = taker(memory, s);
  if (const std::optional<std::size_t> gpu = gpu_of(platform_, memory, gpus_)) set_gpu(*gpu);
  std::optional<Grant> grant = memories_[memory.index]->take(bytes, stream);
  if (grant) return std::move(*grant);
  const std::string when = s ? text_of(graph_, schedule_, *s) : std::string("before the first step");
  throw NoRoom{fmt::format("out of memory in '{}': {}: {} needs {} B, the allocator has no more",
                           platform_[memory].name, when, what, bytes.count)};
}

RunRooms::Opened RunRooms::open(BufferId b, std::optional<StepId> s) {
  const Buffer& buffer = schedule_[b];
  Room& room = room_of(b);
  if (room.buffers++ > 0) return {room.users, room.made_for};
  const auto& [memory, bytes, at] = plan_.regions[plan_.region_of[b.index].index];
  if (at) {
    room.address = blocks_[memory.index] + at->count;
    return {};
  }
  Grant grant = taken(buffer.memory, bytes, s, fmt::format("buffer {} ('{}')", b.index, graph_[buffer.tensor].name));
  room.address = grant.address;
  room.made_for = s;
  return {std::move(grant.after)};
}

void RunRooms::close(BufferId b, StepId s) {
  Room& room = room_of(b);
  room.users.push_back(s);
  if (--room.buffers > 0) return;
  const Region& region = plan_.regions[plan_.region_of[b.index].index];
  if (!region.at) memories_[region.memory.index]->give_back(room.address, region.bytes, room.users);
  room = {};
}

Grant RunRooms::open_workspace(StepId s) {
  const std::optional<Bytes>& at = plan_.steps[s.index].workspace_at;
  if (at) {
    workspaces_[s.index] = blocks_[own_memory(s).index] + at->count;
    return {workspaces_[s.index], {}};
  }
  Grant grant = taken(own_memory(s), workspace_of(schedule_, plan_, s), s, "its workspace");
  workspaces_[s.index] = grant.address;
  return grant;
}

void RunRooms::close_workspace(StepId s) {
  std::byte* workspace = std::exchange(workspaces_[s.index], nullptr);
  if (workspace == nullptr || plan_.steps[s.index].workspace_at) return;
  memories_[own_memory(s).index]->give_back(workspace, workspace_of(schedule_, plan_, s), std::span(&s, 1));
}

std::byte* RunRooms::address_of(const Address& address, StepId s) const {
  std::byte* base = address.region ? address_of(*address.region) : workspaces_[s.index];
  return base == nullptr ? nullptr : base + address.offset.count;
}

std::vector<std::optional<AllocatorPeaks>> RunRooms::peaks() const {
  std::vector<std::optional<AllocatorPeaks>> all;
  for (const std::unique_ptr<RunMemory>& memory : owned_memories_) {
    all.push_back(memory ? memory->peaks() : std::nullopt);
  }
  return all;
}

/// Bytes that a step poisons before it begins.
struct Stain {
  MemoryId memory;
  std::byte* address = nullptr;
  Bytes bytes;
};

/// One run on the devices of a platform, or on the one of a rank.
class CudaReplay {
 public:
  CudaReplay(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, CudaNetwork& cuda,
             CudaMachine& machine, const GpuRange& gpus, Allocation allocation, const ReplayOptions& options)
      : graph_(problem.graph),
        platform_(problem.platform),
        schedule_(schedule),
        plan_(plan),
        cuda_(cuda),
        machine_(machine),
        gpus_(gpus),
        options_(options) {
    make_streams();
    if (allocation == Allocation::stream_ordered) make_free_events();
    rooms_.emplace(problem, schedule, plan, machine, gpus, allocation,
                   RunEvents{[this](StreamId s) { return *streams_[s.index]; },
                             [this](StepId s) { return stream_of(s); }, [this](StepId s) { return finish_of(s); }},
                   options.empties_pools);
  }

  /// Data, and clocks.
  void prepare() {
    make_inputs();
    make_resident();
    begin_clocks();
  }

  /// The step takes memory and waits for what comes before it; then its clock begins.
  void begin(StepId);
  void load(StepId);
  void copy(StepId);
  /// Its clock ends.
  void finish(StepId s) {
    set_gpu(gpu_of(s));
    CUDA_CHECK(cudaEventRecord(finish_of(s), stream_of(s)));
  }
  /// What it has done with may be given to others.
  void end(StepId);

  cudaStream_t stream_of(StepId s) const { return *streams_[schedule_[s].stream.index]; }
  KernelArguments arguments_of(StepId, const PlannedCall&) const;
  /// Of a call that accumulates: its contribution is made in the workspace.
  KernelArguments contribution(const PlannedCall& call, const KernelArguments& sum) const {
    return contribution_arguments(cuda_.network.graph, cuda_.network.graph[call.op], sum);
  }
  /// `made`: where the kernel makes its results, of a call that accumulates its contribution.
  void compute(StepId, const PlannedCall&, const KernelArguments& made);
  /// Adds the contribution of a call that accumulates: the same sum in the same order as plain training's.
  void add(StepId, const PlannedCall&, const KernelArguments& sum, const KernelArguments& made);

  Replayed measured(std::span<const IssueEvent> order) {
    synchronize();
    Replayed measured;
    measured.timeline = measured_timeline(schedule_, platform_, order, dates());
    measured.allocators = rooms_->peaks();
    if (options_.keeps_values) keep_values(measured);
    return measured;
  }

 private:
  // --- before: streams, events, memories, data

  std::size_t gpu_of(StreamId stream) const { return gpus_.of(schedule_[stream].device); }
  std::size_t gpu_of(StepId step) const { return gpu_of(schedule_[step].stream); }
  std::optional<std::size_t> gpu_of(MemoryId memory) const { return plimsoll::gpu_of(platform_, memory, gpus_); }

  void make_streams() {
    for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
      machine_.gpu(gpu_of(id_at<StreamId>(s)));
      set_gpu(gpu_of(id_at<StreamId>(s)));
      streams_.push_back(new_stream());
    }
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      set_gpu(gpu_of(id_at<StepId>(s)));
      starts_.push_back(new_event());
      finishes_.push_back(new_event());
    }
  }

  bool frees(StepId s) const {
    return !schedule_.buffers_in(schedule_[s].frees).empty() || workspace_of(schedule_, plan_, s) > Bytes{0};
  }

  void make_free_events() {
    frees_.resize(schedule_.steps.size());
    for (std::size_t s = 0; s < frees_.size(); ++s) {
      if (!frees(id_at<StepId>(s))) continue;
      set_gpu(gpu_of(id_at<StepId>(s)));
      frees_[s] = new_event();
    }
  }

  cudaEvent_t finish_of(StepId s) const { return *finishes_[s.index]; }

  /// Inputs wait in pinned memory, so that loading is one copy.
  void make_inputs() {
    if (cuda_.inputs.size() != schedule_.micro_batches) {
      cuda_.inputs = input_values(cuda_.network, schedule_.micro_batches);
    }
    for (const std::vector<std::byte>& value : cuda_.inputs) {
      const Bytes bytes{static_cast<std::int64_t>(value.size())};
      const std::optional<Grant> grant = machine_.staging(gpus_.rank).take(bytes, StreamId{});
      if (!grant) throw NoRoom{fmt::format("out of memory on the host: inputs need {} B", bytes.count)};
      std::ranges::copy(value, grant->address);
      inputs_.emplace_back(grant->address, bytes);
    }
  }

  void make_resident() {
    std::map<std::string, const Tensor*> known;  // the network's tensors have shapes, by which numbers are scaled
    for (const Tensor& tensor : cuda_.network.graph.tensors) known[tensor.name] = &tensor;
    for (const BufferId b : schedule_.resident) rooms_->open(b, std::nullopt);
    synchronize();  // stream-ordered memory is there when its stream has come to it
    for (const BufferId b : schedule_.resident) {
      const Buffer& buffer = schedule_[b];
      const Tensor& tensor = *known.at(graph_[buffer.tensor].name);
      if (tensor.kind != TensorKind::parameter) {  // begins as zeros
        fill_now(buffer.memory, rooms_->address_of(b), buffer.range_length);
        continue;
      }
      std::vector<std::byte>& value = cuda_.initial_values[tensor.name];
      if (value.empty()) value = initial_value(tensor);
      copy_now(rooms_->address_of(b), value.data() + buffer.range_offset.count, buffer.range_length);
    }
    synchronize();
  }

  void fill_now(MemoryId memory, std::byte* address, Bytes bytes) const {
    const auto size = static_cast<std::size_t>(bytes.count);
    if (size == 0) return;
    if (gpu_of(memory)) {
      set_gpu(*gpu_of(memory));
      CUDA_CHECK(cudaMemset(address, 0, size));
    } else {
      std::memset(address, 0, size);
    }
  }

  static void copy_now(void* to, const void* from, Bytes bytes) {
    if (bytes == Bytes{0}) return;
    CUDA_CHECK(cudaMemcpy(to, from, static_cast<std::size_t>(bytes.count), cudaMemcpyDefault));
  }

  void synchronize() {
    for (std::size_t g = 0; g < gpus_.count; ++g) {
      set_gpu(gpus_.first + g);
      CUDA_CHECK(cudaDeviceSynchronize());
    }
  }

  /// One base event a device, all at one moment as far as the host can see.
  void begin_clocks() {
    std::vector<OwnedStream> streams;
    for (std::size_t g = 0; g < gpus_.count; ++g) {
      set_gpu(gpus_.first + g);
      streams.push_back(new_stream());
      bases_.push_back(new_event());
    }
    synchronize();
    for (std::size_t g = 0; g < bases_.size(); ++g) {
      set_gpu(gpus_.first + g);
      CUDA_CHECK(cudaEventRecord(*bases_[g], *streams[g]));
    }
    synchronize();
  }

  // --- the life of a step

  void wait_for(StepId s, StepId earlier);
  void poison(const Stain&, StepId);
  void on_host(StepId, std::function<void()> work);

  // --- after

  static Seconds between(cudaEvent_t base, cudaEvent_t event) {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, base, event));
    return Seconds{double{milliseconds} / 1e3};
  }

  std::vector<Interval> dates() const {
    std::vector<Interval> dates;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const OwnedEvent& base = bases_[gpu_of(id_at<StepId>(s)) - gpus_.first];
      dates.push_back({between(*base, *starts_[s]), between(*base, *finishes_[s])});
    }
    return dates;
  }

  void keep_values(Replayed& measured) {
    for (const BufferId b : left_at_end(schedule_)) {
      const Buffer& buffer = schedule_[b];
      const Tensor& tensor = graph_[buffer.tensor];
      if (per_micro_batch(tensor.kind)) continue;
      std::vector<std::byte>& value = measured.values[tensor.name];
      value.resize(static_cast<std::size_t>(tensor.bytes.count));
      copy_now(value.data() + buffer.range_offset.count, rooms_->address_of(b), buffer.range_length);
    }
  }

  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  CudaNetwork& cuda_;
  CudaMachine& machine_;
  GpuRange gpus_;
  const ReplayOptions& options_;

  std::vector<std::unique_ptr<std::function<void()>>> host_work_;  // until the streams are done with it
  std::vector<OwnedStream> streams_;                               // by stream
  std::vector<OwnedEvent> starts_, finishes_;                      // by step
  std::vector<OwnedEvent> frees_;                                  // by step that frees in stream order; else empty
  std::vector<OwnedEvent> bases_;                                  // by device
  std::optional<RunRooms> rooms_;                                  // after what its memories wait for
  std::vector<std::pair<std::byte*, Bytes>> inputs_;               // by micro-batch
};

void CudaReplay::begin(StepId s) {
  const Step& step = schedule_[s];
  set_gpu(gpu_of(s));
  // The schedule's own waits come before what is allocated: a pool gives a stream what others freed before that.
  const std::set<StepId> waits(schedule_.waits_of(step).begin(), schedule_.waits_of(step).end());
  for (const StepId earlier : waits) wait_for(s, earlier);
  std::set<StepId> after, makers;
  std::vector<Stain> stains;
  for (const BufferId b : schedule_.buffers_in(step.allocates)) {
    const RunRooms::Opened opened = rooms_->open(b, s);
    after.insert(opened.after.begin(), opened.after.end());
    if (opened.made_for) makers.insert(*opened.made_for);
    stains.push_back({schedule_[b].memory, rooms_->address_of(b), schedule_[b].range_length});
  }
  if (const Bytes workspace = workspace_of(schedule_, plan_, s); workspace > Bytes{0}) {
    const Grant grant = rooms_->open_workspace(s);
    after.insert(grant.after.begin(), grant.after.end());
    stains.push_back({platform_[schedule_[step.stream].device].memory, grant.address, workspace});
  }
  set_gpu(gpu_of(s));
  // A wait that other waits imply costs next to nothing, so none is left out; the stream's own order needs none.
  for (const StepId earlier : after) {
    if (!waits.contains(earlier)) wait_for(s, earlier);
  }
  for (const StepId maker : makers) {
    if (schedule_[maker].stream == step.stream) continue;
    CUDA_CHECK(cudaStreamWaitEvent(stream_of(s), *starts_[maker.index], 0));
  }
  if (options_.poisons) {
    for (const Stain& stain : stains) poison(stain, s);
  }
  CUDA_CHECK(cudaEventRecord(*starts_[s.index], stream_of(s)));
}

/// For the end of another stream's step, with what it freed.
void CudaReplay::wait_for(StepId s, StepId earlier) {
  if (schedule_[earlier].stream == schedule_[s].stream) return;
  const bool with_frees = !frees_.empty() && *frees_[earlier.index] != nullptr;
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(s), with_frees ? *frees_[earlier.index] : finish_of(earlier), 0));
}

void CudaReplay::end(StepId s) {
  set_gpu(gpu_of(s));
  rooms_->close_workspace(s);
  for (const BufferId b : schedule_.buffers_in(schedule_[s].frees)) rooms_->close(b, s);
  if (frees_.empty() || *frees_[s.index] == nullptr) return;
  CUDA_CHECK(cudaEventRecord(*frees_[s.index], stream_of(s)));
}

void CudaReplay::poison(const Stain& stain, StepId s) {
  const auto size = static_cast<std::size_t>(stain.bytes.count);
  if (size == 0) return;
  if (gpu_of(stain.memory)) {
    CUDA_CHECK(cudaMemsetAsync(stain.address, 0xFF, size, stream_of(s)));
  } else {
    on_host(s, [=] { std::memset(stain.address, 0xFF, size); });
  }
}

/// In stream order, on a thread of the driver: no CUDA call, no exception.
void CudaReplay::on_host(StepId s, std::function<void()> work) {
  host_work_.push_back(std::make_unique<std::function<void()>>(std::move(work)));
  const auto run = [](void* function) { (*static_cast<std::function<void()>*>(function))(); };
  CUDA_CHECK(cudaLaunchHostFunc(stream_of(s), run, host_work_.back().get()));
}

void CudaReplay::load(StepId s) {
  for (const PlannedLoad& load : plan_.steps[s.index].loads) {
    const auto& [address, bytes] = inputs_[load.micro_batch];
    CUDA_CHECK(cudaMemcpyAsync(rooms_->address_of(load.region), address, static_cast<std::size_t>(bytes.count),
                               cudaMemcpyDefault, stream_of(s)));
  }
}

KernelArguments CudaReplay::arguments_of(StepId s, const PlannedCall& call) const {
  KernelArguments arguments;
  for (const Address& a : call.inputs) arguments.inputs.push_back(rooms_->address_of(a, s));
  for (const Address& a : call.outputs) arguments.outputs.push_back(rooms_->address_of(a, s));
  arguments.scratch = rooms_->address_of({std::nullopt, call.scratch}, s);
  if (call.statistics)
    arguments.statistics = static_cast<float*>(static_cast<void*>(rooms_->address_of({call.statistics, {}}, s)));
  return arguments;
}

void CudaReplay::compute(StepId s, const PlannedCall& call, const KernelArguments& made) {
  if (schedule_[schedule_[s].stream].way.computes_elsewhere()) {
    return on_host(s, [&kernel = cuda_.host_kernels[call.op.index], made] { kernel(made); });
  }
  set_gpu(gpu_of(s));
  const Gpu& gpu = machine_.gpu(gpu_of(s));
  cuda_.kernels[call.op.index].run(made, {stream_of(s), *gpu.blas, *gpu.dnn});
}

void CudaReplay::add(StepId s, const PlannedCall& call, const KernelArguments& sum, const KernelArguments& made) {
  set_gpu(gpu_of(s));
  const Graph& network = cuda_.network.graph;
  const Op& op = network[call.op];
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    launch::accumulate(sum.out(i), made.out(i), network[op.outputs[i]].bytes.count / 4, stream_of(s));
  }
}

void CudaReplay::copy(StepId s) {
  if (!plan_.steps[s.index].copy) return;
  const PlannedCopy& copy = *plan_.steps[s.index].copy;
  const MemoryId from = plan_.regions[copy.from.index].memory, to = plan_.regions[copy.to.index].memory;
  const std::byte* source = rooms_->address_of(copy.from) + copy.offset.count;
  std::byte* target = rooms_->address_of(copy.to) + copy.offset.count;
  const auto size = static_cast<std::size_t>(copy.bytes.count);
  if (size == 0) return;
  const std::optional<std::size_t> from_gpu = gpu_of(from), to_gpu = gpu_of(to);
  if (from_gpu && to_gpu) {
    CUDA_CHECK(cudaMemcpyPeerAsync(target, static_cast<int>(*to_gpu), source, static_cast<int>(*from_gpu), size,
                                   stream_of(s)));
  } else if (from_gpu || to_gpu) {
    CUDA_CHECK(cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, stream_of(s)));
  } else {
    on_host(s, [=] { std::memcpy(target, source, size); });  // CUDA's own copy would hold the issuing thread
  }
}

/// The runs of all ranks in step, or of one network on all devices: one thread gives each step to all before the next.
class RunsInStep {
 public:
  RunsInStep(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, RankExchanges* exchanges)
      : graph_(problem.graph), schedule_(schedule), plan_(plan), exchanges_(exchanges) {}

  void add(std::unique_ptr<CudaReplay> run) { runs_.push_back(std::move(run)); }

  std::vector<Replayed> run(const ReplayOptions& options) {
    each([](CudaReplay& run) { run.prepare(); });
    if (exchanges_ != nullptr) exchanges_->begin_run(options.poisons);
    const std::vector<IssueEvent> order = issue_order(schedule_, options.expected);
    for (const IssueEvent event : order) {
      try {
        event.begins ? begin(event.step) : each([&](CudaReplay& run) { run.end(event.step); });
      } catch (const CudaError& error) {
        throw CudaError(fmt::format("{}: {}", text_of(graph_, schedule_, event.step), error.what()));
      }
    }
    std::vector<Replayed> all;
    each([&](CudaReplay& run) { all.push_back(run.measured(order)); });
    return all;
  }

  std::size_t at() const { return at_; }  ///< whose turn it is
  void end() { runs_.clear(); }

 private:
  template <class Work>
  void each(Work work) {
    for (at_ = 0; at_ < runs_.size(); ++at_) work(*runs_[at_]);
    at_ = 0;
  }

  void begin(StepId s) {
    each([&](CudaReplay& run) { run.begin(s); });
    const StepRange range(text_of(graph_, schedule_, s));
    each([&](CudaReplay& run) { run.load(s); });
    for (const PlannedCall& call : plan_.steps[s.index].calls) issue(s, call);
    each([&](CudaReplay& run) {
      run.copy(s);
      run.finish(s);
    });
  }

  void issue(StepId s, const PlannedCall& call) {
    const bool exchanges = exchanges_ != nullptr && exchanges_->exchanges(call.op);
    std::vector<RankCall> brought;
    each([&](CudaReplay& run) {
      const KernelArguments sum = run.arguments_of(s, call);
      const KernelArguments made = call.accumulates ? run.contribution(call, sum) : sum;
      brought.push_back({made, run.stream_of(s)});
      if (exchanges) return;
      run.compute(s, call, made);
      if (call.accumulates) run.add(s, call, sum, made);
    });
    if (!exchanges) return;
    exchanges_->issue(call.op, brought);
    each([&](CudaReplay& run) {
      if (call.accumulates) run.add(s, call, run.arguments_of(s, call), brought[at_].arguments);
    });
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const ReplayPlan& plan_;
  RankExchanges* exchanges_;
  std::vector<std::unique_ptr<CudaReplay>> runs_;
  std::size_t at_ = 0;
};

/// Waits for what has been issued; what went wrong has been said.
void drain(std::size_t gpus) {
  for (std::size_t g = 0; g < gpus; ++g) {
    static_cast<void>(cudaSetDevice(static_cast<int>(g)));
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(cudaGetLastError());
  }
}

std::optional<ReplayFailure> refusal(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                                     const CudaNetwork& cuda, const RankExchanges* exchanges) {
  if (!plan.sums.empty()) return ReplayFailure{"the CUDA backend has no collectives"};
  const auto makes_version = [](const PlannedStep& step) { return !step.versions.empty(); };
  if (std::ranges::any_of(plan.steps, makes_version)) {
    return ReplayFailure{"the CUDA backend updates in place only: it keeps no versions of a parameter"};
  }
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    if (const std::optional<PlannedConversion>& conversion = plan.steps[s].conversion) {
      return ReplayFailure{fmt::format("step {}: the CUDA backend has no kernel for '{}' of '{}'", s,
                                       text_of(conversion->codec), problem.graph[conversion->tensor].name)};
    }
    if (plan.steps[s].addition) {
      return ReplayFailure{fmt::format("step {}: the CUDA backend adds no gradients of several devices", s)};
    }
    const bool on_host = schedule[schedule.steps[s].stream].way.computes_elsewhere();
    for (const PlannedCall& call : plan.steps[s].calls) {
      if (exchanges != nullptr && exchanges->exchanges(call.op)) continue;
      if (on_host ? !!cuda.host_kernels[call.op.index] : !!cuda.kernels[call.op.index].run) continue;
      const Op& op = cuda.network.graph[call.op];
      return ReplayFailure{fmt::format("step {} ('{}'): the CUDA backend has no {}kernel of kind '{}'", s, op.name,
                                       on_host ? "host " : "", op.kind)};
    }
  }
  return std::nullopt;
}

/// On the platform's devices where nothing is exchanged, else one rank on each GPU.
std::variant<std::vector<Replayed>, ReplayFailure> replayed(const Problem& problem, const Schedule& schedule,
                                                            const ReplayPlan& plan, std::span<CudaNetwork> networks,
                                                            RankExchanges* exchanges, CudaMachine& machine,
                                                            Allocation allocation, const ReplayOptions& options) {
  for (const CudaNetwork& network : networks) {
    if (std::optional<ReplayFailure> refused = refusal(problem, schedule, plan, network, exchanges)) return *refused;
  }
  const bool is_one = exchanges == nullptr;
  ReplayFailure failure;
  RunsInStep runs(problem, schedule, plan, exchanges);
  std::size_t made = 0;
  const auto whose = [&] { return is_one ? std::string() : fmt::format("rank {}: ", runs.at() + made); };
  try {
    for (std::uint32_t r = 0; r < networks.size(); ++r, ++made) {
      const GpuRange gpus = is_one ? GpuRange{.first = 0, .count = problem.platform.devices.size()} : GpuRange{r, 1, r};
      runs.add(std::make_unique<CudaReplay>(problem, schedule, plan, networks[r], machine, gpus, allocation, options));
    }
    made = 0;
    try {
      return runs.run(options);
    } catch (...) {
      drain(is_one ? problem.platform.devices.size() : networks.size());  // before the memory that the steps use goes
      throw;
    }
  } catch (const NoRoom& error) {
    failure.what = whose() + error.what;
  } catch (const CudaError& error) {
    failure.what = whose() + error.what();
  }
  runs.end();
  machine.release();
  return failure;
}

}  // namespace

std::variant<Replayed, ReplayFailure> replay_on_cuda(const Problem& problem, const Schedule& schedule,
                                                     const ReplayPlan& plan, CudaNetwork& cuda, CudaMachine& machine,
                                                     Allocation allocation, const ReplayOptions& options) {
  const std::size_t devices = problem.platform.devices.size(), gpus = machine.gpus();
  if (devices > gpus) {
    return ReplayFailure{fmt::format("platform '{}' has {} devices, this machine {} GPU{}", problem.platform.name,
                                     devices, gpus, gpus == 1 ? "" : "s")};
  }
  auto all = replayed(problem, schedule, plan, std::span(&cuda, 1), nullptr, machine, allocation, options);
  if (ReplayFailure* failure = std::get_if<ReplayFailure>(&all)) return std::move(*failure);
  return std::move(std::get<std::vector<Replayed>>(all).front());
}

std::variant<std::vector<Replayed>, ReplayFailure> replay_ranks_on_cuda(
    const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, std::span<CudaNetwork> ranks,
    RankExchanges& exchanges, CudaMachine& machine, Allocation allocation, const ReplayOptions& options) {
  if (std::ranges::any_of(schedule.streams, [](const Stream& stream) { return stream.device != DeviceId{0}; })) {
    return ReplayFailure{"ranks of several devices each: the CUDA backend runs those of one device"};
  }
  return replayed(problem, schedule, plan, ranks, &exchanges, machine, allocation, options);
}

}  // namespace plimsoll
