// Endpoint: what the engine dispatches to: one end of one RC connection.
//
// A lane is carried by a connection of its own, made by whoever sends: Outbound at the sender,
// Inbound at the receiver. So two processes that connect to one another at the same moment have
// nothing to agree on, a rank reaches itself like any other, and a lane that breaks takes nothing
// with it, not even its counterpart in the other direction.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dunlin::transport::verbs {

enum class EventType : std::uint8_t {
  kRouteFound,
  kEstablished,
  kEnded,       // the other end has let go of it
  kRefused,     // the other end does not want it
  kFailed,      // any other reason why it can't be made
  kDeviceGone,  // ours
};

// What happened to a connection.
struct Event {
  EventType type;
  std::string reason{};                   // in words; of the last four
  bool is_final = false;                  // kRefused: and it won't want another one either
  std::vector<std::byte> private_data{};  // kEstablished, at who asked: what the other end answers
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_event(const Event& event) = 0;
  virtual void on_completion(const ibv_wc& completion) = 0;
};

}  // namespace dunlin::transport::verbs
