// What the bootstrap reads as text or keeps for later: mail (runtime/bootstrap/mail.h), the file of
// the secret, endpoints, and foreign text that is to be printed.
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "runtime/bootstrap/mail.h"
#include "runtime/bootstrap/net.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/log.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

enum Mode : std::uint8_t { kMail, kSecret, kEndpoint, kPrintable, kModes };

void check_mail(std::span<const std::byte> bytes) {
  static Mail mail([](Rank, Bytes) {});
  mail.deliver(Rank(3), bytes);
  for (std::size_t topic = 0; topic < kMailTopics; ++topic) {
    const bool is_its = !bytes.empty() && std::to_integer<std::size_t>(bytes[0]) == topic;
    const auto message = mail.receive(static_cast<MailTopic>(topic));
    FUZZ_CHECK(message.has_value() == is_its);
    if (message) FUZZ_CHECK(message->from == Rank(3) && equal(message->text, bytes.subspan(1)));
  }
}

void check_secret(std::string_view text) {
  static const int file = ::memfd_create("secret", MFD_CLOEXEC);
  if (::ftruncate(file, 0) != 0 || ::fchmod(file, 0600) != 0 ||
      ::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return;
  }
  const auto secret = bootstrap::read_secret_file("/proc/self/fd/" + std::to_string(file));
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  FUZZ_CHECK(secret.is_ok() != line.empty());
  if (secret) FUZZ_CHECK(line.starts_with(*secret));
}

void check_endpoint(std::string_view text) {
  const auto endpoint = bootstrap::Endpoint::parse(text);
  if (!endpoint) return;
  const auto again = bootstrap::Endpoint::parse(endpoint->to_string());
  FUZZ_CHECK(again.is_ok() && *again == *endpoint);
}

void check_printable(std::string_view text) {
  const std::string shown = bootstrap::printable(text);
  FUZZ_CHECK(std::ranges::all_of(shown, [](char c) { return c >= ' ' && c <= '~'; }));
}

Seed seed(std::string name, Mode mode, std::string_view text) {
  return headed_seed(std::move(name), {mode}, as_bytes(text));
}

}  // namespace

std::vector<Seed> seeds() {
  return {seed("mail", kMail, std::string_view("\1a request", 10)),
          seed("mail_unknown", kMail, "\7a request"),
          seed("secret", kSecret, "0123456789abcdef0123456789abcdef\nmore"),
          seed("endpoint", kEndpoint, "host-7:4711"),
          seed("endpoint_v6", kEndpoint, "[fe80::1]:4711"),
          seed("printable", kPrintable, "a\x1b[31m text \xc3\xa9\n")};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  static const bool is_quiet =
      (dunlin::configure_log(dunlin::LogLevel::kOff, dunlin::Rank(-1)), true);
  (void)is_quiet;
  Input input(data, size);
  switch (input.take<std::uint8_t>() % kModes) {
    case kMail:
      check_mail(input.rest());
      break;
    case kSecret:
      check_secret(input.text());
      break;
    case kEndpoint:
      check_endpoint(input.text());
      break;
    default:
      check_printable(input.text());
  }
  return 0;
}
