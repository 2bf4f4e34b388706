#include "runtime/uninherited_fd.h"

#include <fcntl.h>
#include <pthread.h>

#include <mutex>
#include <set>

namespace dunlin {
namespace {

// The open descriptors. fork() waits for the mutex, so the child finds a whole list.
class Registry {
 public:
  // Never destroyed: objects may be destroyed after static ones.
  static Registry& instance() {
    static Registry* const registry = new Registry();
    return *registry;
  }

  void add(int fd) {
    const std::lock_guard guard(mutex_);
    open_.insert(fd);
  }
  // Closes it before another thread can fork, or can get the number for another descriptor.
  void close(Fd fd) {
    const std::lock_guard guard(mutex_);
    open_.erase(fd.get());
    fd.reset();
  }

 private:
  Registry() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().leave_to_parent();
                     instance().mutex_.unlock();
                   });
  }
  // The numbers stay in use, as the child may still have the objects that own them.
  void leave_to_parent() {
    for (const int fd : open_) (void)dup3(nothing_.get(), fd, O_CLOEXEC);
  }

  std::mutex mutex_;
  std::set<int> open_;
  const Fd nothing_{open("/dev/null", O_RDWR | O_CLOEXEC)};
};

}  // namespace

UninheritedFd::UninheritedFd(Fd fd) : fd_(std::move(fd)) {
  if (fd_.is_open()) Registry::instance().add(fd_.get());
}

void UninheritedFd::reset() {
  if (fd_.is_open()) Registry::instance().close(std::move(fd_));
}

}  // namespace dunlin
