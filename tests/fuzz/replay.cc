// The main program of a harness in builds without libFuzzer. Stands in for it: runs the corpus and
// a fixed series of changed inputs.
//
//   PROGRAM CORPUS MUTATIONS     the files of the folder, then as many mutants of them
//   PROGRAM CORPUS --only N      only mutant N, which is written to ./mutant-N
//   PROGRAM CORPUS --write       writes the harness's seeds into the folder
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "runtime/random.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestMutant = 1 << 14;
constexpr std::string_view kSuffix = ".bin";

// What runs now, for the message of an input that ends the program.
char current[512];

void tell_current(int signal) {
  const auto size = static_cast<std::size_t>(std::find(current, std::end(current), '\0') - current);
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, current, size);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void run(const Bytes& input, std::string_view name) {
  const auto end = fmt::format_to_n(current, sizeof current - 1, "fuzz: the input was {}\n", name);
  *end.out = '\0';
  const Exact exact(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(exact.bytes().data()), input.size());
}

Bytes content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

// Returns the inputs in the order of their names, so that mutants have the same numbers everywhere.
std::vector<Seed> read_corpus(const fs::path& folder) {
  std::vector<Seed> corpus;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == kSuffix)
      corpus.push_back({entry.path().stem().string(), content_of(entry.path())});
  }
  std::ranges::sort(corpus, {}, &Seed::name);
  return corpus;
}

std::uint64_t telling_number(Random& random) {
  constexpr std::uint64_t kTelling[] = {0,          1,          2,          0x7f,       0x80,
                                        0xff,       0x100,      0x7fff,     0xffff,     0x10000,
                                        0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 1ULL << 63};
  return kTelling[random.below(std::size(kTelling))] + random.below(3) - 1;
}

void edit(Bytes& bytes, const std::vector<Seed>& corpus, Random& random) {
  const std::size_t size = bytes.size();
  const std::size_t at = random.below(size + 1);
  const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(7)) {
    case 0:
      if (at < size) bytes[at] ^= static_cast<std::byte>(1U << random.below(8));
      break;
    case 1:
      if (at < size) bytes[at] = static_cast<std::byte>(random.below(256));
      break;
    case 2: {
      const std::uint64_t number = telling_number(random);
      const std::size_t width = std::min<std::size_t>(std::size_t{1} << random.below(4), size - at);
      if (width != 0) std::memcpy(bytes.data() + at, &number, width);
      break;
    }
    case 3:
      bytes.insert(place, 1 + random.below(8), static_cast<std::byte>(random.below(256)));
      break;
    case 4:
      bytes.erase(place, place + static_cast<std::ptrdiff_t>(
                                     std::min<std::size_t>(1 + random.below(16), size - at)));
      break;
    case 5:
      bytes.resize(at);
      break;
    case 6: {  // a piece of another input
      const Bytes& other = corpus[random.below(corpus.size())].bytes;
      const std::size_t from = random.below(other.size() + 1);
      const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
      const std::size_t count = std::min<std::size_t>(random.below(64), other.size() - from);
      bytes.insert(place, begin, begin + static_cast<std::ptrdiff_t>(count));
      break;
    }
  }
  if (bytes.size() > kLongestMutant) bytes.resize(kLongestMutant);
}

Bytes mutant(const std::vector<Seed>& corpus, std::uint64_t number) {
  Random random(number);
  Bytes bytes = corpus[random.below(corpus.size())].bytes;
  for (std::uint64_t edits = 1 + random.below(5); edits > 0; --edits) edit(bytes, corpus, random);
  return bytes;
}

void write(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

int write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  for (const Seed& seed : seeds()) write(folder / (seed.name + std::string(kSuffix)), seed.bytes);
  return 0;
}

// The corpus must hold what the encoders make today, or it no longer reaches far into the decoder.
bool has_seeds(const std::vector<Seed>& corpus, const char* program, const char* folder) {
  for (const Seed& seed : seeds()) {
    const auto found = std::ranges::find(corpus, seed.name, &Seed::name);
    if (found != corpus.end() && found->bytes == seed.bytes) continue;
    fmt::print(stderr, "{}/{}{} is missing or outdated; run: {} {} --write\n", folder, seed.name,
               kSuffix, program, folder);
    return false;
  }
  return true;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

int replay(const std::vector<Seed>& corpus, std::uint64_t mutations) {
  for (const Seed& seed : corpus) run(seed.bytes, seed.name);
  for (std::uint64_t i = 0; i < mutations; ++i)
    run(mutant(corpus, i), fmt::format("mutant {0} (--only {0} writes it to a file)", i));
  fmt::print("{} inputs and {} mutants\n", corpus.size(), mutations);
  return 0;
}

int main(int count, char** words) {
  const std::string_view last = count >= 3 ? words[2] : "";
  if (count == 3 && last == "--write") return write_seeds(words[1]);
  const auto chosen = number(count >= 3 ? words[count - 1] : "");
  if (!chosen || (count != 3 && !(count == 4 && last == "--only"))) {
    fmt::print(stderr, "usage: {} CORPUS MUTATIONS | --only N | --write\n", words[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
    ::signal(signal, tell_current);
  }
  const std::vector<Seed> corpus = read_corpus(words[1]);
  if (corpus.empty() || !has_seeds(corpus, words[0], words[1])) return 1;
  if (count == 3) return replay(corpus, *chosen);
  const Bytes input = mutant(corpus, *chosen);
  const std::string name = fmt::format("mutant-{}", *chosen);
  write(name, input);
  run(input, name);
  return 0;
}

}  // namespace
}  // namespace dunlin::fuzz

int main(int count, char** words) {
  return dunlin::fuzz::main(count, words);
}
