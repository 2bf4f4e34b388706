// Terminal: shows one text after another on standard output. On a terminal, each replaces the last
// one on the alternate screen, and the last one stays afterwards. Elsewhere they follow each other.
// One thread.
#pragma once

#include <string>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/status.h"
#include "tools/dunlin-top/screen.h"

namespace dunlin::top {

class Terminal {
 public:
  // From now on, SIGINT, SIGTERM and SIGHUP no longer end this process: pause() tells of them.
  static Result<Terminal> open();
  Terminal(Terminal&& other) noexcept = default;
  // Leaves the alternate screen and prints the last text.
  ~Terminal();

  ScreenSize size() const;
  Status show(const std::string& text);
  // Returns after this time, or sooner when the size has changed. False: a signal asks to end.
  bool pause(Duration time);

 private:
  explicit Terminal(Fd signals);

  Fd signals_;
  bool is_terminal_ = false;
  bool is_alternate_ = false;
  std::string last_;
};

}  // namespace dunlin::top
