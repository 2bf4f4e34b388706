// Messages of the NCCL plugin, between the two ends of a comm (bindings/nccl/messages.h) and
// between the ranks of a group (bindings/nccl/one_sided/messages.h). What is accepted is what the
// encoder makes of it. A comm's names a buffer at least and kMaxGroup at most.
#include "bindings/nccl/messages.h"

#include "bindings/nccl/one_sided/messages.h"

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {

using nccl::Message;

std::vector<Seed> seeds() {
  Message receive{.receive = 3, .buffers = {{.memory = 1, .offset = 64, .size = 4096, .tag = 7}}};
  const Bytes single = receive.encode();
  receive.buffers.resize(nccl::kMaxGroup, receive.buffers.front());
  return {
      {"receive", single},
      {"group", receive.encode()},
      {"forget", Message{.kind = Message::Kind::kForget, .number = 9}.encode()},
      {"arrived",
       Message{.kind = Message::Kind::kArrived, .index = 2, .receive = 3, .number = 4096}.encode()},
      {"refused", Message{.kind = Message::Kind::kRefused, .receive = 3, .number = 8192}.encode()},
      {"announcement", nccl::encode(nccl::Announcement{1, 7, 4096})},
      {"addition", nccl::encode(nccl::Addition{2, 64, 3})},
      {"farewell", nccl::encode(nccl::Farewell{})}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  const Exact exact(std::as_bytes(std::span(data, size)));
  if (const auto message = dunlin::nccl::decode_group_message(exact.bytes())) {
    FUZZ_CHECK(equal(dunlin::nccl::encode(*message), exact.bytes()));
    const auto* const addition = std::get_if<dunlin::nccl::Addition>(&*message);
    FUZZ_CHECK(addition == nullptr || addition->offset % 8 == 0);
  }
  const auto message = Message::decode(exact.bytes());
  if (!message) return 0;
  FUZZ_CHECK(equal(message->encode(), exact.bytes()));
  const bool has_buffers = message->kind == Message::Kind::kReceive;
  FUZZ_CHECK(message->buffers.empty() == !has_buffers);
  FUZZ_CHECK(message->buffers.size() <= dunlin::nccl::kMaxGroup);
  return 0;
}
