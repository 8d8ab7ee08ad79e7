#include "tests/fake_cuda/fake_cuda.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

/// How far a stream knows every stream to be: by number, how many pieces of its work.
using Known = std::map<int, int>;

struct CUevent_st {
  bool recorded = false, done = false;
  float date = 0;
  Known known = {};
  int gpu = 0;
};

struct CUstream_st {
  struct Work {
    std::function<void()> run;
    const CUevent_st* after = nullptr;
    std::shared_ptr<plimsoll::fake::Arrivals> with = nullptr;  ///< all of whom have come first
  };
  std::deque<Work> queue;
  int number = 0;
  Known known = {};
  int gpu = 0;
};

/// Of CUDA's ways to use again what was freed it has the one that never waits and never depends on luck: a stream gets
/// what was freed before events that it has waited for, or before the host waited for all.
struct CUmemPoolHandle_st {
  struct Free {
    std::uint64_t bytes = 0;
    int stream = 0, work = 0;
  };
  int gpu = 0;
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  std::deque<Free> free = {};
  std::set<int> readers = {};
};

namespace plimsoll {
namespace {

using fake::Machine;

struct OwnedBytes {
  int gpu = 0;
  std::size_t bytes = 0;
  std::unique_ptr<std::byte[]> storage;
  CUmemPoolHandle_st* pool = nullptr;
  int stream = 0, work = 0;  ///< of a pool: where it was allocated, unless the host has waited since
};

struct State {
  Machine machine;
  std::mt19937_64 random;
  std::vector<CUstream_st*> streams;
  int streams_made = 0, detours = 0, trims = 0, early_uses = 0, strays = 0;
  std::set<CUmemPoolHandle_st*> pools;
  std::vector<std::unique_ptr<CUevent_st>> destroyed;
  std::map<void*, OwnedBytes> device, host;
  int current = 0, records = 0, early_frees = 0, launches = 0;
  std::string issued, maths;
  std::vector<unsigned> launched_blocks;
  float clock = 0;
};

State& state() {
  static State all;
  return all;
}

/// Runs the head of a random stream that may run; no where none may.
bool run_one() {
  State& s = state();
  std::vector<CUstream_st*> ready;
  for (CUstream_st* stream : s.streams) {
    if (stream->queue.empty()) continue;
    const CUevent_st* after = stream->queue.front().after;
    const auto& with = stream->queue.front().with;
    if ((after == nullptr || after->done) && (with == nullptr || with->missing == 0)) ready.push_back(stream);
  }
  if (ready.empty()) return false;
  CUstream_st* stream = ready[s.random() % ready.size()];
  const CUstream_st::Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  s.clock += 0.25F;  // so that dates are exact
  work.run();
  return true;
}

/// The GPUs get somewhat further while the host does something.
void let_pass() {
  for (std::uint64_t turns = state().random() % state().machine.haste; turns > 0; --turns) run_one();
}

/// An error where streams wait for each other for ever.
cudaError_t drain() {
  while (run_one()) {
  }
  const bool empty = std::ranges::all_of(state().streams, [](const CUstream_st* s) { return s->queue.empty(); });
  return empty ? cudaSuccess : cudaErrorLaunchTimeout;
}

void* aligned_in(const OwnedBytes& made) {
  const auto address = reinterpret_cast<std::uintptr_t>(made.storage.get());
  return made.storage.get() + (512 - address % 512) % 512;
}

void* allocated(std::map<void*, OwnedBytes>& where, int gpu, std::size_t bytes) {
  OwnedBytes made{gpu, bytes, std::make_unique<std::byte[]>(bytes + 512)};
  void* address = aligned_in(made);
  std::memset(address, 0xFF, bytes);
  where[address] = std::move(made);
  return address;
}

std::size_t bytes_on(int gpu) {
  std::size_t sum = 0;
  for (const auto& [address, made] : state().device) sum += made.gpu == gpu ? made.bytes : 0;
  return sum;
}

/// Where `address` lies in memory of a pool.
const OwnedBytes* in_pool(const void* address) {
  const auto behind = state().device.upper_bound(const_cast<void*>(address));
  if (behind == state().device.begin()) return nullptr;
  const auto& [first, made] = *std::prev(behind);
  const bool is_within = static_cast<const std::byte*>(address) < static_cast<const std::byte*>(first) + made.bytes;
  return is_within && made.pool != nullptr ? &made : nullptr;
}

/// Memory of a pool is there for a stream that knows its allocation to be before.
void count_early_use(const void* address, CUstream_st& stream) {
  const OwnedBytes* made = in_pool(address);
  if (made != nullptr && stream.known[made->stream] < made->work) ++state().early_uses;
}

void count_detour(const void* address, int other) {
  const OwnedBytes* made = in_pool(address);
  if (made != nullptr && made->gpu != other && !made->pool->readers.contains(other)) ++state().detours;
}

/// Bytes of the pool that the stream knows to be free, as far as they go; the rest is reserved.
void take_from(CUmemPoolHandle_st& pool, std::uint64_t bytes, CUstream_st& stream) {
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  for (CUmemPoolHandle_st::Free& piece : pool.free) {
    if (piece.work > stream.known[piece.stream]) continue;
    const std::uint64_t served = std::min(bytes, piece.bytes);
    piece.bytes -= served;
    bytes -= served;
  }
  std::erase_if(pool.free, [](const auto& piece) { return piece.bytes == 0; });
  pool.reserved += bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
}

bool has_room(int gpu, std::size_t bytes) {
  return bytes_on(gpu) + bytes <= state().machine.memory;
}

}  // namespace

namespace fake {

void begin(const Machine& machine) {
  State& s = state();
  s = State{};
  s.machine = machine;
  s.random.seed(machine.seed);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  ++stream->known[stream->number];
  stream->queue.push_back({std::move(work)});
  let_pass();
}

void enqueue_meeting(cudaStream_t stream, std::shared_ptr<Arrivals> arrivals, std::function<void()> come,
                     std::function<void()> go_on) {
  enqueue(stream, [arrivals, come = std::move(come)] {
    come();
    --arrivals->missing;
  });
  stream->queue.push_back({std::move(go_on), nullptr, std::move(arrivals)});
  let_pass();
}

bool lies_on(int gpu, const void* address, std::size_t bytes) {
  if (bytes == 0) return true;
  const auto behind = state().device.upper_bound(const_cast<void*>(address));
  if (behind == state().device.begin()) return false;
  const auto& [first, made] = *std::prev(behind);
  const auto at = static_cast<const std::byte*>(address) - static_cast<const std::byte*>(first);
  return made.gpu == gpu && static_cast<std::size_t>(at) + bytes <= made.bytes;
}

int gpu_of(cudaStream_t stream) {
  return stream->gpu;
}

void use(const void* address, cudaStream_t stream) {
  if (address != nullptr) count_early_use(address, *stream);
}

int strays() {
  return state().strays;
}

void launch(cudaStream_t stream, std::function<void()> kernel) {
  if (stream->gpu != state().current) ++state().strays;
  enqueue(stream, std::move(kernel));
}

std::size_t device_bytes() {
  std::size_t sum = 0;
  for (const auto& [address, made] : state().device) sum += made.bytes;
  return sum;
}

int trims() {
  return state().trims;
}

int early_uses() {
  return state().early_uses;
}

int detours() {
  return state().detours;
}

int early_frees() {
  return state().early_frees;
}

std::string& issued() {
  return state().issued;
}

std::string& maths() {
  return state().maths;
}

int& launches() {
  return state().launches;
}

std::atomic<std::int64_t>& numbers_read() {
  static std::atomic<std::int64_t> all{0};
  return all;
}

std::vector<unsigned>& launched_blocks() {
  return state().launched_blocks;
}

const Machine& machine() {
  return state().machine;
}

}  // namespace fake

}  // namespace plimsoll

using plimsoll::state;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = state().machine.gpus;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int gpu) {
  state().current = gpu;
  return gpu < state().machine.gpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceSynchronize() {
  const cudaError_t status = plimsoll::drain();
  for (CUmemPoolHandle_st* pool : state().pools) {
    for (CUmemPoolHandle_st::Free& piece : pool->free) piece.work = 0;
  }
  for (auto& [address, made] : state().device) made.work = 0;
  return status;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return plimsoll::drain();
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "another error";
}
const char* cudaGetErrorString(cudaError_t) {
  return "made up";
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st{{}, ++state().streams_made, {}, state().current};
  state().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  plimsoll::drain();
  std::erase(state().streams, stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event->recorded) return cudaErrorInvalidValue;  // CUDA would not wait at all
  for (const auto& [number, work] : event->known) stream->known[number] = std::max(stream->known[number], work);
  stream->queue.push_back({[] {}, event, nullptr});
  plimsoll::let_pass();
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  plimsoll::fake::enqueue(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  (*event)->gpu = state().current;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  state().destroyed.emplace_back(event);  // streams that wait for it still do
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (state().machine.record_that_fails == state().records++) return cudaErrorLaunchFailure;
  if (event->gpu != stream->gpu) ++state().strays;
  event->recorded = true;
  event->known = stream->known;
  plimsoll::fake::enqueue(stream, [event] {
    event->done = true;
    event->date = state().clock;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  state().issued += 'S';
  while (!event->done) {
    if (!plimsoll::run_one()) return cudaErrorLaunchTimeout;
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->done || !end->done) return cudaErrorNotReady;
  *milliseconds = end->date - start->date;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (!plimsoll::has_room(state().current, bytes)) return cudaErrorMemoryAllocation;
  *address = plimsoll::allocated(state().device, state().current, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  plimsoll::drain();
  state().device.erase(address);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  *address = plimsoll::allocated(state().host, 0, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* address) {
  const auto is_busy = [](const CUstream_st* s) { return !s->queue.empty(); };
  if (std::ranges::any_of(state().streams, is_busy)) ++state().early_frees;
  plimsoll::drain();
  state().host.erase(address);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = state().machine.memory;
  *free = *total - plimsoll::bytes_on(state().current);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);  // streams that block nobody do not wait for it, nor it for them
  return cudaSuccess;
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  std::memset(address, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (bytes >= plimsoll::fake::large_copy) state().issued += 'C';
  plimsoll::count_early_use(to, *stream);
  plimsoll::count_early_use(from, *stream);
  plimsoll::fake::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                              size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  if (to_stride < bytes || from_stride < bytes) return cudaErrorInvalidPitchValue;
  plimsoll::count_early_use(to, *stream);
  plimsoll::count_early_use(from, *stream);
  plimsoll::fake::enqueue(stream, [=] {
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride, bytes);
    }
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_gpu, const void* from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
  plimsoll::count_detour(to, from_gpu);
  plimsoll::count_detour(from, to_gpu);
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  plimsoll::count_early_use(address, *stream);
  plimsoll::fake::enqueue(stream, [=] { std::memset(address, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (!state().machine.has_pools) return cudaErrorNotSupported;
  *pool = new CUmemPoolHandle_st{properties->location.id};
  state().pools.insert(*pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  state().pools.erase(pool);
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* reaches, size_t count) {
  for (size_t i = 0; i < count; ++i) pool->readers.insert(reaches[i].location.id);
  return cudaSuccess;
}
/// What is free is not kept.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  for (const CUmemPoolHandle_st::Free& piece : pool->free) pool->reserved -= piece.bytes;
  pool->free.clear();
  ++state().trims;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void*) {
  if (attribute == cudaMemPoolAttrUsedMemHigh) pool->used_high = pool->used;
  if (attribute == cudaMemPoolAttrReservedMemHigh) pool->reserved_high = pool->reserved;
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::uint64_t asked = attribute == cudaMemPoolAttrReservedMemHigh ? pool->reserved_high : pool->used_high;
  std::memcpy(value, &asked, sizeof asked);
  return cudaSuccess;
}
/// Always new memory, which may be written once the stream has come here.
cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (!plimsoll::has_room(pool->gpu, bytes)) return cudaErrorMemoryAllocation;
  *address = plimsoll::allocated(state().device, pool->gpu, bytes);
  plimsoll::OwnedBytes& own = state().device[*address];
  own.pool = pool;
  own.stream = stream->number;
  own.work = stream->known[stream->number] + 1;
  plimsoll::take_from(*pool, bytes, *stream);
  void* made = *address;
  plimsoll::fake::enqueue(stream, [=] { std::memset(made, 0xFF, bytes); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  const plimsoll::OwnedBytes& freed = state().device.at(address);
  freed.pool->used -= freed.bytes;
  freed.pool->free.push_back({freed.bytes, stream->number, stream->known[stream->number] + 1});
  plimsoll::fake::enqueue(stream, [address] {
    const plimsoll::OwnedBytes& made = state().device.at(address);
    std::memset(address, 0xFF, made.bytes);  // who reads it later reads this; the memory itself stays for him to do so
    static std::vector<std::unique_ptr<std::byte[]>> graves;
    graves.push_back(std::move(state().device.at(address).storage));
    state().device.erase(address);
  });
  return cudaSuccess;
}

}  // extern "C"
