#include "traces/imports/chakra/chakra_trace.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {
namespace {

/// One field of a message of protocol buffers.
struct WireField {
  std::uint32_t number = 0, type = 0;
  std::uint64_t value = 0;  ///< of types 0, 1 and 5
  std::string_view bytes;   ///< of type 2
};

constexpr std::uint32_t varint_type = 0, fixed64_type = 1, bytes_type = 2, fixed32_type = 5;

class WireReader {
 public:
  /// `begin`: where the text begins in the file.
  WireReader(std::string_view text, std::size_t begin, const std::string& file)
      : text_(text), begin_(begin), file_(file) {}

  bool at_end() const { return at_ == text_.size(); }
  std::size_t place() const { return begin_ + at_; }

  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(located(file_, {}, fmt::format("byte {}", place()), what));
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (std::uint32_t shift = 0; shift < 64; shift += 7) {
      if (at_end()) refuse("ends within a number, expected a file of Chakra's messages, each behind its length");
      const auto byte = static_cast<unsigned char>(text_[at_++]);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    refuse("a number of more than 64 bits, expected a file of Chakra's messages, each behind its length");
  }

  std::string_view delimited() {
    const std::uint64_t size = varint();
    if (size > text_.size() - at_) {
      refuse(fmt::format("a message of {} bytes, but {} are left: cut off, or no file of Chakra's", size,
                         text_.size() - at_));
    }
    at_ += size;
    return text_.substr(at_ - size, size);
  }

  WireField field() {
    const std::uint64_t key = varint();
    WireField made{.number = static_cast<std::uint32_t>(key >> 3U), .type = static_cast<std::uint32_t>(key & 7U)};
    switch (made.type) {
      case varint_type:
        made.value = varint();
        break;
      case fixed64_type:
        made.value = fixed(8);
        break;
      case fixed32_type:
        made.value = fixed(4);
        break;
      case bytes_type:
        made.bytes = delimited();
        break;
      default:
        refuse(fmt::format("a field of the unknown kind {}, expected a message of Chakra's", made.type));
    }
    return made;
  }

 private:
  std::uint64_t fixed(std::size_t size) {
    if (text_.size() - at_ < size) refuse("ends within a number");
    std::uint64_t value = 0;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, text_.data() + at_, size);
    at_ += size;
    return value;
  }

  std::string_view text_;
  std::size_t begin_;
  const std::string& file_;
  std::size_t at_ = 0;
};

double number_of(std::uint32_t field, std::uint64_t value) {
  constexpr std::uint32_t of_double = 3, of_float = 5, of_sint32 = 15, of_sint64 = 17, of_int32 = 7, of_int64 = 9,
                          of_sfixed32 = 23, of_sfixed64 = 25;
  switch (field) {
    case of_double:
      return std::bit_cast<double>(value);
    case of_float:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value)));
    case of_sint32:
    case of_sint64:
      return static_cast<double>(static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U));
    case of_int32:
    case of_int64:
    case of_sfixed64:
      return static_cast<double>(static_cast<std::int64_t>(value));
    case of_sfixed32:
      return static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(value)));
    default:
      return static_cast<double>(value);
  }
}

class ChakraMessages {
 public:
  explicit ChakraMessages(const std::string& file) : file_(file) {}

  ReadChakraTrace trace(std::string_view text) {
    WireReader reader(text, 0, file_);
    ReadChakraTrace made;
    for (bool is_first = true; !reader.at_end(); is_first = false) {
      const std::size_t begin = reader.place();
      const std::string_view message = reader.delimited();
      WireReader within(message, reader.place() - message.size(), file_);
      if (is_first) {
        metadata(within, made);
      } else {
        made.nodes.push_back(node(within));
        made.nodes.back().place = fmt::format("byte {}", begin);
      }
    }
    return made;
  }

 private:
  std::pair<std::string, ChakraAttribute> attribute(std::string_view text, std::size_t begin) const {
    constexpr std::uint32_t text_value = 29, texts_value = 30, last_value = 32;
    std::pair<std::string, ChakraAttribute> made;
    for (WireReader reader(text, begin, file_); !reader.at_end();) {
      const WireField field = reader.field();
      if (field.number == 1) made.first = std::string(field.bytes);
      if (field.number == text_value) made.second.text = std::string(field.bytes);
      if (field.number == texts_value) {
        for (WireReader list(field.bytes, reader.place() - field.bytes.size(), file_); !list.at_end();) {
          made.second.texts.emplace_back(list.field().bytes);
        }
      }
      if (field.number == 0 || field.number > last_value) {
        reader.refuse("a field that no attribute of Chakra's has, expected a file of Chakra's");
      }
      if (field.type != bytes_type) made.second.number = number_of(field.number, field.value);
    }
    return made;
  }

  void metadata(WireReader& reader, ReadChakraTrace& made) const {
    while (!reader.at_end()) {
      const WireField field = reader.field();
      if (field.number > 2 || field.type != bytes_type) {
        reader.refuse(fmt::format("field {} in the first message, expected Chakra's GlobalMetadata", field.number));
      }
      if (field.number == 1) made.version = std::string(field.bytes);
      if (field.number == 2) made.attributes.insert(attribute(field.bytes, reader.place() - field.bytes.size()));
    }
  }

  ReadChakraNode node(WireReader& reader) const {
    ReadChakraNode made;
    while (!reader.at_end()) {
      const WireField field = reader.field();
      constexpr std::uint32_t id = 1, name = 2, type = 3, ctrl = 4, data = 5, start = 6, duration = 7, first_io = 8,
                              attr = 10;
      const bool is_text = field.number == name || (field.number >= first_io && field.number <= attr);
      const bool is_list = field.number == ctrl || field.number == data;
      if (field.number == 0 || field.number > attr || (!is_list && is_text != (field.type == bytes_type))) {
        reader.refuse(fmt::format("field {} is none of Chakra's Node, expected a file of Chakra's", field.number));
      }
      if (field.number == id) made.id = field.value;
      if (field.number == name) made.name = std::string(field.bytes);
      if (field.number == type) made.type = type_of(field.value, reader);
      if (field.number == data) numbers(field, reader, made.data);
      if (field.number == ctrl || field.number == start) continue;
      if (field.number == duration) made.microseconds = field.value;
      if (field.number == attr) made.attributes.insert(attribute(field.bytes, reader.place() - field.bytes.size()));
    }
    return made;
  }

  static ChakraType type_of(std::uint64_t value, const WireReader& reader) {
    constexpr std::uint64_t last = 7;
    if (value > last) reader.refuse(fmt::format("a node of the unknown type {}, expected 0 to {}", value, last));
    return static_cast<ChakraType>(value);
  }

  void numbers(const WireField& field, const WireReader& reader, std::vector<std::uint64_t>& made) const {
    if (field.type != bytes_type) {
      made.push_back(field.value);
      return;
    }
    for (WireReader packed(field.bytes, reader.place() - field.bytes.size(), file_); !packed.at_end();) {
      made.push_back(packed.varint());
    }
  }

  const std::string& file_;
};

/// The JSON of Chakra's feeder: `{"workload_graph": [{"Id": 3, "Name": ..., "NodeType": 4, "runtime": 12, ...}]}`.
class ChakraJson {
 public:
  ReadChakraTrace trace(JsonDocument& document) {
    ReadChakraTrace made;
    document.read([&](JsonCursor root) {
      bool found = false;
      root.object([&](std::string_view key, JsonCursor value) {
        if (key != "workload_graph") return;
        found = true;
        value.array([&](JsonCursor each) {
          made.nodes.push_back(node(each));
          made.nodes.back().place = fmt::format("workload_graph[{}]", made.nodes.size() - 1);
        });
      });
      if (!found) root.complain_missing_key("workload_graph");
    });
    return made;
  }

 private:
  static std::uint64_t whole(JsonCursor value) {
    const std::int64_t read = value.integer();
    if (read < 0) value.complain("expected 0 or more");
    return static_cast<std::uint64_t>(std::max<std::int64_t>(read, 0));
  }

  static ReadChakraNode node(JsonCursor cursor) {
    ReadChakraNode made;
    bool has_id = false;
    const bool is_object = cursor.object([&](std::string_view key, JsonCursor value) {
      if (key == "Id") {
        made.id = whole(value);
        has_id = true;
      } else if (key == "Name") {
        made.name = value.string();
      } else if (key == "NodeType") {
        constexpr std::uint64_t last = 7;
        const std::uint64_t type = whole(value);
        if (type > last) value.complain(fmt::format("a node of the unknown type {}, expected 0 to {}", type, last));
        made.type = static_cast<ChakraType>(std::min(type, last));
      } else if (key == "runtime") {
        made.microseconds = whole(value);
      } else if (key == "data_deps") {
        value.array([&](JsonCursor each) { made.data.push_back(whole(each)); });
      } else if (key == "is_cpu_op") {
        made.attributes["is_cpu_op"].number = value.boolean() ? 1 : 0;
      } else if (value.is_word()) {
        made.attributes[std::string(key)].text = value.string();
      } else if (value.is_whole()) {
        made.attributes[std::string(key)].number = static_cast<double>(value.integer());
      }
    });
    if (is_object && !has_id) cursor.complain_missing_key("Id");
    return made;
  }
};

}  // namespace

ReadChakraTrace parse_chakra_trace(std::string text, const std::string& file) {
  if (text.starts_with('{') && text.find("\"workload_graph\"") != std::string::npos) {
    JsonDocument document(std::move(text), file);
    return ChakraJson().trace(document);
  }
  ReadChakraTrace made = ChakraMessages(file).trace(text);
  if (made.nodes.empty()) throw InputError(located(file, {}, "", "no nodes, expected an execution trace of Chakra"));
  return made;
}

}  // namespace plimsoll
