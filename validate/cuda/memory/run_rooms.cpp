#include "validate/cuda/memory/run_rooms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>


namespace plimsoll {
namespace {

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

}  // namespace

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

std::optional<std::size_t> gpu_of(const Platform& platform, MemoryId memory, const GpuRange& gpus) {
  const std::optional<DeviceId> device = platform[memory].device;
  return device ? std::optional<std::size_t>(gpus.of(*device)) : std::nullopt;
}

Bytes workspace_of(const Schedule& schedule, const ReplayPlan& plan, StepId s) {
  return std::max(schedule[s].workspace, plan.steps[s.index].workspace);
}

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

}  // namespace plimsoll
