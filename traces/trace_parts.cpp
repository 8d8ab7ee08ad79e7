#include "traces/trace_parts.h"

#include <fmt/format.h>

#include "sim/io/fields.h"

namespace plimsoll {

Source read_source(JsonCursor cursor) {
  Source source;
  const bool is_object = cursor.object([&](std::string_view key, JsonCursor value) {
    if (key == "kind") {
      const std::string kind = value.string();
      source.kind = kind == "measured" ? Source::Kind::measured : Source::Kind::computed;
      if (kind != "measured" && kind != "computed") {
        value.complain("expected \"measured\" or \"computed\", " + value.found());
      }
    } else if (key == "device") {
      source.device = value.string();
    } else if (key == "dtype") {
      source.dtype = value.string();
    } else {
      source.notes.emplace_back(key, value.is_word() ? value.string() : value.compact());
    }
  });
  if (is_object && source.kind == Source::Kind::measured && source.device.empty()) {
    cursor.complain("missing key 'device': the device on which the times were measured");
  }
  return source;
}

std::vector<std::uint32_t> read_indices(JsonCursor cursor) {
  std::vector<std::uint32_t> indices;
  cursor.array([&](JsonCursor element) { indices.push_back(element.index()); });
  return indices;
}

double above_zero(JsonCursor cursor) {
  const double value = cursor.number();
  if (!(value > 0)) cursor.complain("expected more than 0, " + cursor.found());
  return value;
}

std::vector<std::int64_t> read_shape(JsonCursor cursor) {
  std::vector<std::int64_t> shape;
  cursor.array([&](JsonCursor element) {
    shape.push_back(element.integer());
    if (shape.back() < 0) element.complain("must not be negative, " + element.found());
  });
  return shape;
}

void check_id(JsonCursor id, std::size_t position) {
  const std::uint32_t number = id.index();
  if (number != position) id.complain(fmt::format("expected {}, the place in the list, found {}", position, number));
}

bool check_index(JsonDocument& document, const std::string& path, std::uint32_t index, std::size_t count,
                 std::string_view noun) {
  if (index < count) return true;
  document.complain(path, count == 0
                              ? fmt::format("no such {}, there is none at all, found {}", noun, index)
                              : fmt::format("no such {}, expected an index below {}, found {}", noun, count, index));
  return false;
}

}  // namespace plimsoll
