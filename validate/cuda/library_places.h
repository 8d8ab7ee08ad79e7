#pragma once
// Where this machine may have cuBLASLt and cuDNN: the program may have been built on another one.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll {

struct SharedLibrary {
  std::string stem;         ///< "libcublasLt.so"
  std::vector<int> majors;  ///< versions that will do, the best first: "libcublasLt.so.13"
  std::string built_with;   ///< the file that this program was built with
};

/// A variable's value, as std::getenv has it.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment this_environment();

/// What to open, in the order in which it is tried. A version is looked for everywhere before the next one: in the
/// folders of PLIMSOLL_CUDA_LIBRARIES (with colons between), as the system finds it, where this program was built, in
/// the toolkit's usual folders, and in the Python packages that come with PyTorch (nvidia/*/lib) of every python3 on
/// the PATH.
std::vector<std::string> places_of(const SharedLibrary&, const Environment&);

/// The first that can be opened, for dlsym; throws BackendError, which names what is missing and where it was looked
/// for.
void* open_library(const SharedLibrary&, const Environment&);

}  // namespace plimsoll
