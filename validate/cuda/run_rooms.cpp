#include "validate/cuda/run_rooms.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace plimsoll {
namespace {

/// The capacity, or what the GPU has if that is less: then the rules give back what they keep before they give up.
Bytes room_on(const Gpu& gpu, std::optional<Bytes> capacity) {
  CUDA_CHECK(cudaSetDevice(gpu.ordinal));
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const Bytes here = Bytes{static_cast<std::int64_t>(free)} + gpu.segments.kept();
  return capacity ? std::min(*capacity, here) : here;
}

}  // namespace

std::optional<std::size_t> gpu_of(const Platform& platform, MemoryId memory) {
  const std::optional<DeviceId> device = platform[memory].device;
  return device ? std::optional<std::size_t>(device->index) : std::nullopt;
}

std::string text_of(const Graph& graph, const Schedule& schedule, StepId s) {
  const OpId op = schedule[s].op;
  return fmt::format("step {}{}", s.index, op == no_op ? "" : " ('" + graph[op].name + "')");
}

RunRooms::RunRooms(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan, CudaMachine& machine,
                   Allocation allocation, const RunEvents& events)
    : graph_(problem.graph),
      platform_(problem.platform),
      schedule_(schedule),
      plan_(plan),
      rooms_(plan.regions.size()),
      workspaces_(schedule.steps.size(), nullptr) {
  for (std::size_t m = 0; m < platform_.memories.size(); ++m) {
    const Memory& memory = platform_.memories[m];
    std::unique_ptr<RunMemory>& own = owned_memories_.emplace_back();
    if (!memory.device) {
      machine.host(id_at<MemoryId>(m)).begin_run(memory.capacity);
      memories_.push_back(&machine.host(id_at<MemoryId>(m)));
      homes_.emplace_back();
      continue;
    }
    Gpu& gpu = machine.gpu(memory.device->index);
    if (allocation == Allocation::caching) {
      own = std::make_unique<CachingMemory>(gpu.segments, room_on(gpu, memory.capacity));
    } else {
      own = std::make_unique<StreamOrderedMemory>(gpu, memory.capacity, events);
    }
    memories_.push_back(own.get());
    homes_.push_back(home_of(*memory.device));
  }
  machine.staging().begin_run(std::nullopt);
}

/// What no stream of the device allocates belongs to its first compute stream, as sim/memory has it.
StreamId RunRooms::home_of(DeviceId device) const {
  for (std::size_t s = 0; s < schedule_.streams.size(); ++s) {
    const Stream& stream = schedule_.streams[s];
    if (stream.device == device && stream.way == way::compute) return id_at<StreamId>(s);
  }
  return StreamId{};
}

Grant RunRooms::taken(MemoryId memory, Bytes bytes, std::optional<StepId> s, const std::string& what) {
  StreamId stream = homes_[memory.index];
  if (s && own_memory(*s) == memory) stream = schedule_[*s].stream;
  if (const std::optional<std::size_t> gpu = gpu_of(platform_, memory)) set_gpu(*gpu);
  std::optional<Grant> grant = memories_[memory.index]->take(bytes, stream);
  if (grant) return std::move(*grant);
  const std::string when = s ? text_of(graph_, schedule_, *s) : std::string("before the first step");
  throw NoRoom{fmt::format("out of memory in '{}': {}: {} needs {} B, the allocator has no more",
                           platform_[memory].name, when, what, bytes.count)};
}

std::vector<StepId> RunRooms::open(BufferId b, std::optional<StepId> s) {
  const Buffer& buffer = schedule_[b];
  Room& room = room_of(b);
  if (room.buffers++ > 0) return room.users;
  const Bytes bytes = plan_.regions[plan_.region_of[b.index].index].bytes;
  Grant grant = taken(buffer.memory, bytes, s, fmt::format("buffer {} ('{}')", b.index, graph_[buffer.tensor].name));
  room.address = grant.address;
  return std::move(grant.after);
}

void RunRooms::close(BufferId b, StepId s) {
  Room& room = room_of(b);
  room.users.push_back(s);
  if (--room.buffers > 0) return;
  memories_[schedule_[b].memory.index]->give_back(room.address, plan_.regions[plan_.region_of[b.index].index].bytes,
                                                  room.users);
  room = {};
}

Grant RunRooms::open_workspace(StepId s) {
  Grant grant = taken(own_memory(s), schedule_[s].workspace, s, "its workspace");
  workspaces_[s.index] = grant.address;
  return grant;
}

void RunRooms::close_workspace(StepId s) {
  std::byte* workspace = std::exchange(workspaces_[s.index], nullptr);
  if (workspace == nullptr) return;
  memories_[own_memory(s).index]->give_back(workspace, schedule_[s].workspace, std::span(&s, 1));
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
