#pragma once
// Reads JSON value by value, once, in the order of the file. Every complaint says file:line:column and the path of
// keys; after one that leaves the text readable, reading goes on to find more.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sim/core/units.h"
#include "sim/io/input_error.h"
#include "sim/io/key_path.h"

namespace plimsoll {

struct JsonText;  // the text and what is known of it so far

/// One value, to be read at once or not at all: it ends with the callback that received it. An accessor whose type does
/// not fit complains and returns nothing (zero, an empty text).
class JsonCursor {
 public:
  std::string string() const;
  bool boolean() const;
  double number() const;             ///< at least zero
  std::int64_t thousandths() const;  ///< a number, of either sign, times 1000: exact to there, unlike a double
  std::uint32_t index() const;       ///< of something in a list, or a count
  std::int64_t integer() const;      ///< any 64-bit whole number
  Bytes bytes() const;               ///< 0 to largest_bytes; also adds to the file's sum, which must stay below 2^62
  Bytes signed_bytes() const;        ///< -largest_bytes to largest_bytes; its size adds to the file's sum too
  Seconds seconds() const;           ///< 0 to longest_seconds
  Flops flops() const;
  std::string compact() const;  ///< any value as JSON without spaces
  bool is_word() const;         ///< a string
  bool is_whole() const;        ///< a number without fraction and exponent
  bool is_object() const;

  /// each(std::string_view key, JsonCursor value); complains about repeated keys; false where this is no object.
  template <class Each>
  bool object(Each&& each) const {
    using Function = std::remove_reference_t<Each>;
    return each_field([](void* f, std::string_view key, JsonCursor value) { (*static_cast<Function*>(f))(key, value); },
                      const_cast<void*>(static_cast<const void*>(&each)));
  }

  /// each(JsonCursor element)
  template <class Each>
  bool array(Each&& each) const {
    using Function = std::remove_reference_t<Each>;
    return each_element([](void* f, JsonCursor element) { (*static_cast<Function*>(f))(element); },
                        const_cast<void*>(static_cast<const void*>(&each)));
  }

  void complain(std::string_view what) const;
  void complain_unknown_key(const std::vector<std::string_view>& known) const;
  void complain_missing_key(std::string_view key) const;
  std::string found() const;  ///< `found 17` for messages

 private:
  friend class JsonDocument;
  using FieldVisitor = void (*)(void*, std::string_view, JsonCursor);
  using ElementVisitor = void (*)(void*, JsonCursor);

  JsonCursor(JsonText* text, const char* at, const KeyPath* path, const char* key_at)
      : text_(text), at_(at), path_(path), key_at_(key_at) {}

  bool each_field(FieldVisitor, void*) const;
  bool each_element(ElementVisitor, void*) const;
  std::string_view written_number(std::string_view expected) const;
  std::int64_t whole(std::string_view expected) const;
  void add_to_sum(std::int64_t bytes) const;
  void complain_type(std::string_view expected) const;

  JsonText* text_;
  const char* at_;  ///< where the value stands
  const KeyPath* path_;
  const char* key_at_;  ///< of a field: where its key stands
};

class JsonDocument {
 public:
  /// Throws where the text is not UTF-8 or begins neither an object nor a list.
  JsonDocument(std::string text, std::string file);

  /// A text out of a larger one: where it begins there, and under which path; the path's parents live longer than this.
  struct Within {
    Position origin;
    KeyPath path;
  };
  JsonDocument(std::string text, std::string file, const Within&);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  /// read(JsonCursor root); then throws everything there was to complain about.
  template <class Read>
  void read(Read&& read) {
    read(root());
    finish_reading();
  }

  /// The string of a top-level key, before reading; nothing where there is none.
  std::optional<std::string> peek_string(std::string_view key);
  bool is_object() const;

  /// For what is only seen after reading: the place is looked up by path, its nearest parent where it is absent.
  void complain(std::string_view path, std::string_view what);
  void throw_if_any() const;

 private:
  JsonCursor root();
  void finish_reading();

  std::unique_ptr<JsonText> text_;
  KeyPath root_path_;
};

}  // namespace plimsoll
