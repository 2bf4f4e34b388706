// Contacts: the ranks that this rank has met in partial all-reduces, and the hellos, aborts and
// acknowledgments that they exchange (wire.h).
//
// A cell is not written again before its contents can no longer matter. A hello is followed by
// another one only after its operation has succeeded, so that every member has read it, or after an
// abort that the peer has acknowledged. An abort waits for the acknowledgment of the one before.
// Owner thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/partial/memory.h"
#include "collectives/partial/offers.h"
#include "collectives/partial/wire.h"
#include "collectives/schedule/executor.h"
#include "collectives/waiting/meeting.h"
#include "transports/fabric.h"

namespace dunlin::collective::partial {

struct Contact {
  Rank rank;
  transport::Link* link = nullptr;  // null: not met yet
  transport::NotifyId ours{};       // the first of this rank's cells that the peer writes
  transport::NotifyId theirs{};     // the first of the peer's cells that this rank writes
  bool is_mapped = false;           // the peer's memory is mapped here
  std::array<ExecutorPeer, kTurns> ends;
  std::map<std::uint32_t, std::unique_ptr<transport::RemoteRegion>> windows;  // imported
  // Numbers of operations: of the last abort sent, and of the last one received.
  std::uint64_t last_abort_sent = 0;
  std::uint64_t last_abort_received = 0;
  bool owes_ack = false;                                            // for the last notice received
  std::deque<std::pair<std::uint64_t, AbortNotice>> queued_aborts;  // to be sent
  std::map<std::uint64_t, AbortNotice> aborts;  // received, for operations that have not ended here
  Meeting meeting;
};

class Contacts {
 public:
  Contacts(transport::Fabric& fabric, Memory& memory, std::string name, Terms terms);
  ~Contacts();
  Contacts(const Contacts&) = delete;
  Contacts& operator=(const Contacts&) = delete;

  // Publishes this rank's cells and options.
  Status publish();
  // Connects to the peer. kBusy until it has published, too; asks the bootstrap at growing
  // intervals.
  Status meet(Contact& contact);
  Contact& of(Rank rank) { return *contacts_[rank.index()]; }
  std::size_t met() const { return met_.size(); }

  // Whether the peer has acknowledged all aborts, which comes before the next hello to it.
  bool may_greet(const Contact& contact) const {
    return contact.queued_aborts.empty() && is_abort_acknowledged(contact);
  }
  // Sends the hello of an operation. kBusy: try again later.
  Status greet(Contact& contact, std::uint64_t number, std::uint64_t tag, std::uint32_t size,
               const Hello& hello);
  // The cell of the peer's last hello, whose sequence is the operation's number (0: none came yet).
  // Check that before reading the cell.
  const transport::NotifyCell& hello_of(const Contact& contact) const;
  // Queues an abort, which progress() sends.
  void queue_abort(Contact& contact, std::uint64_t number, AbortNotice notice);
  std::optional<AbortNotice> abort_of(const Contact& contact, std::uint64_t number) const;
  // This rank may access the memory of members of the operation, until forget(number).
  void begin(std::uint64_t number) { running_ = number; }
  // The operation has ended. Aborts of operations up to `number` are no longer needed.
  void forget(std::uint64_t number) {
    forgotten_ = number;
    running_ = 0;
  }
  // Whether the peer, which was sent an abort of the operation, does not access this rank's memory
  // for it any more.
  bool has_ended(const Contact& contact, std::uint64_t number) const;
  // The peer's window, imported on first use.
  Result<const transport::RemoteRegion*> window(Contact& contact, std::uint32_t id);

  // Receives aborts, and sends queued aborts and acknowledgments.
  void progress();

 private:
  void receive_aborts(Contact& contact);
  void send_queued(Contact& contact);
  bool is_abort_acknowledged(const Contact& contact) const;
  std::string key(Rank rank) const;
  Status connect(Contact& contact, const Bytes& offer);

  transport::Fabric& fabric_;
  Memory& memory_;
  std::string name_;
  Terms terms_;
  transport::NotifyId cells_{};
  bool has_cells_ = false;
  std::vector<std::unique_ptr<Contact>> contacts_;  // by rank
  std::vector<Contact*> met_;
  std::vector<Contact*> unmet_;  // peers with queued aborts that were not met yet
  std::uint64_t forgotten_ = 0;
  std::uint64_t running_ = 0;
};

}  // namespace dunlin::collective::partial
