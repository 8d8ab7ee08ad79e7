#pragma once
// Memory that a process shares with those that it forks.

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace plimsoll {

/// Grows, but no process may touch it while another changes its size; each calls `fit` with the same sizes.
class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Makes it `size` bytes or larger; what it held stays.
  void fit(std::size_t size);
  std::byte* data() const { return data_; }

 private:
  int file_ = -1;  ///< nameless
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Copies plain values into memory, one list behind the other.
class MemoryWriter {
 public:
  explicit MemoryWriter(std::byte* at) : at_(at) {}

  template <class T>
  void put(const T* items, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > 0) std::memcpy(at_, items, count * sizeof(T));
    at_ += count * sizeof(T);
  }

 private:
  std::byte* at_;
};

/// The same the other way.
class MemoryReader {
 public:
  explicit MemoryReader(const std::byte* at) : at_(at) {}

  template <class T>
  void take(T* items, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > 0) std::memcpy(items, at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }

 private:
  const std::byte* at_;
};

}  // namespace plimsoll
