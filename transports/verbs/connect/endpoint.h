// Endpoint: one end of one RC connection. Events and completions are dispatched to it.
//
// Each lane of each direction has a connection of its own, which the sender makes: Outbound is its
// end at the sender, and Inbound its end at the receiver. Two processes that connect to each other
// at the same moment therefore need no agreement, a rank connects to itself as to any other, and a
// connection that breaks affects no other lane, not even the one in the opposite direction.
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
  kEnded,       // the other end has disconnected
  kRefused,     // the other end refuses the connection
  kFailed,      // the connection cannot be made for any other reason
  kDeviceGone,  // the device of this end was removed
};

// What happened to a connection.
struct Event {
  EventType type;
  std::string reason{};                   // for the last four types
  bool is_final = false;                  // kRefused: the other end will refuse any other one, too
  std::vector<std::byte> private_data{};  // kEstablished, at the end that asked: the Answer
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_event(const Event& event) = 0;
  virtual void on_completion(const ibv_wc& completion) = 0;
};

}  // namespace dunlin::transport::verbs
