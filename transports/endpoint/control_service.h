// ControlService: the service thread of an endpoint. It accepts connections, authenticates peers,
// and passes on the messages by which the two sides of each connection agree on something
// (PairBootstrap). It never touches registered memory.
//
// Locks: `mutex_` guards what the service thread shares with callers. The service thread holds it
// while it calls a client, so that detach() returns only when the client is not in use.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/job_ledger.h"
#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/paced_log.h"
#include "runtime/bootstrap/process_id.h"
#include "runtime/config.h"
#include "transports/endpoint/blob.h"

namespace dunlin::transport::endpoint {

// An authenticated connection between two endpoints. The service has it until it has been closed;
// its owner keeps it for as long as it likes.
class ControlLine {
 public:
  // Called by the service thread.
  class Client {
   public:
    virtual void take(bootstrap::Message message) = 0;
    // The peer's process or the connection has ended, without the peer having left.
    virtual void lose(const Status& why) = 0;

   protected:
    ~Client() = default;
  };

  // `process`: of the peer.
  ControlLine(Rank rank, std::string job_id, const JobKey& key, bootstrap::FrameSocket socket,
              const bootstrap::ProcessId& process);

  Rank rank() const { return rank_; }
  const std::string& job_id() const { return job_id_; }
  const JobKey& key() const { return key_; }
  // Whether the peer runs under this kernel, but in another PID namespace.
  bool spans_pid_namespaces() const { return spans_pid_namespaces_; }

 private:
  friend class ControlService;

  const Rank rank_;
  const std::string job_id_;
  const JobKey key_;
  const bool spans_pid_namespaces_;

  std::mutex outbox_mutex_;
  std::vector<bootstrap::Message> outbox_;  // under outbox_mutex_

  // Under the mutex of the service:
  Client* client_ = nullptr;
  std::vector<bootstrap::Message> undelivered_;  // arrived before the client
  std::optional<Status> lost_;                   // why nothing arrives any more
  bool is_detached_ = false;                     // its owner wants nothing any more

  // Used by the service thread only:
  bootstrap::FrameSocket socket_;
  bootstrap::ProcessId peer_;
  bootstrap::ProcessWatch watch_;                 // of the peer's process
  std::unique_ptr<bootstrap::JobLedger> ledger_;  // at the side that listens
  TimePoint close_at_ = TimePoint::max();         // when it has been detached
};

class ControlService;

// An attempt to connect, on a thread of its own, because the resolution of names and hosts that do
// not answer block.
class Dial {
 public:
  // `service` must outlive the object.
  static Result<std::unique_ptr<Dial>> start(const Blob& blob, ControlService& service);
  // Cancels the attempt, and waits for the thread.
  ~Dial();
  // Ends a handshake. The thread ends soon, unless it is just connecting to an address, which takes
  // up to kDialTime.
  void cancel();
  // Whether the thread has ended, so that the destructor does not wait.
  bool is_over() const { return is_done_.load(std::memory_order_acquire); }
  // kBusy until there is a result; then the line, once, or why there is none. Owner thread.
  Result<std::shared_ptr<ControlLine>> result();

 private:
  Dial(const Blob& blob, ControlService& service);
  void run();

  Result<std::shared_ptr<ControlLine>> dial();
  // Tries one address.
  Result<std::shared_ptr<ControlLine>> dial(const bootstrap::Endpoint& place,
                                            const bootstrap::JoinRequest& request);

  const Blob blob_;
  ControlService& service_;
  std::mutex mutex_;
  bool is_canceled_ = false;  // under mutex_
  Fd in_handshake_;           // under mutex_: another descriptor of the socket, to end it by
  std::atomic<bool> is_done_{false};
  Result<std::shared_ptr<ControlLine>> result_;
  std::thread thread_;
};

class ControlService {
 public:
  // Listens at `host`, on a free port; an empty host means all interfaces.
  static Result<std::unique_ptr<ControlService>> create(const Key& key, const std::string& host);
  ~ControlService();

  std::uint16_t port() const { return port_; }
  // Readable when accept() may return something, or when a line has changed. clear_event() resets
  // it.
  int event_fd() const { return event_.get(); }
  void clear_event();
  void raise_event();

  // An authenticated connection that a peer has made; null if there is none.
  std::shared_ptr<ControlLine> accept();
  // Serves a line that this side has dialed.
  void add(std::shared_ptr<ControlLine> line);
  // From now on, the client gets what arrives on the line, first what has arrived before.
  void attach(ControlLine& line, ControlLine::Client& client);
  // Calls the client no more, and closes the line when everything has been sent.
  void detach(ControlLine& line);
  // Sends a message of the line's client. Any thread, also from within the client's functions.
  void send(ControlLine& line, const bootstrap::Message& message);

 private:
  struct Guest;  // a connection in the handshake

  ControlService(const Key& key, Fd listener, std::uint16_t port, Fd wake, Fd event);
  void run();
  void wait_for_events();
  void take_dialed();
  void accept_guests();
  // False when the guest is to be dropped: it is refused, or has become a line.
  bool serve(Guest& guest);
  // Takes a message of the handshake. Returns whether the guest has become a line.
  Result<bool> take(Guest& guest, const bootstrap::Message& message);
  // False when the line has been closed.
  bool serve(ControlLine& line);
  void receive(ControlLine& line);
  void send_outbox(ControlLine& line);
  void send_to_peer(ControlLine& line, const bootstrap::Message& message);
  void give(ControlLine& line, bootstrap::Message message);
  void end(ControlLine& line, Status why);
  bool is_detached(ControlLine& line);
  void finish();
  void wake();

  const std::string secret_;
  const std::string process_;
  const std::uint16_t port_;
  SteadyClock clock_;
  Fd listener_;
  Fd wake_;   // an eventfd that ends the service thread's sleep
  Fd event_;  // an eventfd for the owner

  // Used by the service thread only:
  std::vector<std::unique_ptr<Guest>> guests_;  // in the order of arrival
  std::vector<std::shared_ptr<ControlLine>> lines_;
  TimePoint accept_again_{};
  bootstrap::PacedLog refusals_;

  std::mutex mutex_;  // guards all members below, and parts of lines
  std::vector<std::shared_ptr<ControlLine>> arrived_;
  std::vector<std::shared_ptr<ControlLine>> dialed_;
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace dunlin::transport::endpoint
