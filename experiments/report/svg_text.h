#pragma once
// What pictures of a report are made of: SVG as text.

#include <string>
#include <string_view>

namespace plimsoll {

/// For SVG's text: `<`, `&` and `"` as entities.
std::string svg_escaped(std::string_view);

/// A number of pixels, to a tenth.
std::string svg_pixels(double);

struct SvgSize {
  double width = 0, height = 0;  ///< pixels
};

/// A picture with that content. With a title it is a file of its own on a white ground, with the title at `left` above;
/// without, its text has the colour of what surrounds it.
std::string svg_page(SvgSize, double left, const std::string& title, const std::string& content);

}  // namespace plimsoll
