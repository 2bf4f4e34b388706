#include "tests/bindings/nccl/ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>

namespace dunlin::testing {
namespace {

std::atomic<int> warning_count{0};
std::mutex log_mutex;
// Never destroyed: a thread of the plugin may log until the process ends.
std::string& log_text = *new std::string;

// Keeps messages, and prints warnings, so that a test that fails says why.
void log(int level, unsigned long, const char*, int, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  {
    const std::lock_guard lock(log_mutex);
    log_text.append(text).append("\n");
  }
  if (level != abi::kLogWarn) return;
  ++warning_count;
  dprintf(STDOUT_FILENO, "process %d: %s\n", getpid(), text);
}

// A library in somebody else's process has to leave its signals alone.
std::vector<void (*)(int)> handlers() {
  std::vector<void (*)(int)> found;
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0) found.push_back(action.sa_handler);
  }
  return found;
}

[[noreturn]] void be_rank(int number, int size, int version, const std::string& transport,
                          Board& board, const std::function<void(Rank&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (transport.empty()) {
    unsetenv("DUNLIN_TRANSPORTS");
  } else {
    setenv("DUNLIN_TRANSPORTS", transport.c_str(), 1);
  }
  setenv("DUNLIN_OF_ANOTHER_VERSION", "1", 1);
  board.process[number] = getpid();
  const auto before = handlers();
  {
    Plugin plugin(DUNLIN_NCCL_PLUGIN, version);
    REQUIRE(plugin.init(log) == abi::kSuccess);
    int devices = 0;
    REQUIRE(plugin.devices(&devices) == abi::kSuccess);
    plugin.use(number % devices);
    Rank rank{number, size, board, plugin};
    body(rank);
    REQUIRE(plugin.finalize() == abi::kSuccess);
  }
  REQUIRE(handlers() == before);
  // With the destructors of the plugin.
  std::exit(0);
}

}  // namespace

Block pattern(std::size_t size, std::size_t seed) {
  Block block(size);
  for (std::size_t i = 0; i < size; ++i)
    block[i] = static_cast<unsigned char>((i * 131 + i / 251 + seed) & 0xff);
  return block;
}

abi::Logger logger() {
  return log;
}

int warnings() {
  return warning_count;
}

bool has_logged(const std::string& text) {
  const std::lock_guard lock(log_mutex);
  return log_text.find(text) != std::string::npos;
}

void require(bool condition, const char* what, int line) {
  if (condition) return;
  dprintf(STDOUT_FILENO, "process %d, line %d: %s\n", getpid(), line, what);
  {
    const std::lock_guard lock(log_mutex);
    constexpr std::size_t kTail = 4000;
    const std::size_t from = log_text.size() > kTail ? log_text.size() - kTail : 0;
    dprintf(STDOUT_FILENO, "what process %d has logged:\n%s", getpid(), log_text.c_str() + from);
  }
  _exit(1);
}

void until(const std::function<bool()>& step, const char* what) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!step()) {
    require(std::chrono::steady_clock::now() < limit, what, 0);
    std::this_thread::yield();
  }
}

void Rank::listen(void** listener) {
  char handle[abi::kHandleBytes];
  REQUIRE(plugin.listen(handle, listener) == abi::kSuccess);
  std::copy(std::begin(handle), std::end(handle), board.handle[number]);
  board.has_handle[number] = true;
}

void* Rank::connect(int to) {
  void* comm = nullptr;
  until([&] { return board.has_handle[to].load(); }, "waiting for a handle");
  until(
      [&] {
        REQUIRE(plugin.connect(board.handle[to], &comm) == abi::kSuccess);
        return comm != nullptr;
      },
      "connecting");
  return comm;
}

void* Rank::accept(void* listener) {
  void* comm = nullptr;
  until(
      [&] {
        abi::DeviceHandle* offload = nullptr;
        REQUIRE(plugin.common().accept(listener, &comm, &offload) == abi::kSuccess);
        return comm != nullptr;
      },
      "accepting");
  return comm;
}

void* Rank::add(void* comm, void* data, std::size_t bytes, int type) {
  void* memory = nullptr;
  REQUIRE(plugin.common().register_memory(comm, data, bytes, type, &memory) == abi::kSuccess);
  return memory;
}

void* Rank::send(void* comm, void* data, std::size_t bytes, int tag, void* memory) {
  void* request = nullptr;
  until(
      [&] {
        REQUIRE(plugin.send(comm, data, bytes, tag, memory, &request) == abi::kSuccess);
        return request != nullptr;
      },
      "sending");
  return request;
}

void* Rank::receive(void* comm, void* data, std::size_t bytes, int tag, void* memory) {
  void* request = nullptr;
  until(
      [&] {
        REQUIRE(plugin.receive(comm, 1, &data, &bytes, &tag, &memory, &request) == abi::kSuccess);
        return request != nullptr;
      },
      "receiving");
  return request;
}

int Rank::wait(void* request, int* sizes) {
  int own[64] = {};
  if (sizes == nullptr) sizes = own;
  until(
      [&] {
        int done = 0;
        REQUIRE(plugin.common().test(request, &done, sizes) == abi::kSuccess);
        return done != 0;
      },
      "testing");
  return sizes[0];
}

abi::Result Rank::wait_for_error(void* request) {
  abi::Result result = abi::kSuccess;
  until(
      [&] {
        int done = 0;
        result = plugin.common().test(request, &done, nullptr);
        REQUIRE(done == 0);
        return result != abi::kSuccess;
      },
      "waiting for an error");
  return result;
}

void Rank::sync() {
  const int next = ++board.step[number];
  until(
      [&] {
        return std::all_of(board.step, board.step + size,
                           [&](const auto& each) { return each >= next; });
      },
      "waiting for the other ranks");
}

void Rank::await_stopped(int other) {
  const std::string file = "/proc/" + std::to_string(board.process[other]) + "/stat";
  until(
      [&] {
        std::string line;
        std::getline(std::ifstream(file), line);
        // The state is behind the name, which is in parentheses.
        return line.substr(line.rfind(')') + 1, 2) == " T";
      },
      "a stopped process");
}

void Rank::send_signal(int other, int signal) {
  REQUIRE(kill(board.process[other], signal) == 0);
}

Pair::Pair(Rank& from) : rank(from) {
  if (is_receiver()) {
    rank.listen(&listener);
    comm = rank.accept(listener);
  } else {
    comm = rank.connect(0);
  }
}

void Pair::close() {
  const auto& calls = rank.plugin.common();
  REQUIRE((is_receiver() ? calls.close_receive : calls.close_send)(comm) == abi::kSuccess);
  if (listener != nullptr) REQUIRE(calls.close_listen(listener) == abi::kSuccess);
}

std::string run(int size, int version, const std::string& transport,
                const std::function<void(Rank&)>& body, const std::vector<int>& killed) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "no shared memory";
  auto& board = *new (memory) Board{};
  std::vector<pid_t> ranks;
  for (int number = 0; number < size; ++number) {
    const pid_t pid = fork();
    if (pid == 0) be_rank(number, size, version, transport, board, body);
    ranks.push_back(pid);
  }
  std::string problems;
  for (int left = size; left > 0; --left) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    const auto at = std::ranges::find(ranks, pid);
    if (at == ranks.end()) return "a process that is no rank has ended";
    const auto number = static_cast<int>(at - ranks.begin());
    *at = 0;
    const bool is_killed = std::ranges::count(killed, number) > 0;
    const bool is_well = is_killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                   : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_well || !problems.empty()) continue;
    problems = "rank " + std::to_string(number) + " ended with " + std::to_string(status);
    // The others may wait for it for ever.
    for (const pid_t each : ranks) {
      if (each != 0) kill(each, SIGKILL);
    }
  }
  munmap(memory, sizeof(Board));
  return problems;
}

}  // namespace dunlin::testing
