// Counts the bytes that are live in blocks of posix_memalign, which is what PyTorch's CPU allocator calls, and writes down each when asked to.
// Loaded with LD_PRELOAD, glibc only. Storages, and the scratch that kernels take as tensors, are there to the byte.
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

extern void* __libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void* block);

// Open addressing by address; a removed entry leaves a tombstone (address 1).
enum { slots = 1 << 20 };
static uintptr_t addresses[slots];
static size_t sizes[slots];
static long long live, peak;

// Each allocation and free since the log was begun: address, then bytes, below 0 of a free.
enum { entries = 1 << 20 };
static long long entry[entries][2];
static long long logged = -1;  // -1: no log is written

static void write_down(uintptr_t address, long long size) {
  if (logged < 0) return;
  if (logged < entries) {
    entry[logged][0] = (long long)address;
    entry[logged][1] = size;
  }
  ++logged;
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t first_slot(uintptr_t address) {
  return (size_t)((address >> 4) * 0x9E3779B97F4A7C15ull >> 44) & (slots - 1);
}

static void insert(uintptr_t address, size_t size) {
  pthread_mutex_lock(&lock);
  size_t i = first_slot(address);
  for (size_t n = 0; n < slots && addresses[i] > 1; ++n) i = (i + 1) & (slots - 1);
  if (addresses[i] <= 1) {
    addresses[i] = address;
    sizes[i] = size;
    live += (long long)size;
    if (live > peak) peak = live;
    write_down(address, (long long)size);
  }
  pthread_mutex_unlock(&lock);
}

static void erase(uintptr_t address) {
  pthread_mutex_lock(&lock);
  size_t i = first_slot(address);
  for (size_t n = 0; n < slots && addresses[i] != 0; ++n, i = (i + 1) & (slots - 1)) {
    if (addresses[i] != address) continue;
    // No entry probes past an empty slot, so a tombstone is needed only before an occupied one.
    addresses[i] = addresses[(i + 1) & (slots - 1)] == 0 ? 0 : 1;
    live -= (long long)sizes[i];
    write_down(address, -(long long)sizes[i]);
    break;
  }
  pthread_mutex_unlock(&lock);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  *block = __libc_memalign(alignment, size);
  if (*block == NULL) return ENOMEM;
  if (alignment >= 64) insert((uintptr_t)*block, size);
  return 0;
}

void free(void* block) {
  if (block != NULL && ((uintptr_t)block & 63) == 0) erase((uintptr_t)block);
  __libc_free(block);
}

long long plimsoll_live_bytes(void) {
  return live;
}
long long plimsoll_peak_bytes(void) {
  return peak;
}
void plimsoll_reset_peak(void) {
  pthread_mutex_lock(&lock);
  peak = live;
  pthread_mutex_unlock(&lock);
}

void plimsoll_begin_log(void) {
  pthread_mutex_lock(&lock);
  logged = 0;
  pthread_mutex_unlock(&lock);
}
void plimsoll_end_log(void) {
  pthread_mutex_lock(&lock);
  logged = -1;
  pthread_mutex_unlock(&lock);
}
long long plimsoll_logged(void) {  // more than there is room for: the rest is lost
  return logged;
}
const long long* plimsoll_log(void) {
  return entry[0];
}
