#include "sim/core/expects.h"

namespace plimsoll {

void broken_promise(const char* condition, const char* file, int line) {
  throw BrokenPromise(std::string(file) + ":" + std::to_string(line) + ": broken promise: " + condition);
}

}  // namespace plimsoll
