// Runs a program and collects what it wrote, for tests of whole processes.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace dunlin::testing {

struct CommandResult {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// `variables` are added to this process's environment, less its own DUNLIN_*. A program that runs
// longer than `patience` is killed.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {},
                          std::chrono::seconds patience = std::chrono::seconds(60));

// A program that runs while the test does something else.
class RunningCommand {
 public:
  explicit RunningCommand(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {});
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  int pid() const { return pid_; }
  // Reads standard output until it contains `text`; false when it ended or patience is over.
  bool wait_for_output(const std::string& text, std::chrono::seconds patience);
  // Standard output so far.
  const std::string& out() const { return result_.out; }
  CommandResult wait(std::chrono::seconds patience);

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  int pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  CommandResult result_;
};

// The lines of `text`, sorted: what several ranks print has no order.
std::vector<std::string> sorted_lines(const std::string& text);

}  // namespace dunlin::testing
