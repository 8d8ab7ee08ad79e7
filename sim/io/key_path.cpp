#include "sim/io/key_path.h"

namespace plimsoll {

std::string to_string(const KeyPath& path) {
  if (path.parent == nullptr) return "";
  std::string text = to_string(*path.parent);
  if (path.key.empty()) return text.append("[").append(std::to_string(path.index)).append("]");
  return text.append(text.empty() ? "" : ".").append(path.key);
}

std::string below(std::string_view list, std::size_t index, std::string_view key) {
  std::string text(list);
  text.append("[").append(std::to_string(index)).append("]");
  if (!key.empty()) text.append(".").append(key);
  return text;
}

}  // namespace plimsoll
