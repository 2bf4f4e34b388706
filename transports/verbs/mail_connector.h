// MailConnector: connections by queue pair numbers, exchanged in the bootstrap's letters
// (runtime/bootstrap/mail.h). Needs an active port and nothing else: no IP address, no connection
// manager. Who connects sends a request, with where its queue pair is; the other end answers with
// where its own is, or refuses; either end tells when it lets go.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/bootstrap/mail.h"
#include "transports/verbs/session.h"

namespace dunlin::transport::verbs {

class MailSession;

// A port that queue pairs of this process use.
struct LocalPort {
  std::uint8_t number = 1;
  std::uint8_t gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  bool is_infiniband = false;
};

class MailConnector final : public Connector {
 public:
  // `token`: of this process's address; letters without it are not for this connector.
  // `ports`: by index.
  MailConnector(Mail& mail, Rank self, std::uint64_t token, const Delivery& delivery,
                std::vector<LocalPort> ports, OnRequest on_request);
  // Tells all who have connected, or were connected to, that nobody is here any more.
  ~MailConnector() override;

  Result<std::unique_ptr<Session>> open(Rank peer, const Address& address,
                                        std::size_t port) override;
  void take_events() override;
  int fd() const override { return mail_.fd(); }
  bool has_news() const { return !mail_.is_empty() || !routed_.empty(); }

 private:
  friend class MailSession;
  // A connection is known by who asked for it and by that rank's number for it; each end has a
  // session of that name.
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

  void send(Rank to, std::uint64_t token, const ConnectionLetter& letter);
  void receive(Rank from, const ConnectionLetter& letter);
  void on_farewell(Rank from, std::uint64_t token);
  MailSession* find(const Name& name) const;

  Mail& mail_;
  const Rank self_;
  const std::uint64_t token_;
  const Delivery delivery_;
  const std::vector<LocalPort> ports_;
  OnRequest on_request_;
  std::unordered_map<Name, MailSession*, Hash> sessions_;
  std::vector<Name> routed_;                       // whose owner is still to hear of it
  std::unordered_map<std::uint64_t, Rank> known_;  // who may wait for us, by token
  std::unordered_set<std::uint64_t> gone_;         // tokens of connectors that have ended
  std::uint64_t next_number_ = 1;
};

}  // namespace dunlin::transport::verbs
