#include "tools/dunlin-run/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/process_stat.h"

namespace dunlin::run {
namespace {

namespace fs = std::filesystem;

// The parent of a process; 0 when the process is gone.
pid_t parent_of(pid_t pid) {
  const std::string fields = process_stat(pid);  // the state, a letter, and the parent
  pid_t parent = 0;
  if (fields.size() > 2) std::from_chars(fields.data() + 2, fields.data() + fields.size(), parent);
  return parent;
}

std::vector<pid_t> search_children() {
  std::vector<pid_t> found;
  const pid_t self = getpid();
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    if (const pid_t pid = std::stoi(name); parent_of(pid) == self) found.push_back(pid);
  }
  return found;
}

// All children of this process, zombies included. Kernels without CONFIG_PROC_CHILDREN have no list
// of them.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream list(task->path() / "children");
    if (!list) return search_children();
    for (pid_t child = 0; list >> child;) found.push_back(child);
  }
  return found;
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

}  // namespace

Status Orphans::adopt() {
  spared_groups_.insert(getpgrp());
  for (const pid_t child : children()) {
    spared_.insert(child);
    if (const pid_t group = getpgid(child); group > 0) spared_groups_.insert(group);
  }
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return Status::from_errno("prctl(PR_SET_CHILD_SUBREAPER)", errno);
  return Status::ok();
}

bool Orphans::is_spared(pid_t child) const {
  return spared_.contains(child) || spared_groups_.contains(getpgid(child));
}

std::vector<pid_t> Orphans::find() const {
  std::vector<pid_t> found = children();
  std::erase_if(found, [this](pid_t child) { return is_rank_(child) || is_spared(child); });
  return found;
}

void Orphans::reap() {
  for (const pid_t orphan : find()) {
    if (has_ended(orphan) && waitpid(orphan, nullptr, WNOHANG) == orphan) asked_.erase(orphan);
  }
}

std::vector<pid_t> Orphans::running() const {
  std::vector<pid_t> found = find();
  std::erase_if(found, has_ended);
  return found;
}

bool Orphans::ask_to_end() {
  const std::vector<pid_t> orphans = running();
  for (const pid_t orphan : orphans) {
    if (!asked_.insert(orphan).second) continue;
    ::kill(orphan, SIGTERM);
    ::kill(orphan, SIGCONT);  // a stopped process hears nothing else
  }
  return !orphans.empty();
}

bool Orphans::kill() {
  const std::vector<pid_t> orphans = running();
  for (const pid_t orphan : orphans) ::kill(orphan, SIGKILL);
  return !orphans.empty();
}

}  // namespace dunlin::run
