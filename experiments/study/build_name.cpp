#include "experiments/study/build_name.h"

namespace plimsoll {

std::string program_version() {
  return "plimsoll " PLIMSOLL_VERSION " (" + std::string(build_name()) + ")";
}

}  // namespace plimsoll
