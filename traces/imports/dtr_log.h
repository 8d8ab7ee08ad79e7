#pragma once
// Reads the logs of DTR's authors (simrd): one JSON object a line, all numbers written as strings. The keys are
// described in traces/imports.md.

#include <filesystem>
#include <string>

#include "sim/model/op_log.h"

namespace plimsoll {

/// Begins after `ANNOTATE START` where there is one. Throws InputError with file:line:column for what is malformed.
OpLog read_dtr_log(const std::filesystem::path&);
OpLog parse_dtr_log(const std::string& text, const std::string& file_name);

}  // namespace plimsoll
