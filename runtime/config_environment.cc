// Environment: what is read from the process's variables, and the secret that is taken out of them.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/config.h"
#include "runtime/process_stat.h"

namespace dunlin {
namespace {

constexpr const char* kSecret = "DUNLIN_JOB_SECRET";
constexpr const char* kSecretFile = "DUNLIN_JOB_SECRET_FILE";

// The secret that was taken out of the environment. It belongs to the process as the environment
// does, so that each later reader of the environment finds it.
class HiddenSecret {
 public:
  static HiddenSecret& of_process() {
    static HiddenSecret* const secret = new HiddenSecret();  // also for threads that outlive main()
    return *secret;
  }
  void set(std::string value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }
  std::string get() {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::string value_;
};

// The memory in which the kernel has put the variables, and which /proc/PID/environ shows, whatever
// became of the variables since. Empty where it cannot be found.
std::span<char> initial_environment() {
  const std::string line = process_stat(getpid());
  constexpr int kStart = 50;  // the field's number in proc(5); the end is the next one
  std::size_t at = 0;
  for (int field = 3; field < kStart && at != std::string::npos; ++field)
    at = line.find(' ', at + 1);
  if (line.empty() || at == std::string::npos) return {};
  char* next = nullptr;
  const auto start = std::strtoull(line.c_str() + at, &next, 10);
  const auto end = std::strtoull(next, nullptr, 10);
  if (start == 0 || end <= start) return {};
  return {reinterpret_cast<char*>(start), end - start};
}

void wipe_initial(std::string_view name) {
  const std::span<char> memory = initial_environment();
  for (std::size_t at = 0; at < memory.size();) {
    char* const entry = memory.data() + at;
    const std::size_t length = strnlen(entry, memory.size() - at);
    if (std::string_view(entry, length).starts_with(std::string(name) + "="))
      std::memset(entry + name.size() + 1, '-', length - name.size() - 1);
    at += length + 1;
  }
}

}  // namespace

Environment Environment::of_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.values_.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  const bool has_other = !result.get(kSecretFile).value_or("").empty();
  std::string hidden = HiddenSecret::of_process().get();
  if (!has_other && !hidden.empty()) result.values_.emplace(kSecret, std::move(hidden));
  return result;
}

void Environment::hide_job_secret() {
  const char* const value = std::getenv(kSecret);
  if (value == nullptr || *value == '\0') return;
  HiddenSecret::of_process().set(value);
  unsetenv(kSecret);
  wipe_initial(kSecret);
}

bool Environment::hides_job_secret() {
  return std::getenv(kSecret) == nullptr && !HiddenSecret::of_process().get().empty();
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

}  // namespace dunlin
