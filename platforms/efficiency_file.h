#pragma once
// Files of measured efficiencies: YAML text -> Efficiency, and back. platforms/README.md describes the format.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/yaml_document.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {

/// A path or the name of a shipped file; throws where it is neither, or the file is wrong. `also`: another word that
/// the caller takes, which a complaint names.
Efficiency load_efficiency(std::string_view name_or_path, std::string_view also = {});
Efficiency parse_efficiency(const std::string& text, std::string file_name);
/// Written out in another file, with its format, name and source.
Efficiency efficiency_at(const YamlCursor&);
std::vector<std::string> shipped_efficiencies();

/// As a word of YAML, whatever stands in it.
std::string quoted_in_yaml(std::string_view);

/// As a file. Shares are written to four digits.
std::string written_efficiency(const Efficiency&, const std::string& source);

}  // namespace plimsoll
