#pragma once
// Load lines as JSON: the points as workers hand them on, and the whole answer.

#include "experiments/load/load_line.h"
#include "sim/io/json/json.h"

namespace plimsoll {

Json to_json(const LoadPoint&);
Json to_json(const LoadBoundPoint&);
LoadPoint load_point_of(const Json&);
LoadBoundPoint load_bound_of(const Json&);

/// `plimsoll.load.v1`: experiments/README.md has the keys.
Json load_json(const LoadQuestion&, const LoadAnswer&, const std::string& made_by);

}  // namespace plimsoll
