#pragma once
// How full the memories were over time as CSV, and what was in them at their fullest moments as JSON.

#include <filesystem>
#include <string>
#include <string_view>

#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// A comment line with `made_by`, then `date_s,memory,live_bytes`: one row a change, memory by memory.
std::string memory_profile_csv(const Problem&, const Schedule&, const Timeline&, std::string_view made_by = "");

/// Per memory the fullest moment: when, during which step, bytes by kind, and every tensor that is there, largest
/// first.
Json memory_peaks_json(const Problem&, const Schedule&, const Timeline&, std::string_view made_by = "");

/// The JSON where the file's name ends in `.json`, else the CSV.
void write_memory_profile(const std::filesystem::path&, const Problem&, const Schedule&, const Timeline&,
                          std::string_view made_by = "");

}  // namespace plimsoll
