#pragma once
// EXPECTS(condition): a promise inside the program. A broken one throws BrokenPromise, caught once in main (exit code
// 3).

#include <stdexcept>
#include <string>

namespace plimsoll {

struct BrokenPromise : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void broken_promise(const char* condition, const char* file, int line);

}  // namespace plimsoll

#define EXPECTS(condition)                                        \
  do {                                                            \
    if (!(condition)) {                                           \
      ::plimsoll::broken_promise(#condition, __FILE__, __LINE__); \
    }                                                             \
  } while (false)
