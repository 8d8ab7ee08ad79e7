#include "sim/engine/simgrid/simgrid_run.h"

#include "sim/engine/late_library.h"

namespace plimsoll {

const SimgridRun& simgrid() {
  static const SimgridRun& library = late_library<SimgridRun>("simgrid");
  return library;
}

}  // namespace plimsoll
