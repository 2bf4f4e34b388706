// Interrupt: notices SIGINT and SIGTERM, which would otherwise end the process, so that the
// training can end in order. Any thread; one object at a time.
#pragma once

namespace dunlin::cnn {

class Interrupt {
 public:
  // Takes effect until it is destroyed. The third signal ends the process at once.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool is_asked() const;
};

}  // namespace dunlin::cnn
