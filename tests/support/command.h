// Runs a program and collects its output, for tests of whole processes.
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

// The program gets `variables` and this process's environment without its DUNLIN_* variables.
// `timeout` is what it may take on an idle host, here and below. It is killed only after five times
// as long, because the host may be loaded.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {},
                          std::chrono::seconds timeout = std::chrono::minutes(2));

// A program that runs while the test does something else.
class RunningCommand {
 public:
  explicit RunningCommand(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {});
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  int pid() const { return pid_; }
  // Reads standard output until it contains `text`. False when the output ends or the timeout
  // passes first.
  bool wait_for_output(const std::string& text, std::chrono::seconds timeout);
  // The standard output that has been read so far.
  const std::string& out() const { return result_.out; }
  CommandResult wait(std::chrono::seconds timeout);

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  int pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  CommandResult result_;
};

// The lines of `text`, sorted, because lines of several ranks come in any order.
std::vector<std::string> sorted_lines(const std::string& text);

}  // namespace dunlin::testing
