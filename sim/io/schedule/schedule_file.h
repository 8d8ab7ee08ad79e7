#pragma once
// Schedule files: JSON text <-> Schedule. The format is described key by key in sim/README.md. Indices of tensors and
// ops are those of the trace's graph, of devices and memories those of the platform; check() judges them. The files
// that a schedule is from are named relative to its own, and by their paths once it is read.

#include <filesystem>
#include <string>
#include <string_view>

#include "sim/core/schedule.h"

namespace plimsoll {

Schedule read_schedule(const std::filesystem::path&);
Schedule parse_schedule(std::string text, std::string file_name);

/// Throws InputError for what is wrong with the file as was seen after reading it, with the key's place there; of what
/// cannot be read twice, a pipe, with the key alone.
[[noreturn]] void refuse(const std::filesystem::path&, std::string_view key, std::string_view what);

/// `made_by` is the program's version and command line.
void write_schedule(const std::filesystem::path&, const Schedule&, const std::string& made_by);
std::string schedule_text(const Schedule&, const std::string& made_by, const std::filesystem::path& folder = ".");

}  // namespace plimsoll
