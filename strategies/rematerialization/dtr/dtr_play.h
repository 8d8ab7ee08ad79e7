#pragma once
// A log played to a runtime, one event at a time, to its end or until the runtime gives up.

#include <cstdint>

#include "strategies/rematerialization/dtr/dtr_runtime.h"

namespace plimsoll {

/// Thrown by a runtime, out of the innermost rematerialisation.
struct DtrStop {
  DtrEnd why;
};

template <class Runtime>
DtrEnd play(const OpLog& log, Runtime& runtime) try {
  for (const OpLog::Event& event : log.events) {
    switch (event.kind) {
      case OpLog::EventKind::call:
        runtime.call(event.index);
        break;
      case OpLog::EventKind::reference:
        runtime.refer(event.index);
        break;
      case OpLog::EventKind::release:
        runtime.release(event.index);
        break;
    }
  }
  for (const TensorId t : log.kept) runtime.keep(t.index);
  return DtrEnd::finished;
} catch (const DtrStop& stop) {
  return stop.why;
}

}  // namespace plimsoll
