#pragma once
// Libraries of ours that the program loads when it first needs them. What they link (SimGrid, COIN-OR) takes tens of
// milliseconds to load, which every other command would pay too.

#include <stdexcept>
#include <string>
#include <string_view>

namespace plimsoll {

/// The library, or one that it needs, is not there.
struct LibraryMissing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What `libplimsoll_<name>.so`, beside the program, exports as `plimsoll_<name>`; the library stays loaded.
const void* exported_by_library(std::string_view name);

/// The same as what it is: library and program are compiled together and agree on the type.
template <class Exports>
const Exports& late_library(std::string_view name) {
  return *static_cast<const Exports*>(exported_by_library(name));
}

}  // namespace plimsoll
