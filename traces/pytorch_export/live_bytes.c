// Counts the bytes that are live in blocks of posix_memalign, which is what PyTorch's CPU allocator calls.
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
