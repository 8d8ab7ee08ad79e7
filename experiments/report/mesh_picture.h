#pragma once
// How ranks of a mesh share out a model, as SVG for a file or for the page of a report.

#include <string>

#include "sim/io/json/json.h"

namespace plimsoll {

/// Of what `mesh_record` holds: a row for each group of operators, a column for each axis, or for neighbours along
/// which all lies alike, with the dimension that is cut by colour and by name and how the result lies; below them what
/// ranks exchange, with bars as long as the bytes. With a title it is a file of its own on a white ground; without, its
/// text has the colour of what surrounds it.
std::string mesh_svg(const Json& mesh, const std::string& title);

}  // namespace plimsoll
