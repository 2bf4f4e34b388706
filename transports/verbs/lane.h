// The lane of the verbs transport: checks what is asked for and turns it into operations of an
// Outbound.
#pragma once

#include "transports/lane.h"
#include "transports/verbs/engine.h"

namespace dunlin::transport::verbs {

class VerbsLane final : public Lane {
 public:
  VerbsLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind);
  ~VerbsLane() override { close(); }

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  std::size_t progress() override;
  void close() noexcept override;

 private:
  Status check_open() const;
  Status check_target(const LocalSlice& from, const RemoteSlice& to) const;
  Operation* claim(const char* name, Completion* completion);
  void attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void attach_notification(Operation& operation, const Notification& notification);

  Engine& engine_;
  const Link& link_;
  Outbound& out_;
  PeerCounters& counters_;
  bool is_closed_ = false;
};

}  // namespace dunlin::transport::verbs
