#pragma once
// A list that is nearly always short: its first `Inline` values lie in the list itself and ask for no other memory.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace plimsoll {

template <class T, std::size_t Inline>
class ShortList {
 public:
  ShortList() = default;
  ShortList(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  void push_back(const T& value) {
    if (many_.empty() && few_count_ < Inline) {
      few_[few_count_++] = value;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(value);
  }
  void clear() {
    few_count_ = 0;
    many_.clear();
  }
  /// If it has the value; the others stay in their order.
  void erase(const T& value) {
    if (!many_.empty()) {
      if (std::erase(many_, value) > 0 && many_.empty()) few_count_ = 0;
      return;
    }
    const auto last = few_.begin() + few_count_;
    few_count_ = static_cast<std::uint32_t>(std::remove(few_.begin(), last, value) - few_.begin());
  }

  const T* begin() const { return many_.empty() ? few_.data() : many_.data(); }
  const T* end() const { return many_.empty() ? few_.data() + few_count_ : many_.data() + many_.size(); }
  bool empty() const { return begin() == end(); }
  const T& front() const { return *begin(); }
  const T& back() const { return *(end() - 1); }

 private:
  std::array<T, Inline> few_{};
  std::uint32_t few_count_ = 0;
  std::vector<T> many_;  ///< all of them, once they are more
};

}  // namespace plimsoll
