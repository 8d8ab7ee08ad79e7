#pragma once
// CPU time so far, of the user and of the system.

#include <sys/resource.h>

namespace plimsoll {

/// Of RUSAGE_SELF, or of RUSAGE_CHILDREN that have ended.
inline double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

inline double cpu_seconds() {
  return cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN);
}

}  // namespace plimsoll
