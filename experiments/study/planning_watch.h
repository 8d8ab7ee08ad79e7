#pragma once
// A word on stderr now and then, while something takes long that cannot say how far it is.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace plimsoll {

/// `planning with rotor|offmate: 20 s so far`, and what is known of how far it is, as long as this lives and from
/// `first` on: on a terminal one line that is rewritten every second, else a line after every `pause`.
class PlanningWatch {
 public:
  explicit PlanningWatch(std::string what, std::chrono::milliseconds first = std::chrono::seconds(5),
                         std::chrono::milliseconds pause = std::chrono::seconds(10));
  ~PlanningWatch();
  PlanningWatch(const PlanningWatch&) = delete;
  PlanningWatch& operator=(const PlanningWatch&) = delete;

  /// What is said from now on behind the seconds.
  void set_progress(std::string how_far);

  /// Lets others write whole lines on stderr, which no line of this is in the way of.
  template <class Says>
  void aside(Says&& says) {
    const std::lock_guard lock(mutex_);
    clear();
    says();
  }

 private:
  void run();
  void clear();

  std::string what_, how_far_;
  std::chrono::milliseconds first_, pause_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;
  bool is_terminal_, is_shown_ = false;  // on it: a line that is to be rewritten
  std::thread thread_;
};

}  // namespace plimsoll
