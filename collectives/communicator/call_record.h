// CallRecord: tells the trace and the flight recorder when a part of a call begins and ends, as far
// as there is one. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/communicator/plan.h"
#include "runtime/flight/recorder.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class CallRecord {
 public:
  // `name` is a literal.
  void begin(transport::Fabric& fabric, const char* name, std::size_t bytes) {
    name_ = name;
    bytes_ = bytes;
    begin_again(fabric);
  }
  // A part with the same name and as many bytes.
  void begin_again(transport::Fabric& fabric) {
    if (const Trace* const trace = fabric.trace()) began_ = trace->clock().now();
    if (flight::Recorder* const flight = fabric.flight()) flight->begin(name_, bytes_);
  }
  void end(transport::Fabric& fabric, const std::vector<DirectBytes>& direct) const {
    if (Trace* const trace = fabric.trace())
      trace->span(name_, began_, trace->clock().now(), static_cast<std::int64_t>(bytes_));
    flight::Recorder* const flight = fabric.flight();
    if (flight == nullptr) return;
    for (const DirectBytes& each : direct) {
      PeerCounters& counters = fabric.counters().peer(each.peer);
      counters.put_bytes += each.put;
      counters.get_bytes += each.got;
    }
    if (flight->end(name_, bytes_)) fabric.record_bytes(fabric.clock().now());
  }
  // It will not end any more: the recorder no longer shows it as in progress.
  void give_up(transport::Fabric& fabric) const {
    if (flight::Recorder* const flight = fabric.flight()) flight->give_up();
  }

 private:
  const char* name_ = "";
  std::uint64_t bytes_ = 0;
  TimePoint began_{};  // only set if there is a trace
};

}  // namespace dunlin::collective
