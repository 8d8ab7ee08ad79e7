#pragma once
// The keys of an object as a table: name, whether it must be there, and what to do with its value. One table gives the
// reader, the complaints about unknown, missing and repeated keys, and the suggestions.

#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Need : std::uint8_t { optional, required };

template <class Target, class Cursor>
struct Field {
  std::string_view name;
  Need need = Need::optional;
  void (*read)(Target&, Cursor) = nullptr;
};

/// A key for editors, which says where the file's JSON Schema is (docs/schemas). Nothing is taken of it.
template <class Target, class Cursor>
constexpr Field<Target, Cursor> schema_field{"$schema", Need::optional, [](Target&, Cursor c) { c.string(); }};

/// Reads an object into `target`; `Table` is a range of fields of at most 64. Keys in the table's order are found at
/// once.
template <class Target, class Cursor, class Table>
void read_fields(const Cursor& cursor, const Table& table, Target& target) {
  std::uint64_t seen = 0;
  std::size_t next = 0;
  const std::size_t count = std::size(table);
  const bool is_object = cursor.object([&](std::string_view key, const Cursor& value) {
    for (std::size_t tried = 0; tried < count; ++tried) {
      const std::size_t i = next + tried < count ? next + tried : next + tried - count;
      if (table[i].name != key) continue;
      next = i + 1 == count ? 0 : i + 1;
      seen |= std::uint64_t{1} << i;
      table[i].read(target, value);
      return;
    }
    std::vector<std::string_view> names;
    for (const auto& field : table) names.push_back(field.name);
    value.complain_unknown_key(names);
  });
  if (!is_object) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (table[i].need == Need::required && (seen >> i & 1U) == 0) cursor.complain_missing_key(table[i].name);
  }
}

}  // namespace plimsoll
