// Where the ranks of a program for bench/peers/tcp run: each at an address, and in a network
// namespace, if one is named.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace peers {

struct Host {
  std::string address;
  std::string network_namespace;  // as `ip netns` lists it; empty: the present one
};

// Reads ADDRESS or ADDRESS@NAMESPACE.
inline Host parse_host(const std::string& text) {
  const std::size_t at = text.find('@');
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

inline std::vector<Host> parse_hosts(int count, char** texts) {
  std::vector<Host> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back(parse_host(texts[i]));
  return hosts;
}

// Ends the process with the reason of the last failed call.
[[noreturn]] inline void give_up(const char* what) {
  std::perror(what);
  _exit(1);
}

// Moves the calling process to the host.
inline void move_to(const Host& host) {
  if (host.network_namespace.empty()) return;
  const int file = open(("/run/netns/" + host.network_namespace).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) give_up(host.network_namespace.c_str());
  if (setns(file, CLONE_NEWNET) != 0) give_up("setns");
  close(file);
}

}  // namespace peers
