#pragma once
// Numbers that a file leaves open and `plimsoll import --set KEY=N` gives: axes without a size, repeated layers.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

class ImportNumbers {
 public:
  ImportNumbers() = default;
  /// `batch=8` and the like; throws InputError where one is no such thing or names a key twice.
  explicit ImportNumbers(const std::vector<std::string>& assignments);

  /// What is given for the key; who asks has used it.
  std::optional<std::int64_t> asked(std::string_view key);

  /// Throws InputError where a given key was not asked for: `layerz: the file has no such number, expected layers`.
  void refuse_unused() const;

 private:
  struct Given {
    std::string key;
    std::int64_t value = 0;
    bool used = false;
  };
  std::vector<Given> given_;
  std::vector<std::string> asked_;
};

}  // namespace plimsoll
