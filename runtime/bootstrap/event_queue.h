// EventQueue: waits for events of many descriptors by epoll, at a cost that does not grow with
// their number. One thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class EventQueue {
 public:
  // What a descriptor belongs to, as its owner tells the queue.
  struct Source {
    std::uint8_t kind = 0;
    std::uint64_t number = 0;  // below 2^56
    bool operator==(const Source&) const = default;
  };
  struct Event {
    Source source;
    std::uint32_t events;  // EPOLLIN and the like
  };

  static Result<EventQueue> create();

  // Waits for events of a descriptor from now on, until remove(). To close it is not enough: a
  // forked process may have it open as well.
  Status add(int fd, Source source, std::uint32_t events);
  Status change(int fd, Source source, std::uint32_t events);
  void remove(int fd);

  // Waits for an event, and returns those that there are, at most kMostEvents.
  std::vector<Event> wait(int timeout_ms);

 private:
  explicit EventQueue(Fd epoll) : epoll_(std::move(epoll)) {}
  Status control(int operation, int fd, Source source, std::uint32_t events);

  Fd epoll_;
};

}  // namespace dunlin::bootstrap
