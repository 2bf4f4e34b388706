// Messages between the two ends of a comm of the NCCL plugin (bindings/nccl/messages.h). What is
// accepted is what the encoder makes of it, and names a buffer at least and kMaxGroup at most.
#include "bindings/nccl/messages.h"

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
      {"refused", Message{.kind = Message::Kind::kRefused, .receive = 3, .number = 8192}.encode()}};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  const Exact exact(std::as_bytes(std::span(data, size)));
  const auto message = Message::decode(exact.bytes());
  if (!message) return 0;
  FUZZ_CHECK(equal(message->encode(), exact.bytes()));
  const bool has_buffers = message->kind == Message::Kind::kReceive;
  FUZZ_CHECK(message->buffers.empty() == !has_buffers);
  FUZZ_CHECK(message->buffers.size() <= dunlin::nccl::kMaxGroup);
  return 0;
}
