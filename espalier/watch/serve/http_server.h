// The server behind `espalier watch`, as a module (libespalier_http.so) that is loaded when it is wanted: so
// the program itself runs, and its bundle travels, without cpp-httplib and the libraries that it brings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "espalier/watch/serve/http_message.h"

namespace espalier::watch {

struct HttpHooks {
  std::function<Response(const Request&)> answer;
  std::function<uint64_t(uint64_t seen)> wait_for_change;  // waits at most half a second
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  // Returns the port (0 asks for any that is free), or -1.
  virtual int bind(const std::string& host, int port) = 0;
  virtual void run() = 0;   // until stop()
  virtual void stop() = 0;  // from another thread
};

}  // namespace espalier::watch

// What the module offers.
extern "C" espalier::watch::HttpServer* espalier_make_http_server(const espalier::watch::HttpHooks& hooks);
