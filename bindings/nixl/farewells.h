// Farewells: connections that an agent uses no more, until they have ended.
//
// A peer that makes no progress holds up the end of its connection for a second. So the agent ends
// connections here, and serves others meanwhile. One thread at a time, under the agent's lock.
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
  // The same, but first waits until the transfers that hold it are done.
  void add_used(std::shared_ptr<transport::Connection> connection);
  // Takes the steps that can be taken now. The endpoint is progressed elsewhere.
  void progress();
  // From now on, connections end although transfers still hold them.
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
