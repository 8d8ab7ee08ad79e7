#include "sim/io/pickle.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "sim/io/input_error.h"

namespace plimsoll {

/// Runs the instructions of a pickle on a stack, as Python's pickletools documents them.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, const std::string& file) : pickle_(pickle), bytes_(pickle.bytes_), file_(file) {}

  void read() {
    if (bytes_.size() > std::numeric_limits<std::uint32_t>::max()) fail(0, "expected at most 4 GiB");
    if (bytes_.size() < 2 || bytes_[0] != '\x80')
      fail(0, "expected a pickle of protocol 2 to 5, which begins with 0x80");
    for (;;) {
      start_ = at_;
      const auto instruction = static_cast<unsigned char>(byte());
      if (instruction == '.') break;
      step(instruction);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail(start_, "expected one value at the end");
    pickle_.root_ = stack_[0];
  }

 private:
  using Value = Pickle::Value;

  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw InputError(located(file_, {}, "pickle", "byte " + std::to_string(at) + ": " + what));
  }

  char byte() {
    if (at_ >= bytes_.size()) fail(at_, "the file ends too early");
    return bytes_[at_++];
  }

  /// Little endian, without a sign.
  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int b = 0; b < bytes; ++b) value |= std::uint64_t{static_cast<unsigned char>(byte())} << (8 * b);
    return value;
  }

  void push(const Value& value) {
    pickle_.values_.push_back(value);
    stack_.push_back(static_cast<PickleId>(pickle_.values_.size() - 1));
  }
  void push_integer(std::int64_t value) {
    Value made{.kind = PickleKind::integer};
    made.integer = value;
    push(made);
  }
  void push_boolean(bool value) {
    Value made{.kind = PickleKind::boolean};
    made.integer = value ? 1 : 0;
    push(made);
  }

  void push_long() {
    const auto size = static_cast<int>(number(1));
    if (size > 8) fail(start_, "expected a whole number of at most 64 bits");
    std::uint64_t value = number(size);
    const bool is_negative = size > 0 && ((value >> (8 * size - 1)) & 1U) != 0;
    if (is_negative && size < 8) value |= ~std::uint64_t{0} << (8 * size);
    push_integer(std::bit_cast<std::int64_t>(value));
  }

  void push_real() {
    std::uint64_t bits = 0;
    for (int b = 0; b < 8; ++b) bits = bits << 8U | static_cast<unsigned char>(byte());  // big endian
    Value made{.kind = PickleKind::real};
    made.real = std::bit_cast<double>(bits);
    push(made);
  }

  void push_text(int length_bytes) {
    const std::uint64_t size = number(length_bytes);
    if (size > bytes_.size() - at_) fail(at_, "the file ends too early");
    Value made{.kind = PickleKind::text, .size = static_cast<std::uint32_t>(size)};
    made.place = at_;
    push(made);
    at_ += size;
  }

  void push_list(PickleKind kind, std::vector<PickleId> elements) {
    Value made{.kind = kind};
    made.place = pickle_.lists_.size();
    pickle_.lists_.push_back(std::move(elements));
    push(made);
  }

  std::vector<PickleId> pop(std::size_t count) {
    if (stack_.size() < count || (!marks_.empty() && stack_.size() - count < marks_.back())) {
      fail(start_, "an instruction finds too few values");
    }
    std::vector<PickleId> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }
  std::vector<PickleId> pop_to_mark() {
    if (marks_.empty()) fail(start_, "an instruction finds no mark");
    const std::size_t count = stack_.size() - marks_.back();
    std::vector<PickleId> values = pop(count);
    marks_.pop_back();
    return values;
  }

  PickleId top() const {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) {
      fail(start_, "an instruction finds too few values");
    }
    return stack_.back();
  }

  /// To the list or dictionary at the top.
  void append(PickleKind kind, const std::vector<PickleId>& values) {
    const Value& of = pickle_.values_[top()];
    if (of.kind != kind) fail(start_, "an instruction finds no list or dictionary to add to");
    if (kind == PickleKind::dictionary && values.size() % 2 != 0) fail(start_, "a key has no value");
    std::vector<PickleId>& list = pickle_.lists_[of.place];
    list.insert(list.end(), values.begin(), values.end());
  }

  void keep(std::uint64_t index) {
    if (index > bytes_.size()) fail(start_, "a number in the memo is larger than the file");
    if (memo_.size() <= index) memo_.resize(index + 1);
    memo_count_ += memo_[index] ? 0 : 1;
    memo_[index] = top();
  }
  void recall(std::uint64_t index) {
    if (index >= memo_.size() || !memo_[index]) fail(start_, "the memo has no such value");
    stack_.push_back(*memo_[index]);
  }

  void step(unsigned char instruction) {
    switch (instruction) {
      case 0x80: {  // PROTO
        const char version = byte();
        if (version < 2 || version > 5) fail(start_, "expected protocol 2 to 5, found " + std::to_string(int{version}));
        return;
      }
      case 0x95:  // FRAME
        number(8);
        return;
      case 'N':
        return push({});
      case 0x88:
      case 0x89:
        return push_boolean(instruction == 0x88);
      case 'J':
        return push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4))));
      case 'K':
        return push_integer(static_cast<std::int64_t>(number(1)));
      case 'M':
        return push_integer(static_cast<std::int64_t>(number(2)));
      case 0x8a:
        return push_long();
      case 'G':
        return push_real();
      case 0x8c:
        return push_text(1);
      case 'X':
        return push_text(4);
      default:
        return step_on_containers(instruction);
    }
  }

  void step_on_containers(unsigned char instruction) {
    switch (instruction) {
      case ']':
      case ')':
        return push_list(PickleKind::list, {});
      case '}':
        return push_list(PickleKind::dictionary, {});
      case '(':
        return marks_.push_back(stack_.size());
      case 't':
        return push_list(PickleKind::list, pop_to_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push_list(PickleKind::list, pop(instruction - 0x84U));
      case 'a':
        return append(PickleKind::list, pop(1));
      case 'e':
        return append(PickleKind::list, pop_to_mark());
      case 's':
        return append(PickleKind::dictionary, pop(2));
      case 'u':
        return append(PickleKind::dictionary, pop_to_mark());
      case 0x94:  // MEMOIZE
        return keep(memo_count_);
      case 'q':
        return keep(number(1));
      case 'r':
        return keep(number(4));
      case 'h':
        return recall(number(1));
      case 'j':
        return recall(number(4));
      default:
        fail(start_, "instruction " + std::to_string(int{instruction}) +
                         " is not a list, dictionary, text or number; expected a pickle of data only");
    }
  }

  Pickle& pickle_;
  const std::string& bytes_;
  const std::string& file_;
  std::size_t at_ = 0, start_ = 0;  ///< the next byte; where the instruction begins
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::optional<PickleId>> memo_;
  std::size_t memo_count_ = 0;
};

Pickle::Pickle(std::string bytes, const std::string& file) : bytes_(std::move(bytes)) {
  PickleReader(*this, file).read();
}

std::string_view Pickle::text(PickleId id) const {
  return std::string_view(bytes_).substr(values_[id].place, values_[id].size);
}

PickleId Pickle::find(PickleId dictionary, std::string_view key) const {
  const std::vector<PickleId>& pairs = lists_[values_[dictionary].place];
  for (std::size_t p = pairs.size(); p >= 2; p -= 2) {
    const PickleId name = pairs[p - 2];
    if (kind(name) == PickleKind::text && text(name) == key) return pairs[p - 1];
  }
  return dictionary;
}

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

void PickleWriter::number(std::uint64_t value, int bytes) {
  for (int b = 0; b < bytes; ++b) bytes_ += static_cast<char>(value >> (8U * static_cast<unsigned>(b)) & 0xffU);
}

void PickleWriter::integer(std::int64_t value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    number(bits, 1);
  } else if (value >= 0 && value < 65536) {
    bytes_ += 'M';
    number(bits, 2);
  } else if (value == static_cast<std::int32_t>(value)) {
    bytes_ += 'J';
    number(bits, 4);
  } else {
    bytes_ += "\x8a\x08";
    number(bits, 8);
  }
}

void PickleWriter::real(double value) {
  bytes_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int b = 7; b >= 0; --b) bytes_ += static_cast<char>(bits >> (8U * static_cast<unsigned>(b)) & 0xffU);
}

void PickleWriter::text(std::string_view text) {
  const auto known =
      std::ranges::lower_bound(texts_, text, {}, [](const auto& t) { return std::string_view(t.first); });
  if (known != texts_.end() && known->first == text) {
    bytes_ += 'j';
    return number(known->second, 4);
  }
  const auto index = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace(known, std::string(text), index);
  bytes_ += 'X';
  number(text.size(), 4);
  bytes_.append(text);
  bytes_ += 'r';
  number(index, 4);
}

std::string PickleWriter::finish() && {
  bytes_ += '.';
  return std::move(bytes_);
}

}  // namespace plimsoll
