// Interrupt: notices signals that would otherwise end the process, so that a program can end, or
// leave its job, in order. Any thread; one object at a time.
#pragma once

#include <vector>

namespace dunlin {

class Interrupt {
 public:
  // Takes these signals over until it is destroyed. It notes the first `tolerated` of each kind;
  // the next one ends the process at once.
  Interrupt(std::vector<int> signals, int tolerated);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool is_asked() const;
  bool is_asked(int signal) const;

 private:
  void handle_by(void (*handler)(int)) const;

  const std::vector<int> signals_;
};

}  // namespace dunlin
