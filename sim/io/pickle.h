#pragma once
// Python's pickle format, as far as it is data: lists, dictionaries, texts and numbers. What would run code, as pickles
// may, is refused.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

using PickleId = std::uint32_t;

enum class PickleKind : std::uint8_t { none, boolean, integer, real, text, list, dictionary };

/// The values of one file. A value may stand at several places, even within itself: who walks through it bounds the
/// way.
class Pickle {
 public:
  /// Of protocols 2 to 5. Throws InputError, `file: pickle: ...`, where the bytes are none, or are cut off, or hold
  /// what is no data. Tuples count as lists.
  Pickle(std::string bytes, const std::string& file);

  PickleId root() const { return root_; }
  PickleKind kind(PickleId id) const { return values_[id].kind; }
  std::int64_t integer(PickleId id) const { return values_[id].integer; }  ///< also of a boolean
  double real(PickleId id) const { return values_[id].real; }
  std::string_view text(PickleId id) const;
  const std::vector<PickleId>& list(PickleId id) const { return lists_[values_[id].place]; }
  /// Pairs of keys and values; of equal keys the last one counts.
  const std::vector<PickleId>& dictionary(PickleId id) const { return lists_[values_[id].place]; }
  /// The value of a key that is a text; itself where there is none.
  PickleId find(PickleId dictionary, std::string_view key) const;

  std::size_t bytes() const { return bytes_.size(); }

 private:
  friend class PickleReader;
  struct Value {
    PickleKind kind = PickleKind::none;
    std::uint32_t size = 0;  ///< of a text
    union {
      std::int64_t integer = 0;
      double real;
      std::size_t place;  ///< of a text in the bytes, of a list or dictionary in the lists
    };
  };

  std::string bytes_;
  std::vector<Value> values_;
  std::vector<std::vector<PickleId>> lists_;
  PickleId root_ = 0;
};

/// Writes protocol 2, with each text once, in instructions that PyTorch's viewer knows.
class PickleWriter {
 public:
  PickleWriter();

  void integer(std::int64_t);
  void real(double);
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void text(std::string_view);

  /// write(i) writes the i-th element.
  template <class Write>
  void list(std::size_t size, Write write) {
    bytes_ += ']';
    for (std::size_t i = 0; i < size;) {
      bytes_ += '(';
      for (const std::size_t end = i + most_at_once < size ? i + most_at_once : size; i < end; ++i) write(i);
      bytes_ += 'e';
    }
  }

  /// write() calls key() and then writes its value, as often as there are keys.
  template <class Write>
  void dictionary(Write write) {
    bytes_ += "}(";
    write();
    bytes_ += 'u';
  }
  void key(std::string_view name) { text(name); }

  /// The whole file.
  std::string finish() &&;

 private:
  static constexpr std::size_t most_at_once = 1000;  // as Python

  void number(std::uint64_t, int bytes);

  std::string bytes_;
  std::vector<std::pair<std::string, std::uint32_t>> texts_;  ///< sorted, each with its number
};

}  // namespace plimsoll
