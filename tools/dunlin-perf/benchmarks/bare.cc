#include "tools/dunlin-perf/benchmarks/bare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "transports/notification.h"

namespace dunlin::perf {
namespace {

std::string key(Rank leader) {
  return fmt::format("perf/bare/{}", leader.value());
}

}  // namespace

struct BarePingPong::Page {
  std::uint64_t token;  // proves that the mapped page belongs to the leader
  alignas(transport::kCacheLine) std::atomic<std::uint64_t> ping;
  // The two words are two cache lines apart, because the adjacent-line prefetcher moves lines in
  // pairs.
  alignas(2 * transport::kCacheLine) std::atomic<std::uint64_t> pong;
};

Result<std::unique_ptr<BarePingPong>> BarePingPong::create(Job& job, Rank peer, bool leads) {
  std::unique_ptr<BarePingPong> made(new BarePingPong(job, peer));
  DUNLIN_TRY(leads ? made->offer() : made->accept());
  made->use(leads);
  return made;
}

Status BarePingPong::offer() {
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate(sizeof(Page)));
  Page& page = *reinterpret_cast<Page*>(memory_->data());
  page.token = static_cast<std::uint64_t>(job_.fabric().clock().now().time_since_epoch().count());
  ByteWriter writer;
  writer.number(std::int32_t{getpid()}).number(std::int32_t{memory_->fd()}).number(page.token);
  Bootstrap& bootstrap = job_.fabric().bootstrap();
  DUNLIN_TRY(bootstrap.publish(key(job_.rank()), writer.take()));
  // The peer answers whether it could map the page.
  DUNLIN_ASSIGN(const Bytes answer,
                bootstrap.lookup_from(peer_, key(peer_), job_.config().deadline));
  if (answer.size() == 1) return Status::ok();
  return Status(Code::kUnavailable, "the two ranks share no memory").with_peer(peer_);
}

Status BarePingPong::accept() {
  Bootstrap& bootstrap = job_.fabric().bootstrap();
  DUNLIN_ASSIGN(const Bytes offered,
                bootstrap.lookup_from(peer_, key(peer_), job_.config().deadline));
  ByteReader reader(offered);
  const auto pid = reader.number<std::int32_t>();
  const auto fd = reader.number<std::int32_t>();
  const auto token = reader.number<std::uint64_t>();
  const int opened = open(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), O_RDWR | O_CLOEXEC);
  bool is_shared = false;
  if (opened >= 0) {
    if (auto mapped = MemoryRegion::map(Fd(opened), sizeof(Page))) {
      memory_ = std::move(mapped).value();
      is_shared = reinterpret_cast<Page*>(memory_->data())->token == token;
    }
  }
  const Bytes answer(is_shared ? 1 : 2);
  DUNLIN_TRY(bootstrap.publish(key(job_.rank()), answer));
  if (is_shared) return Status::ok();
  return Status(Code::kUnavailable, "the two ranks share no memory").with_peer(peer_);
}

void BarePingPong::use(bool leads) {
  Page& page = *reinterpret_cast<Page*>(memory_->data());
  own_ = leads ? &page.ping : &page.pong;
  theirs_ = leads ? &page.pong : &page.ping;
}

}  // namespace dunlin::perf
