// MailConnector: makes connections by messages through the bootstrap (runtime/bootstrap/mail.h).
//
// It needs an active port, but no IP address and no connection manager. The end that connects sends
// a request with the address of its queue pair. The other end answers with the address of its own
// queue pair, or refuses. Either end tells the other when it disconnects.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/bootstrap/mail.h"
#include "transports/verbs/connect/session.h"
#include "transports/verbs/device/local_port.h"

namespace dunlin::transport::verbs {

class MailSession;

class MailConnector final : public Connector {
 public:
  // `token` is that of this process's address; messages with another token are not for this
  // connector. `ports` are by index.
  MailConnector(Mail& mail, Rank self, std::uint64_t token, const Delivery& delivery,
                std::vector<LocalPort> ports, OnRequest on_request);
  // Tells all peers that this connector has exchanged messages with that it is gone.
  ~MailConnector() override;

  Result<std::unique_ptr<Session>> open(Rank peer, const Address& address,
                                        std::size_t port) override;
  // The port with this index has new addresses, which sessions from now on use.
  void update(std::size_t index, const LocalPort& port) { ports_[index] = port; }
  void take_events() override;
  int fd() const override { return mail_.fd(MailTopic::kVerbs); }
  bool has_news() const { return !mail_.is_empty(MailTopic::kVerbs) || !routed_.empty(); }

 private:
  friend class MailSession;
  // A connection is identified by the rank that asked for it and that rank's number for it. Each
  // end has a session with this name.
  struct Name {
    Rank initiator;
    std::uint64_t number;
    bool is_initiators;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& name) const {
      return (name.number * 2 + (name.is_initiators ? 1 : 0)) * 0x9e3779b97f4a7c15u ^
             name.initiator.index();
    }
  };

  void send(Rank to, std::uint64_t token, const ConnectionMessage& message);
  void receive(Rank from, const ConnectionMessage& message);
  void on_gone(Rank from, std::uint64_t token);
  MailSession* find(const Name& name) const;

  Mail& mail_;
  const Rank self_;
  const std::uint64_t token_;
  const Delivery delivery_;
  std::vector<LocalPort> ports_;  // sessions refer to them
  OnRequest on_request_;
  std::unordered_map<Name, MailSession*, Hash> sessions_;
  std::vector<Name> routed_;                       // sessions that await their kRouteFound
  std::unordered_map<std::uint64_t, Rank> known_;  // ranks to tell at the end, by token
  std::unordered_set<std::uint64_t> gone_;         // tokens of connectors that are gone
  std::uint64_t next_number_ = 1;
};

}  // namespace dunlin::transport::verbs
