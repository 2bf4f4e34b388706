// RelaxedCapture: calls of CUDA while another thread captures a graph.
//
// While a thread of the application captures a graph, CUDA forbids many calls to all threads: such
// a call fails, and spoils the graph. The thread that makes a RelaxedCapture may call until it
// destroys it. What Dunlin does on its own streams has nothing to do with what is captured.
#pragma once

namespace dunlin {

class RelaxedCapture {
 public:
  // For threads that call CUDA through other libraries. Does nothing where this process has not
  // loaded the driver.
  RelaxedCapture();
  // With cuThreadExchangeStreamCaptureMode; null: does nothing.
  explicit RelaxedCapture(int (*exchange)(int* mode));
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int (*const exchange_)(int* mode);
  int mode_;  // the thread's former one
  const bool has_changed_;
};

}  // namespace dunlin
