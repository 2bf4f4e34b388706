// Contacts: the ranks that this one has met in partial all-reduces, and what each of the two says
// to the other of operations (wire.h).
//
// A cell isn't written again before what it says can matter no more. A hello is followed by another
// one when the operation has ended well, so that everybody has read it; or after a farewell that
// the peer has acknowledged. A farewell waits for the receipt of the one before. Owner thread only.
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

#include "collectives/partial/meeting.h"
#include "collectives/partial/memory.h"
#include "collectives/partial/wire.h"
#include "collectives/schedule/executor.h"
#include "transports/fabric.h"

namespace dunlin::collective::partial {

struct Contact {
  Rank rank;
  transport::Link* link = nullptr;  // null: not met yet
  transport::NotifyId ours{};       // the first of the cells that it writes
  transport::NotifyId theirs{};     // the first of the cells that we write
  bool is_mapped = false;           // its memory, here
  std::array<ExecutorPeer, kTurns> ends;
  std::map<std::uint32_t, std::unique_ptr<transport::RemoteRegion>> windows;  // imported
  // Numbers of operations: of the last farewell said; of the last one heard; whether its receipt is
  // still to be sent.
  std::uint64_t said = 0;
  std::uint64_t heard = 0;
  bool owes_receipt = false;
  std::deque<std::pair<std::uint64_t, Farewell>> owed;  // farewells to be said
  std::map<std::uint64_t, Farewell> farewells;  // heard, of operations that we have not ended
  Meeting meeting;
};

// What members have to agree on, set when the object is made.
struct Terms {
  std::uint64_t scratch_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::string algorithm;
  bool operator==(const Terms&) const = default;
};

class Contacts {
 public:
  Contacts(transport::Fabric& fabric, Memory& memory, std::string name, Terms terms);
  ~Contacts();
  Contacts(const Contacts&) = delete;
  Contacts& operator=(const Contacts&) = delete;

  // Publishes what peers need to know.
  Status publish();
  // kBusy until the peer has published, too; asks the bootstrap at growing intervals.
  Status meet(Contact& contact);
  Contact& of(Rank rank) { return *contacts_[rank.index()]; }
  std::size_t met() const { return met_.size(); }

  // kBusy: not yet.
  Status greet(Contact& contact, std::uint64_t number, std::uint64_t tag, std::uint32_t size,
               const Hello& hello);
  // The sequence of what the peer said last, 0 at first: compare before reading the cell.
  const transport::NotifyCell& hello_of(const Contact& contact) const;
  // Queues a farewell.
  void bid(Contact& contact, std::uint64_t number, Farewell farewell);
  std::optional<Farewell> farewell_of(const Contact& contact, std::uint64_t number) const;
  // Nobody will ask for farewells of operations up to `number`.
  void forget(std::uint64_t number) { forgotten_ = number; }
  // The peer's window, imported on first use.
  Result<const transport::RemoteRegion*> window(Contact& contact, std::uint32_t id);

  // Listens for farewells, says and acknowledges what is owed.
  void progress();

 private:
  void listen(Contact& contact);
  void speak(Contact& contact);
  bool is_acknowledged(const Contact& contact) const;
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
  std::vector<Contact*> unmet_;  // that are owed a farewell
  std::uint64_t forgotten_ = 0;
};

}  // namespace dunlin::collective::partial
