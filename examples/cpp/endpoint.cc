// Two processes that no launcher has started: one writes into the other's memory, and says so.
//
//     example_endpoint > blob &         # waits for a peer; the blob is a secret
//     example_endpoint --write < blob   # writes to it
//
// With --pair, it starts the second process by itself.
#include <dunlin/endpoint.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace std::chrono_literals;

namespace {

std::string to_hex(const dunlin::Bytes& bytes) {
  std::string text;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

dunlin::Bytes from_hex(const std::string& text) {
  dunlin::Bytes bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(std::byte(std::strtoul(text.substr(at, 2).c_str(), nullptr, 16)));
  return bytes;
}

// Waits for a peer, tells it where to write, and prints what it has written.
dunlin::Status serve(dunlin::Endpoint& endpoint) {
  char inbox[64] = "";
  DUNLIN_ASSIGN(const auto memory, endpoint.wrap(inbox, sizeof inbox));
  DUNLIN_ASSIGN(auto peer, endpoint.accept(60s));
  DUNLIN_TRY(peer.send(std::as_bytes(std::span(&memory.number, 1))));
  DUNLIN_TRY(peer.receive(60s).status());  // arrives behind the put
  std::fprintf(stderr, "over %s: %s\n", peer.transport().c_str(), inbox);
  return endpoint.deregister(memory);
}

dunlin::Status write_to(const dunlin::Bytes& blob) {
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

dunlin::Status write_from_input() {
  char blob[512] = "";
  if (std::scanf("%511s", blob) != 1)
    return {dunlin::Code::kInvalidArgument, "no blob in the input"};
  return write_to(from_hex(blob));
}

// Starts the writer with a pipe as its input.
FILE* start_writer(const char* program) {
  return popen((std::string(program) + " --write").c_str(), "w");
}

dunlin::Status run(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "--write") return write_from_input();
  DUNLIN_ASSIGN(auto endpoint, dunlin::Endpoint::open({.is_host_only = mode == "--pair"}));
  FILE* const to = mode == "--pair" ? start_writer(argv[0]) : stdout;
  std::fprintf(to, "%s\n", to_hex(endpoint.blob()).c_str());
  std::fflush(to);
  const dunlin::Status served = serve(endpoint);
  if (to != stdout && pclose(to) != 0) return {dunlin::Code::kInternal, "the writer has failed"};
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  const dunlin::Status status = run(argc, argv);
  if (!status.is_ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
