// Fabric: one process's view of its peers. It owns the transports that work here and the links to
// the peers spoken to so far, picks the transport per peer (the selector), registers memory with
// all of them at once, and is what a process progresses and waits on.
//
// A process may hold several fabrics (threads as ranks in tests). Owner thread only; the owner may
// change where a lock orders the old one's calls before the new one's. Regions and everything built
// on the links have to go before the fabric goes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/config.h"
#include "runtime/counters.h"
#include "runtime/trace.h"
#include "runtime/wait.h"
#include "transports/transport.h"

namespace dunlin::transport {

// The transports of this build, in no order; Config::transports says which are used and in which.
std::vector<TransportFactory> builtin_transports();

// A peer that somebody waits for, and for what ("the barrier", "model 17").
struct Awaited {
  Rank peer;
  std::string what;
};

// What lanes still work on though its owner is gone: completions and the memory that they stand
// for.
class Retired {
 public:
  virtual ~Retired() = default;
  virtual bool is_done() const = 0;
};

class Fabric final : public Progressor {
 public:
  // Notification cells per process: 1 MiB of them, enough for a depth of 8 with 2,000
  // in-neighbours.
  static constexpr std::size_t kCells = 16384;

  // Publishes this process's addresses. Everything handed in outlives the fabric. Fails when none
  // of config.transports works here; one that doesn't is left out with an explanation in explain().
  static Result<std::unique_ptr<Fabric>> create(Bootstrap& bootstrap, const Config& config,
                                                const Clock& clock, Trace* trace = nullptr) {
    return create(bootstrap, config, clock, trace, builtin_transports());
  }
  static Result<std::unique_ptr<Fabric>> create(Bootstrap& bootstrap, const Config& config,
                                                const Clock& clock, Trace* trace,
                                                const std::vector<TransportFactory>& factories);
  ~Fabric() override;

  Rank rank() const { return bootstrap_.rank(); }
  int size() const { return bootstrap_.size(); }
  Bootstrap& bootstrap() { return bootstrap_; }
  PeerTable& peers() { return bootstrap_.peers(); }
  NotifyBoard& board() { return *board_; }
  Counters& counters() { return counters_; }
  const Config& config() const { return config_; }
  const Clock& clock() const { return clock_; }
  Trace* trace() { return trace_; }  // null: not traced

  // The link to a peer, connected on first use over the first transport of the list that reaches
  // it. Blocks for the peer's address (config.deadline). kUnavailable says for each transport why
  // not.
  Result<Link*> link(Rank peer);
  // Closes the link to a peer that is gone; regions imported through it have to be gone or retired.
  void drop_link(Rank peer);
  // Keeps `object` until it is done (its operations have completed), at the latest to the fabric's
  // end.
  void retire(std::unique_ptr<Retired> object) { retired_.push_back(std::move(object)); }
  // Which transport the peer got and why those before it did not do; connects if need be.
  std::string explain(Rank peer);
  // The name of the peer's transport; empty before its link is made.
  std::string_view transport_of(Rank peer) const;

  // Makes memory usable as source and, where its kind allows, as target.
  Result<std::unique_ptr<LocalRegion>> register_memory(std::shared_ptr<MemoryRegion> memory);
  // Allocated as the configuration says, and registered.
  Result<std::unique_ptr<LocalRegion>> allocate(std::size_t size);
  // `descriptor`: LocalRegion::descriptor() of the peer.
  Result<std::unique_ptr<RemoteRegion>> import_region(Rank peer,
                                                      std::span<const std::byte> descriptor);

  std::size_t progress() override;
  bool arm() override;
  void disarm() override;
  const std::vector<int>& wait_fds() const override { return wait_fds_; }

  // Makes whoever sleeps in a wait look at its condition once more. Any thread.
  void wake();

  // Blocks until `ready()` isn't busy, and returns what it returned. `describe()` lists the peers
  // that are still waited for (a vector of Awaited): if one of them dies, kPeerDead names it at
  // once; after `timeout`, kDeadlineExceeded says who was waited for, for what, for how long, and
  // whether it is stopped.
  template <typename Ready, typename Describe>
  Status wait(Ready&& ready, Describe&& describe, Duration timeout) {
    const TimePoint began = clock_.now();
    std::uint64_t seen = ~std::uint64_t{0};
    bool is_anybody_gone = false;  // then whoever is waited for next may be
    Status status = waiter_.until(
        [&]() -> Status {
          if (Status outcome = ready(); !outcome.is_busy()) return outcome;
          if (const std::uint64_t version = peers().version(); version != seen) {
            seen = version;
            is_anybody_gone = peers().is_anybody_gone();
          }
          if (!is_anybody_gone) return Status::busy();
          return report_loss(describe(), began);
        },
        began + timeout);
    if (status.code() != Code::kDeadlineExceeded || !status.message().empty()) return status;
    return report_deadline(describe(), began);
  }

 private:
  static constexpr std::uint32_t kTurnsPerIdleLook = 16;

  struct Connection {
    std::unique_ptr<Link> link;
    std::size_t transport = 0;
    std::string explanation;
  };

  Fabric(Bootstrap& bootstrap, const Config& config, const Clock& clock, Trace* trace);
  Status start(const std::vector<TransportFactory>& factories);
  Status publish_addresses();
  Result<Connection> connect(Rank peer);
  void sweep_retired();
  // Busy while all awaited peers are present.
  Status report_loss(const std::vector<Awaited>& awaited, TimePoint began) const;
  Status report_deadline(const std::vector<Awaited>& awaited, TimePoint began) const;

  Bootstrap& bootstrap_;
  const Config& config_;
  const Clock& clock_;
  Trace* trace_;
  Counters counters_;
  std::unique_ptr<NotifyBoard> board_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::string left_out_;  // transports that don't work here, and why
  std::map<Rank, Connection> connections_;
  std::vector<std::unique_ptr<Link>>
      dropped_;  // closed; kept as long as something retired may refer to them
  std::vector<std::unique_ptr<Retired>> retired_;
  std::uint32_t turns_ = 0;  // of progress()
  std::vector<int> wait_fds_;
  int news_fd_ = -1;  // eventfd: the state of a peer has changed
  int listener_ = -1;
  int chore_ = 0;  // 0: none
  Waiter waiter_;
};

}  // namespace dunlin::transport
