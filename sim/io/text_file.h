#pragma once
// Whole text files in and out, with errors that name the file.

#include <filesystem>
#include <string>
#include <string_view>

namespace plimsoll {

/// The text of what gzip compressed, too. Throws InputError.
std::string read_text_file(const std::filesystem::path&);

/// Readers see the old file or the new one, never half of it: written beside and renamed. Throws OutputError.
void write_text_file(const std::filesystem::path&, std::string_view text);

}  // namespace plimsoll
