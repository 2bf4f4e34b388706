// Two processes that no launcher has started: one writes into the other's memory, and says so.
//
//     example_endpoint | example_endpoint write             # on one host
//     example_endpoint | ssh HOST example_endpoint write    # on two hosts
#include <dunlin/endpoint.h>

#include <cstdio>
#include <cstring>

using namespace std::chrono_literals;

// Hands out the blob, which is a secret, tells the peer where to write, and prints what it wrote.
static dunlin::Status serve() {
  DUNLIN_ASSIGN(auto endpoint, dunlin::Endpoint::open());
  const dunlin::Bytes blob = endpoint.blob();
  const bool is_out = std::fwrite(blob.data(), 1, blob.size(), stdout) == blob.size();
  if (std::fclose(stdout) != 0 || !is_out) return {dunlin::Code::kIoError, "standard output"};
  char inbox[64] = "";
  DUNLIN_ASSIGN(const auto memory, endpoint.wrap(inbox, sizeof inbox));
  DUNLIN_ASSIGN(auto peer, endpoint.accept(60s));
  DUNLIN_TRY(peer.send(std::as_bytes(std::span(&memory.number, 1))));
  DUNLIN_TRY(peer.receive(60s).status());  // arrives behind the put
  std::fprintf(stderr, "over %s: %s\n", peer.transport().c_str(), inbox);
  return endpoint.deregister(memory);
}

static dunlin::Status write_to(const dunlin::Bytes& blob) {
  char text[64] = "written by a process of another family";
  DUNLIN_ASSIGN(auto endpoint, dunlin::Endpoint::open());
  DUNLIN_ASSIGN(const auto memory, endpoint.wrap(text, sizeof text));
  DUNLIN_ASSIGN(auto peer, endpoint.connect(blob, 60s));
  DUNLIN_ASSIGN(const auto message, peer.receive(60s));
  std::uint64_t number = 0;
  std::memcpy(&number, message.data(), sizeof number);
  DUNLIN_ASSIGN(const auto inbox, peer.remote(number, 60s));
  DUNLIN_ASSIGN(const auto from, peer.local(memory));
  DUNLIN_TRY(peer.put(from, inbox, nullptr));
  return peer.send({});
}

int main(int argc, char**) {
  dunlin::Bytes blob(512);
  if (argc > 1) blob.resize(std::fread(blob.data(), 1, blob.size(), stdin));
  const dunlin::Status status = argc > 1 ? write_to(blob) : serve();
  if (!status.is_ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
