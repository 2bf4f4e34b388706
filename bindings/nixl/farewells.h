// Farewells: connections that an agent uses no more, until they have ended.
//
// A peer that makes no progress holds up the end of its connection for a second. So the agent ends
// connections here, and serves others meanwhile. All functions are called under the agent's lock.
#pragma once

#include <memory>
#include <vector>

#include "transports/endpoint/connection.h"

namespace dunlin::nixl {

class Farewells {
 public:
  // Ends the connection once its peer has got what was sent, or after a second. Transfers that
  // still hold it fail then. Ignores null.
  void add(std::shared_ptr<transport::Connection> connection);
  // The same, but first lets the transfers that hold it be done.
  void add_used(std::shared_ptr<transport::Connection> connection);
  void progress();
  // Waits for no transfers any more.
  void hurry();
  bool is_empty() const { return leaving_.empty(); }

 private:
  struct Leaving {
    std::shared_ptr<transport::Connection> connection;
    bool is_used = false;

    // Whether it has ended.
    bool advance();
  };

  std::vector<Leaving> leaving_;
};

}  // namespace dunlin::nixl
