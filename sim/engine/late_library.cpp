#include "sim/engine/late_library.h"

#include <dlfcn.h>

namespace plimsoll {

const void* exported_by_library(std::string_view name) {
  const std::string symbol = std::string("plimsoll_").append(name), file = "lib" + symbol + ".so";
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // found by the program's run path
  const void* const exported = library == nullptr ? nullptr : dlsym(library, symbol.c_str());
  if (exported == nullptr) throw LibraryMissing(file + " belongs next to the program: " + dlerror());
  return exported;
}

}  // namespace plimsoll
