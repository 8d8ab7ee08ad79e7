#pragma once
// The next event of each stream, earliest first: a heap with four children a node whose entries can be moved.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll {

class EventHeap {
 public:
  struct Event {
    double date;
    std::uint32_t stream;
  };

  explicit EventHeap(std::size_t streams) : place_(streams, absent) { heap_.reserve(streams); }

  bool empty() const { return heap_.empty(); }
  Event top() const { return heap_.front(); }

  /// The stream's event is now due at `date`, whether or not it had one before.
  void set(std::uint32_t stream, double date) {
    std::size_t at = place_[stream];
    if (at == absent) {
      at = heap_.size();
      heap_.push_back({});
      sift_up(at, {date, stream});
    } else if (date < heap_[at].date) {
      sift_up(at, {date, stream});
    } else {
      sift_down(at, {date, stream});
    }
  }

  void pop() {
    place_[heap_.front().stream] = absent;
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(0, last);
  }

 private:
  static constexpr std::uint32_t absent = std::numeric_limits<std::uint32_t>::max();

  void put(std::size_t at, Event event) {
    heap_[at] = event;
    place_[event.stream] = static_cast<std::uint32_t>(at);
  }

  void sift_up(std::size_t at, Event event) {
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!(event.date < heap_[parent].date)) break;
      put(at, heap_[parent]);
      at = parent;
    }
    put(at, event);
  }

  void sift_down(std::size_t at, Event event) {
    const std::size_t size = heap_.size();
    while (true) {
      const std::size_t first = 4 * at + 1;
      if (first >= size) break;
      const std::size_t end = std::min(first + 4, size);
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (heap_[child].date < heap_[least].date) least = child;
      }
      if (!(heap_[least].date < event.date)) break;
      put(at, heap_[least]);
      at = least;
    }
    put(at, event);
  }

  std::vector<Event> heap_;
  std::vector<std::uint32_t> place_;  ///< per stream: where its event is
};

}  // namespace plimsoll
