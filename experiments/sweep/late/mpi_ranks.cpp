#include "experiments/sweep/late/mpi_ranks.h"

#include <boost/mpi.hpp>
#include <boost/serialization/string.hpp>

namespace {

namespace mpi = boost::mpi;

// Messages are whole texts of one kind.
constexpr int text_tag = 1;

/// Where the process ends without leave(), nobody waits for the others: mpirun ends them.
mpi::environment*& joined() {
  static mpi::environment* environment = nullptr;
  return environment;
}

void enter() {
  joined() = new mpi::environment(mpi::threading::single);
}

void send_text(int to, const std::string& text) {
  mpi::communicator().send(to, text_tag, text);
}

std::optional<plimsoll::RankMessage> receive_text() {
  const mpi::communicator world;
  const boost::optional<mpi::status> arrived = world.iprobe(mpi::any_source, text_tag);
  if (!arrived) return std::nullopt;
  plimsoll::RankMessage message{arrived->source(), {}};
  world.recv(arrived->source(), text_tag, message.text);
  return message;
}

void leave() {
  mpi::communicator().barrier();
  delete joined();
}

}  // namespace

extern "C" {
extern const plimsoll::MpiRanks plimsoll_mpi;
const plimsoll::MpiRanks plimsoll_mpi{&enter, &send_text, &receive_text, &leave};
}
