// Interrupt: notices that the program was asked to end (SIGINT, SIGTERM), instead of dying of it,
// so that the training can end in order. Any thread; one object at a time.
#pragma once

namespace dunlin::cnn {

class Interrupt {
 public:
  // From now on, until it is destroyed. Who asks a third time isn't kept waiting.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool is_asked() const;
};

}  // namespace dunlin::cnn
