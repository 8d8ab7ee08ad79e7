#include "sim/core/device_name.h"

#include <algorithm>
#include <array>
#include <vector>

namespace plimsoll {
namespace {

constexpr std::string_view white = " \t\r\n\v\f";

/// Lower-case words and numbers before the first comma or '@', without those that only decorate.
std::vector<std::string> telling_words(std::string_view name) {
  constexpr std::array decoration = {"r",     "tm",  "c",   "nvidia", "tesla",    "geforce",
                                     "intel", "amd", "cpu", "gpu",    "processor"};
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty() && std::ranges::find(decoration, word) == decoration.end()) words.push_back(word);
    word.clear();
  };
  for (const char c : name.substr(0, name.find_first_of(",@"))) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += static_cast<char>(is_upper ? c - 'A' + 'a' : c);
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

}  // namespace

std::string device_name(std::string_view reported) {
  std::string name;
  while (true) {
    const std::size_t first = reported.find_first_not_of(white);
    if (first == std::string_view::npos) return name;
    const std::string_view word = reported.substr(first, reported.find_first_of(white, first) - first);
    if (!name.empty()) name += ' ';
    name += word;
    reported.remove_prefix(first + word.size());
  }
}

std::string processor_name(std::string_view cpuinfo, std::string_view machine) {
  while (!cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(cpuinfo.size(), line.size() + 1));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || device_name(line.substr(0, colon)) != "model name") continue;
    const std::string name = device_name(line.substr(colon + 1));
    if (!name.empty()) return name;
  }
  return device_name(machine);
}

bool seems_same_device(std::string_view left, std::string_view right) {
  const std::vector<std::string> words = telling_words(left);
  return left != right && !words.empty() && words == telling_words(right);
}

}  // namespace plimsoll
