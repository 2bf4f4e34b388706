// What members of collectives publish for one another, and what they write into one another's
// cells: the memory and the options of communicators, barriers, mutexes, windows on GPUs,
// mailboxes, partial all-reduces, snapshots and parameter servers; tags of the straggler ring, and
// notices of aborts. What is accepted is what the encoder makes of it.
#include "collectives/barrier/offer.h"
#include "collectives/communicator/offers.h"
#include "collectives/elastic/snapshot_offer.h"
#include "collectives/groups/offer.h"
#include "collectives/partial/offers.h"
#include "collectives/partial/wire.h"
#include "collectives/rma/offers.h"
#include "collectives/straggler/tag.h"
#include "collectives/training/methods/parameter_wire.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective;

enum Mode : std::uint8_t {
  kWindow,
  kMembers,
  kMapped,
  kMismatch,
  kGpuWindow,
  kMutex,
  kMailbox,
  kContact,
  kSnapshot,
  kParameters,
  kRingTag,
  kAbort,
  kBarrier,
  kModes
};

constexpr std::size_t kMostMembers = 64;

template <typename Offer>
void check(std::span<const std::byte> bytes) {
  if (const auto offer = Offer::decode(bytes)) check_stable(*offer, bytes);
}

void check_members(std::span<const std::byte> bytes, std::size_t members) {
  const auto offers = MemberOffer::decode_all(bytes, members);
  if (!offers) return;
  FUZZ_CHECK(offers->size() == members);
  Bytes again;
  for (const MemberOffer& offer : *offers) {
    const Bytes encoded = offer.encode();
    again.insert(again.end(), encoded.begin(), encoded.end());
  }
  FUZZ_CHECK(equal(again, bytes));
}

void check_mapped(std::span<const std::byte> bytes, std::size_t members) {
  const auto is_mapped = decode_mapped(bytes, members);
  FUZZ_CHECK(is_mapped.is_ok() == (bytes.size() == members));
  if (is_mapped && *is_mapped)
    for (const std::byte each : bytes) FUZZ_CHECK(each != std::byte{});
}

void check_mismatch(std::span<const std::byte> bytes, std::size_t members) {
  const auto report = MismatchReport::decode(bytes, members);
  if (!report) return;
  FUZZ_CHECK(equal(report->encode(), bytes));
  for (const std::int32_t member : {report->finder, report->other})
    FUZZ_CHECK(member >= 0 && static_cast<std::size_t>(member) < members);
}

void check_mutex(std::span<const std::byte> bytes) {
  check<MutexOffer>(bytes);
  const auto offer = MutexOffer::decode(bytes);
  if (offer && offer->scope) FUZZ_CHECK(*offer->scope <= transport::AtomicScope::kSystem);
}

void check_ring_tag(std::uint64_t bits) {
  const RingTag tag = RingTag::decode(bits);
  FUZZ_CHECK(tag.encode() == bits);
  FUZZ_CHECK(tag.is_known() == (bits >> 62 != 3));
  FUZZ_CHECK(tag.step < RingTag::kSteps && tag.contributions <= RingTag::kMostRanks);
}

void check_abort(partial::AbortNotice notice) {
  const Code code = partial::code_of(notice);
  FUZZ_CHECK(code > Code::kBusy && code <= Code::kInternal);
  FUZZ_CHECK(static_cast<std::uint32_t>(code) == notice.code || code == Code::kCorrupted);
}

Seed seed(std::string name, Mode mode, const Bytes& content, std::uint8_t members = 2) {
  return headed_seed(std::move(name), {mode, members}, content);
}

}  // namespace

std::vector<Seed> seeds() {
  const Bytes region(24, std::byte{7});
  Bytes members;
  for (const std::uint32_t first : {8U, 24U}) {
    const Bytes one = MemberOffer{transport::NotifyId(first), 0x1234, 0x5678}.encode();
    members.insert(members.end(), one.begin(), one.end());
  }
  GpuWindowOffer window{4096, true, "00:04", region, region, {Rank(1), Rank(3)}};
  MutexOffer mutex{2,      Rank(0), transport::NotifyId(8),
                   false,  "shm",   transport::AtomicScope::kSystem,
                   "host", region};
  const auto cell = transport::NotifyId(8);
  const auto tag = RingTag{RingTag::Kind::kResult, 17, 3, 4}.encode();
  return {seed("window", kWindow, WindowOffer{4096, region}.encode()),
          seed("members", kMembers, members),
          seed("mapped", kMapped, {std::byte{1}, std::byte{1}}),
          seed("mismatch", kMismatch, MismatchReport{5, 0, 1, "a sum", "a broadcast"}.encode()),
          seed("gpu_window", kGpuWindow, window.encode()),
          seed("mutex", kMutex, mutex.encode()),
          seed("mailbox", kMailbox, groups::MailboxOffer{cell, region}.encode()),
          seed("contact", kContact,
               partial::ContactOffer{cell, {1 << 20, 4096, "ring", false}}.encode()),
          seed("snapshot", kSnapshot, SnapshotOffer{9, 4096, region}.encode()),
          seed("parameters", kParameters, training::ParametersOffer{cell, region}.encode()),
          seed("ring_tag", kRingTag, ByteWriter().number(tag).take()),
          seed("abort", kAbort, ByteWriter().number(3).number(8).take()),
          seed("barrier", kBarrier, BarrierOffer{4, cell}.encode())};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  Input input(data, size);
  const auto mode = input.take<std::uint8_t>() % kModes;
  const std::size_t members = input.take<std::uint8_t>() % (kMostMembers + 1);
  const Exact exact(input.rest());
  const auto bytes = exact.bytes();
  if (mode == kWindow) check<WindowOffer>(bytes);
  if (mode == kMembers) check_members(bytes, members);
  if (mode == kMapped) check_mapped(bytes, members);
  if (mode == kMismatch) check_mismatch(bytes, members);
  if (mode == kGpuWindow) check<GpuWindowOffer>(bytes);
  if (mode == kMutex) check_mutex(bytes);
  if (mode == kBarrier) check<BarrierOffer>(bytes);
  if (mode == kMailbox) check<groups::MailboxOffer>(bytes);
  if (mode == kContact) check<partial::ContactOffer>(bytes);
  if (mode == kSnapshot) check<SnapshotOffer>(bytes);
  if (mode == kParameters) check<dunlin::training::ParametersOffer>(bytes);
  if (mode == kRingTag) check_ring_tag(input.take<std::uint64_t>());
  if (mode == kAbort) check_abort({input.take<std::int32_t>(), input.take<std::uint32_t>()});
  return 0;
}
