#include "tests/support/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "runtime/config.h"

namespace dunlin::testing {
namespace {

std::vector<std::string> make_environment(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> result;
  const Environment own = Environment::of_process();
  for (const auto& [name, value] : own.values()) {
    if (!name.starts_with("DUNLIN_") && !variables.contains(name))
      result.push_back(name + "=" + value);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& each : strings) result.push_back(each.data());
  result.push_back(nullptr);
  return result;
}

// One read into `text`; closes the descriptor at the end of the stream.
void take(int& fd, std::string& text) {
  char chunk[65536];
  const ssize_t got = read(fd, chunk, sizeof chunk);
  if (got > 0) {
    text.append(chunk, static_cast<std::size_t>(got));
  } else {
    close(std::exchange(fd, -1));
  }
}

}  // namespace

RunningCommand::RunningCommand(const std::vector<std::string>& arguments,
                               const std::map<std::string, std::string>& variables) {
  std::vector<std::string> argument_strings = arguments;
  std::vector<std::string> environment_strings = make_environment(variables);
  const auto argument_pointers = pointers(argument_strings);
  const auto environment_pointers = pointers(environment_strings);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execvpe(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

RunningCommand::~RunningCommand() {
  if (pid_ > 0) wait(std::chrono::seconds(0));
}

bool RunningCommand::read_some(std::chrono::steady_clock::time_point deadline) {
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd entries[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  poll(entries, 2, static_cast<int>(left.count()));
  if (entries[0].revents != 0) take(out_fd_, result_.out);
  if (entries[1].revents != 0) take(err_fd_, result_.err);
  return true;
}

// A loaded host takes so many times as long as a timeout allows.
constexpr int kLoaded = 5;

bool RunningCommand::wait_for_output(const std::string& text, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + kLoaded * timeout;
  while (result_.out.find(text) == std::string::npos) {
    if (!read_some(deadline)) return false;
  }
  return true;
}

CommandResult RunningCommand::wait(std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + kLoaded * timeout;
  while (read_some(deadline)) {
  }
  if (out_fd_ >= 0 || err_fd_ >= 0) {
    kill(-pid_, SIGKILL);
    result_.err += "\n(killed by the test: it took too long)\n";
    for (int* fd : {&out_fd_, &err_fd_}) {
      if (*fd >= 0) close(std::exchange(*fd, -1));
    }
  }
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables,
                          std::chrono::seconds timeout) {
  return RunningCommand(arguments, variables).wait(timeout);
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace dunlin::testing
