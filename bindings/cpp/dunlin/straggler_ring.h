// StragglerRing: an all-reduce around a ring of ranks that does not wait for a late rank (Zhang et
// al., "Communication Optimization Technology of Distributed Machine Learning Network", 2024).
//
//   dunlin::StragglerOptions options{.count = n, .is_average = true};
//   DUNLIN_ASSIGN(auto ring, dunlin::StragglerRing<float>::create(job, options));
//   for (...) {
//     ... write the gradient to ring.data() ...
//     DUNLIN_TRY(ring.all_reduce(timeout).status());
//   }
//
// In the reduce-scatter, a rank whose predecessor is late sends its own part alone, and forwards
// what arrives later. A rank that is late itself sends past its successor. Nothing is lost or
// counted twice. All ranks get the same bits. If a rank was late, another run may round
// differently, since parts are added in another order.
//
// It gains at most one step and its transfer of a reduce-scatter, where a step is late now and
// then. Where all steps of a rank are slow, it gains nothing.
//
// The vector lives in registered memory of this object and is the caller's between all-reduces.
// After an error its contents are undefined. The object can then only be destroyed: call
// Job::reform(), and create another one over the survivors.
//
// Nothing allocates after create(). Owner thread of the job only. Destroy it when all members are
// done with theirs: neighbors may still write until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <dunlin/job.h>

namespace dunlin {

// When a rank counts as late. T is the usual time of a step (receive, reduce, send), and T_trans
// that of a transfer.
struct Lateness {
  enum class Mode : std::uint8_t {
    kNever,     // none: the plain ring
    kFixed,     // T and T_trans are `step` and `transfer`
    kAdaptive,  // a rank learns T and T_trans from its own steps and the gaps between messages
  };
  Mode mode = Mode::kAdaptive;
  // Must be above 1. A rank is late when its step took longer than alpha * T. Its successor waits
  // for it for alpha * T + T_trans.
  double alpha = 2.0;
  Duration step{};
  Duration transfer{};
};

struct StragglerOptions {
  std::string name = "straggler-ring";  // distinguishes the rings of one job; same on all ranks
  // The ring, in this order, which is the same on all members; none: Job::members().
  JobMembers members{};
  std::size_t count = 0;    // elements of the vector; the same on all members
  bool is_average = false;  // divide the sum by the number of members
  Lateness lateness{};      // the same on all members
};

// What one all-reduce did, as this rank saw it.
struct StragglerReport {
  std::uint64_t step = 0;      // 1, 2, ...
  std::uint32_t timeouts = 0;  // messages for which the predecessor was late
  std::uint32_t skips = 0;     // messages that this rank sent past its successor, as it was late
  std::uint32_t skipped = 0;   // messages that the predecessor sent past this rank
  std::uint32_t forwards = 0;  // parts that arrived after this rank had sent its own
  std::uint64_t bytes_sent = 0;
  Duration scattered{};  // until the part of the vector that this rank owns was summed
  Duration took{};       // from the start to the end
};

template <typename T>  // float, double
class StragglerRing {
 public:
  // Collective over the members. Blocks until each of them has made the call. kInvalidArgument for
  // an alpha of at most 1, and for fixed times without a step.
  static Result<StragglerRing> create(Job& job, const StragglerOptions& options);

  StragglerRing(StragglerRing&&) noexcept;
  StragglerRing& operator=(StragglerRing&&) noexcept;
  ~StragglerRing();

  // Zeros at first.
  std::span<T> data();

  // Reduces the vector's present contents. Returns the errors of Job::wait(), and kPeerDead if any
  // member dies.
  Result<StragglerReport> all_reduce(Duration timeout);

 private:
  friend struct Internal;
  struct Impl;
  explicit StragglerRing(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

extern template class StragglerRing<float>;
extern template class StragglerRing<double>;

}  // namespace dunlin
