#pragma once
// Which build of the program this is.

#include <string>
#include <string_view>

namespace plimsoll {

/// The commit, as `3f2a1b9c0d1e`; `3f2a1b9c0d1e-dirty-5a6b7c8d` where sources were changed since, with a digest of the
/// changes; `unknown` where the sources came without their history.
std::string_view build_name();

/// `plimsoll 0.1.0 (3f2a1b9c0d1e)`
std::string program_version();

/// `plimsoll 0.1.0 (3f2a1b9c0d1e): plimsoll simulate ...`, at the start of every file that is written.
std::string made_by(const std::string& command_line);

}  // namespace plimsoll
