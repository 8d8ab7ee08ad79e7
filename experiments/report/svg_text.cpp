#include "experiments/report/svg_text.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll {

std::string svg_escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

std::string svg_pixels(double x) {
  return fmt::format("{:.7g}", std::round(10 * x) / 10);
}

std::string svg_page(SvgSize size, double left, const std::string& title, const std::string& content) {
  const std::string look = title.empty() ? "fill=\"currentColor\"" : "fill=\"#222\" style=\"background:#fff\"";
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "font-family=\"DejaVu Sans,Arial,sans-serif\" font-size=\"10\" {2}>\n",
      svg_pixels(size.width), svg_pixels(size.height), look);
  if (!title.empty()) {
    text += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    text += fmt::format("<text x=\"{}\" y=\"16\" font-size=\"12\">{}</text>\n", left, svg_escaped(title));
  }
  return text + content + "</svg>\n";
}

}  // namespace plimsoll
