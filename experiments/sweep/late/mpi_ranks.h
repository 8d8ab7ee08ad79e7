#pragma once
// The processes that mpirun has started, as messages between them: what libplimsoll_mpi.so exports as `plimsoll_mpi`.
// It is loaded only where mpirun has started the program.

#include <optional>
#include <string>

namespace plimsoll {

/// A message, and the rank that it is from.
struct RankMessage {
  int from = 0;
  std::string text;
};

struct MpiRanks {
  /// Joins the others; once a process.
  void (*enter)();
  void (*send)(int to, const std::string& text);
  /// What has arrived; nothing: nothing has.
  std::optional<RankMessage> (*receive)();
  /// Waits for the others, after which no messages are sent.
  void (*leave)();
};

}  // namespace plimsoll
