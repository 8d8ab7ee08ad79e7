#pragma once
// JSON that somebody else may have written.

#include <string_view>

#include "sim/io/json/json.h"

namespace plimsoll {

/// The value; discarded where the text is not JSON, or nested deeper than values may be that are copied and written:
/// both take a call a level.
Json parsed_json(std::string_view text);

}  // namespace plimsoll
