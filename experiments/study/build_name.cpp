#include "experiments/study/build_name.h"

namespace plimsoll {

std::string program_version() {
  return "plimsoll " PLIMSOLL_VERSION " (" + std::string(build_name()) + ")";
}

std::string made_by(const std::string& command_line) {
  return program_version() + ": " + command_line;
}

}  // namespace plimsoll
