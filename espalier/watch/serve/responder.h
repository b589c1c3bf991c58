// What `espalier watch` answers: the page of one run, its data, and a fixed list of its files.
//
// Kept true: nothing is ever written; only GET and HEAD of paths in a fixed list are answered, so no request
// can name another file; a link in the run's directory is not followed; a request whose Host names another
// site (a page elsewhere that had its name point here: DNS rebinding) is refused. All calls may come from any
// thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include "espalier/watch/lines/reader.h"
#include "espalier/watch/serve/http_message.h"

namespace espalier::watch {

class RunResponder {
 public:
  // `host`: the name by which the server is reached besides localhost, addresses and this machine's own.
  RunResponder(const std::filesystem::path& run, std::string host);

  Response answer(const Request& request);

  // Reads what is new in the run's directory, and wakes who waits when something is.
  void refresh();

  // Grows with every change.
  uint64_t version() const;
  // Waits until the version is not `seen`, or a while; returns it.
  uint64_t wait_for_change(uint64_t seen) const;

 private:
  std::string data();
  Response answer_file(const std::string& name, const std::string& type) const;

  std::string host_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  RunReader reader_;
  uint64_t version_ = 0;
  std::string data_;  // made at data_version_
  uint64_t data_version_ = 0;
};

// Whether a Host header may be meant for us: localhost, an address, or one of the names; with any port, since
// tunnels change it.
bool is_own_host(const std::string& header, const std::string& name, const std::string& machine);

}  // namespace espalier::watch
