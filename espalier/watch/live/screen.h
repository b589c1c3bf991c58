// A live view on the terminal of standard output, drawn by a thread of its own: ten times a second at most,
// and once a second at least, so that its clock goes on while the job says nothing.
//
// q asks for an orderly stop, as Ctrl-C does. The size is asked for at every drawing. See
// watch/terminal/session.h for how the terminal is given back.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "espalier/watch/live/view.h"
#include "espalier/watch/terminal/session.h"

namespace espalier::watch {

class LiveScreen {
 public:
  explicit LiveScreen(LiveViewOptions options);
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  // From any thread; see LiveView.
  void add(const nlohmann::ordered_json& line);
  void report(std::string_view what, int64_t done, int64_t total);
  void say(std::string_view message);

 private:
  void run();
  void handle_key(Key key);
  void draw();

  TerminalSession session_;
  std::mutex mutex_;  // guards view_
  LiveView view_;
  int wake_;  // an event: the thread is to end
  std::atomic<bool> ends_{false};
  TerminalSize size_{0, 0};         // at the last drawing
  std::vector<std::string> shown_;  // by it
  double repainted_ = 0;            // when all of it was written
  std::thread thread_;              // last: it uses all the others
};

}  // namespace espalier::watch
