// A run, live, for browsers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace espalier::watch {

struct ServeOptions {
  std::filesystem::path run;
  std::string host = "127.0.0.1";
  int64_t port = 8080;  // 0: any that is free
};

// Serves until a signal comes, and then throws Interrupted. `started` is told the address once it is reached.
// Fails where the port is taken, or where cpp-httplib was missing when the program was built.
void serve(const ServeOptions& options, const std::function<void(const std::string& url)>& started);

}  // namespace espalier::watch
