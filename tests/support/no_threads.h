// NoThreads: lets the creation of threads fail, as it does where a container limits their number.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace dunlin::testing {

// Until this is destroyed, no thread can be created in this process: each asks for a stack that is
// larger than the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, kStackSize);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static constexpr std::size_t kStackSize = std::size_t{1} << 62;
  pthread_attr_t before_;
};

}  // namespace dunlin::testing
