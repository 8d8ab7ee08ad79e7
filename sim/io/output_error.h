#pragma once
// OutputError: there is no room for what the program makes, or no permission to write it. Exit code 4.

#include <stdexcept>

namespace plimsoll {

class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace plimsoll
