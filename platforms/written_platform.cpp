#include "platforms/written_platform.h"

#include <fmt/format.h>

#include <algorithm>

#include "platforms/efficiency_file.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/reference_options.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

/// each(std::string_view line), without its end.
template <class Each>
void for_lines(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string platform_with_efficiency(std::string_view reference, const Efficiency& efficiency,
                                     const std::string& source) {
  const auto refuse = [&](std::string_view why) { throw InputError(fmt::format("platform '{}': {}", reference, why)); };
  if (reference_name(reference) != reference) refuse("expected no options, which the new file takes as well");
  const std::filesystem::path path = find_platform(reference);
  const std::string text = read_text_file(path);
  const Platform platform = parse_platform(text, path.string());
  const auto has_its_own = [](const Device& device) { return device.efficiency != nullptr; };
  if (std::ranges::any_of(platform.devices, has_its_own)) refuse("it has efficiencies, expected one without");
  const std::string name = fmt::format("name: {}\n", quoted_in_yaml(efficiency.name));
  const std::string both = fmt::format("source: {}\n", quoted_in_yaml(fmt::format("{}; {}", platform.source, source)));
  std::string made, key;
  int renewed = 0;
  for_lines(text, [&](std::string_view line) {
    const bool begins = !line.empty() && line.front() != ' ' && line.front() != '#';
    if (begins) key = line.substr(0, line.find(':'));
    const bool is_of_key = begins || line.starts_with(' ');  // comments and empty lines stay
    const bool is_new = is_of_key && (key == "name" || key == "source");
    if (is_new && begins) {
      made += key == "name" ? name : both;
      ++renewed;
    }
    const bool is_schema = line.starts_with("# yaml-language-server");  // by a path from where the file is
    const bool is_end = line.starts_with("...");                        // of the document, which goes on
    if (!is_new && !is_schema && !is_end) made += fmt::format("{}\n", line);
  });
  if (renewed != 2) refuse("expected name and source on lines of their own");
  made += "efficiency:\n";
  for_lines(written_efficiency(efficiency, source),
            [&](std::string_view line) { made += fmt::format("  {}\n", line); });
  return made;
}

}  // namespace plimsoll
