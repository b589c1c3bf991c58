// A request and its answer, free of any server: what responder.h decides and http/ carries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::watch {

struct Request {
  std::string method;  // "GET"
  std::string path;    // decoded, without the part from '?' on
  std::string host;    // the Host header; empty: there was none
};

struct Response {
  enum class Body : uint8_t {
    kText,    // `text`
    kFile,    // `size_bytes` of what `read` gives
    kEvents,  // goes on: an event whenever the run changes
  };

  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;
  Body body = Body::kText;
  std::string text;
  int64_t size_bytes = 0;
  // At most so many bytes from there on; none where the file has become shorter.
  std::function<std::string(int64_t offset, int64_t most)> read;
};

}  // namespace espalier::watch
