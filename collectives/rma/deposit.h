// DepositSender and DepositReceiver: the two ends of a window's edge. Deposits travel along it:
// tensors that replace a buffer of the receiver, or are added to it. No rank waits for another.
//
// If the sender has mapped the receiver's memory, deposits go straight there (mapped_edge.h): they
// are done when the call returns. A notification follows each one, for a receiver that sleeps.
//
// Otherwise the edge is a NOTIFY-ACK channel whose slots hold a header and a whole tensor. The
// channel has no credit while the receiver computes and takes nothing over. Meanwhile the sender
// merges deposits into one pending message: a put replaces what was pending, and an accumulate adds
// to it. So any number of deposits takes the memory of `depth` + 1 messages at the sender, and the
// receiver's buffer gets the value that it would have if each deposit had arrived by itself.
//
// Both use the same slots. The sender chooses; the receiver looks for deposits of both kinds.
//
// On a GPU, mapped deposits go from GPU memory to GPU memory. Messages travel through host memory:
// the sender gets its tensor from there, and the receiver copies it to the GPU.
//
// Nothing waits for a peer or allocates. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "collectives/rma/mapped_edge.h"
#include "transports/channel/queue.h"

namespace dunlin::collective {

// The memory of one message, from its first deposit until it is acknowledged. The lane may access
// it for longer than the sender lives.
struct DepositStaging {
  transport::LocalSlice slice;
  transport::Completion completion;
  bool is_posted = false;
  std::uint64_t first_operation = 0;  // of the operations that were merged
  std::uint64_t last_operation = 0;

  // Whether the lane is done with it.
  bool is_free() const { return !is_posted || completion.is_done(); }
};

// A range of the numbers of window operations. Both ends are included.
struct OperationRange {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last = 0;
  bool contains(std::uint64_t number) const { return first <= number && number <= last; }
};

template <typename T>  // float, double
class DepositSender {
 public:
  // What a deposit does.
  struct Deposit {
    DepositKind kind = DepositKind::kPut;
    std::uint64_t operation = 0;  // not below that of the last one
    std::span<const T> self;
    std::span<const T> host_self;  // the same in host memory, for edges that are not mapped
    double p = 0;
  };

  // `exchange` is connected, and has at least EdgeMemory::kBuffers slots per edge, of
  // EdgeMemory::buffer_bytes(tensor_bytes). `mapped`: the receiver's memory, if it is mapped here.
  // Otherwise `ring` has depth + 1 elements, whose slices have deposit_bytes(tensor_bytes). The
  // passes outlive this object.
  DepositSender(transport::SlotExchange& exchange, transport::OutSlots& edge,
                std::span<DepositStaging> ring, const std::optional<EdgeMemory>& mapped,
                TensorPasses<T>& passes);

  // The receiver's slots, if they are mapped here.
  static std::optional<EdgeMemory> map(const transport::OutSlots& edge, std::size_t tensor_bytes);

  Rank peer() const { return queue_.peer(); }
  // Whether deposits along this edge go straight to the receiver's memory.
  bool is_mapped() const { return mapped_.has_value(); }
  // Deposits weight * self and weight * p, and sends what can be sent. begin() starts the passes.
  // Once they have finished, complete() does the rest, with the same arguments. If a deposit was
  // begun and not completed yet, since the peer is named twice, begin() does nothing, and
  // complete() makes the passes itself. complete() returns the errors of passes; the peer's are
  // those of loss(). Call neither once loss() is an error.
  void begin(const Deposit& what, double weight);
  Status complete(const Deposit& what, double weight);
  // Sends the pending message; kBusy while there is no credit for it. After an error the
  // outstanding deposits are lost, and every later call returns the same error.
  Status progress();
  // Ends the sender: its outstanding deposits are lost for this reason.
  void lose(Status why);

  // Whether the receiver has yet to take over something that was deposited.
  bool is_outstanding() const {
    return !loss_.is_error() && (has_pending_ || acknowledged() < queue_.sent());
  }
  // The operations whose deposits are outstanding; nullopt: there are none.
  std::optional<OperationRange> outstanding() const;
  // Why deposits were lost, or would be; ok: the sender works.
  const Status& loss() const { return loss_; }
  const OperationRange& lost() const { return lost_; }

 private:
  void stage(const Deposit& what, double weight);
  // Tells the receiver of what was deposited in its mapped memory. kBusy: do it again later.
  Status ring_doorbell();
  std::uint64_t acknowledged() const { return queue_.acknowledged(); }
  DepositStaging& pending() { return ring_[queue_.sent() % ring_.size()]; }
  // The staging memory of a message; messages are counted from 0.
  const DepositStaging& of(std::uint64_t message) const { return ring_[message % ring_.size()]; }
  Status check_completions() const;

  std::optional<MappedWriter<T>> mapped_;
  TensorPasses<T>* passes_;
  transport::Notifier doorbell_;
  transport::NotifyId doorbell_cell_{};  // at the receiver
  std::uint64_t rings_ = 0;
  bool is_ring_due_ = false;
  PeerCounters& counters_;
  transport::SendQueue queue_;
  std::span<DepositStaging> ring_;
  bool has_pending_ = false;
  bool has_begun_ = false;  // a deposit in mapped memory
  Status loss_;
  OperationRange lost_;
};

template <typename T>
class DepositReceiver {
 public:
  // What the edge's buffer has.
  struct View {
    const T* tensor = nullptr;  // null: zeros
    double p = 0;
    std::uint64_t version = 0;  // deposits since clear_version()
  };

  // `exchange` is as that of the sender. `memory`: the slots, or their headers and memory of the
  // GPU. `own` and the passes outlive this object. `own` has what the buffer holds before the first
  // deposit, unless that `is_zero`.
  DepositReceiver(transport::SlotExchange& exchange, transport::InSlots& edge,
                  const EdgeMemory& memory, std::span<T> own, bool is_zero,
                  TensorPasses<T>& passes);

  Rank peer() const { return queue_.peer(); }
  // Takes over the messages that have arrived, and releases their slots. kCorrupted if a message is
  // no deposit, and the errors of passes; every later call returns the same error.
  Status progress();

  // The following start passes; the caller finishes them before the next call of this object.
  //
  // The buffer with everything that was deposited in mapped memory or taken over by progress(). The
  // tensor does not change before the next call of this object.
  View look() { return view(false); }
  // The same, and the buffer is zero afterwards.
  View take() { return view(true); }
  // As look(), but zeros have an address.
  View read();
  void clear_version() {
    version_ = 0;
    cleared_ = held_;
  }
  // Has the effect of a put of weight * tensor and weight * p by the peer.
  void replace(std::span<const T> tensor, double p, double weight);

 private:
  View view(bool takes);
  Status take(const transport::Message& message);
  // Changes own_ by a deposit, whose tensor the passes can read.
  void apply(const DepositHeader& header, const T* tensor);
  // All deposits in mapped memory are out of it: what view() returned counts as a part of version_.
  void settle(std::uint64_t deposits);

  transport::ReceiveQueue queue_;
  MappedReader<T> mapped_;
  TensorPasses<T>* passes_;
  std::uint32_t depth_;
  // The buffer is own_, plus or replaced by what is in mapped memory.
  std::span<T> own_;
  bool is_zero_;               // own_ counts as zeros, whatever its memory holds
  double p_ = 0;               // of own_
  std::uint64_t version_ = 0;  // deposits in own_ since clear_version()
  std::uint64_t held_ = 0;     // deposits in mapped memory, by the last view()
  std::uint64_t cleared_ = 0;  // how many of them were there at the last clear_version()
  Status error_;
};

extern template class DepositSender<float>;
extern template class DepositSender<double>;
extern template class DepositReceiver<float>;
extern template class DepositReceiver<double>;

}  // namespace dunlin::collective
