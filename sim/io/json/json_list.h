#pragma once
// A list of JSON values out of a file of any size, gzip-compressed or not: one element in memory at a time.

#include <filesystem>
#include <functional>
#include <string_view>

#include "sim/io/json/json_cursor.h"

namespace plimsoll {

/// The list is the file, or the field `key` of the object that the file is; other fields are checked and passed over.
/// `each` reads an element, whose complaints say where in the file it stands. Throws InputError.
void read_json_list(const std::filesystem::path&, std::string_view key, const std::function<void(JsonDocument&)>& each);

/// The longest element and the longest other field, in bytes.
inline constexpr std::size_t longest_json_element = std::size_t{16} << 20U;

}  // namespace plimsoll
