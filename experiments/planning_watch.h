#pragma once
// A word on stderr now and then, while something takes long that cannot say how far it is.

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace plimsoll {

/// `planning with rotor|offmate: 20 s so far`, as long as this lives: first after 5 s, on a terminal one line that is
/// rewritten every second, else a line every 10 s.
class PlanningWatch {
 public:
  explicit PlanningWatch(std::string what);
  ~PlanningWatch();
  PlanningWatch(const PlanningWatch&) = delete;
  PlanningWatch& operator=(const PlanningWatch&) = delete;

 private:
  void run();

  std::string what_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace plimsoll
