#include "tools/dunlin-run/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace dunlin::run {
namespace {

struct Pipe {
  Fd reading;
  Fd writing;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// An array for execve: pointers into strings that live as long as this object.
class StringArray {
 public:
  explicit StringArray(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& each : strings_) pointers_.push_back(each.data());
    pointers_.push_back(nullptr);
  }
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

std::vector<std::string> to_strings(const Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment.values())
    result.push_back(fmt::format("{}={}", name, value));
  return result;
}

bool is_executable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// What the child needs. It is made before fork, because this process has threads: the child may
// only make async-signal-safe calls.
struct Prepared {
  const char* path;
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cpus;
  int out;
  int err;
  int report;
  pid_t parent;
};

[[noreturn]] void become(const Prepared& prepared) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.parent) _exit(127);  // the parent died before prctl
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(prepared.out, STDOUT_FILENO);
  dup2(prepared.err, STDERR_FILENO);
  if (prepared.cpus != nullptr) sched_setaffinity(0, sizeof *prepared.cpus, prepared.cpus);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(prepared.path, prepared.arguments, prepared.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t put = write(prepared.report, &error, sizeof error);
  _exit(127);
}

void set_non_blocking(const Fd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

Result<std::string> find_program(const std::string& program, const Environment& environment) {
  if (program.find('/') != std::string::npos) {
    if (is_executable(program)) return program;
    return Status(Code::kNotFound, fmt::format("'{}' is not an executable file", program));
  }
  const std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    if (std::string file = fmt::format("{}/{}", folder, program); is_executable(file)) return file;
    begin = end + 1;
  }
  return Status(Code::kNotFound, fmt::format("no program '{}' in PATH={}", program, path));
}

Result<Child> start_child(const ChildSpec& spec) {
  DUNLIN_ASSIGN(Pipe out, make_pipe());
  DUNLIN_ASSIGN(Pipe err, make_pipe());
  DUNLIN_ASSIGN(Pipe report, make_pipe());
  const StringArray arguments(spec.arguments);
  const StringArray environment(to_strings(spec.environment));
  const Prepared prepared{
      spec.path.c_str(), arguments.get(),   environment.get(),    spec.cpus ? &*spec.cpus : nullptr,
      out.writing.get(), err.writing.get(), report.writing.get(), getpid()};
  const pid_t pid = fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) become(prepared);
  setpgid(pid, pid);  // the child does so as well; a signal to the group cannot come before either
  report.writing.reset();
  int error = 0;
  if (read(report.reading.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, nullptr, 0);
    return Status::from_errno(fmt::format("cannot start '{}'", spec.path), error);
  }
  set_non_blocking(out.reading);
  set_non_blocking(err.reading);
  return Child{pid, std::move(out.reading), std::move(err.reading)};
}

}  // namespace dunlin::run
