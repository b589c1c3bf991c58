#include "espalier/watch/serve/responder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "espalier/watch/page/data.h"
#include "espalier/watch/page/report.h"

namespace espalier::watch {
namespace {

constexpr auto kLongestWait = std::chrono::milliseconds(500);

struct ServedFile {
  const char* path;
  const char* type;
};
// What a run leaves for people; weights and checkpoints are not among it.
constexpr ServedFile kFiles[] = {
    {"/report.html", "text/html; charset=utf-8"}, {"/metrics.jsonl", "application/x-ndjson; charset=utf-8"},
    {"/config.json", "application/json"},         {"/environment.json", "application/json"},
    {"/trace.json", "application/json"},
};

Response text(int status, std::string type, std::string body) {
  return {.status = status, .type = std::move(type), .text = std::move(body)};
}

Response refusal(int status, const std::string& sentence) {
  return text(status, "text/plain; charset=utf-8", sentence + "\n");
}

void add_safety(Response& response, bool is_report) {
  // A report in the directory holds its scripts inside, and may be anyone's: alone in a sandbox it reaches
  // nothing of this site.
  const char* policy = is_report
                           ? "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
                             "script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
                           : "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
                             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  response.headers.insert(response.headers.end(), {{"Content-Security-Policy", policy},
                                                   {"X-Content-Type-Options", "nosniff"},
                                                   {"Cross-Origin-Resource-Policy", "same-origin"},
                                                   {"Referrer-Policy", "no-referrer"},
                                                   {"Cache-Control", "no-store"}});
}

std::string machine_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_address(const std::string& host) {
  if (host.find('\0') != host.npos) return false;  // inet_pton would see only what stands before it
  std::array<unsigned char, 16> ignored{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), ignored.data()) == 1;
  return inet_pton(AF_INET, host.c_str(), ignored.data()) == 1;
}

// A regular file, open; its size is what it was when it was opened.
class OpenFile {
 public:
  OpenFile(int descriptor, int64_t size_bytes) : descriptor_(descriptor), size_bytes_(size_bytes) {}
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  std::string read_at(int64_t offset, int64_t most) const {
    std::string bytes(static_cast<size_t>(std::max<int64_t>(0, std::min(most, size_bytes_ - offset))), '\0');
    ssize_t got = 0;
    do {
      got = pread(descriptor_, bytes.data(), bytes.size(), offset);
    } while (got < 0 && errno == EINTR);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    return bytes;
  }

 private:
  int descriptor_;
  int64_t size_bytes_;
};

bool is_same_name(const std::string& a, const std::string& b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return !a.empty() && std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

bool is_own_host(const std::string& header, const std::string& name, const std::string& machine) {
  std::string host = header;
  // A port, unless the colon belongs to an address in brackets.
  if (const size_t colon = host.rfind(':');
      colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    const std::string port = host.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos)
      return false;
    host.resize(colon);
  }
  if (host.ends_with('.')) host.pop_back();  // "localhost." is the same
  return is_same_name(host, "localhost") || is_address(host) || is_same_name(host, name) ||
         is_same_name(host, machine);
}

RunResponder::RunResponder(const std::filesystem::path& run, std::string host)
    : host_(std::move(host)), reader_(run) {
  refresh();
}

void RunResponder::refresh() {
  const std::scoped_lock lock(mutex_);
  if (!reader_.refresh()) return;
  ++version_;
  changed_.notify_all();
}

uint64_t RunResponder::version() const {
  const std::scoped_lock lock(mutex_);
  return version_;
}

uint64_t RunResponder::wait_for_change(uint64_t seen) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLongestWait, [&] { return version_ != seen; });
  return version_;
}

// Made once a version, however many ask.
std::string RunResponder::data() {
  const std::scoped_lock lock(mutex_);
  if (data_version_ != version_) {
    data_ = script_json(page_data(reader_.record()));
    data_version_ = version_;
  }
  return data_;
}

Response RunResponder::answer_file(const std::string& name, const std::string& type) const {
  // Not following links: what the run wrote itself is a file.
  const int descriptor =
      open((reader_.path() / name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (descriptor < 0) return refusal(404, "The run has no " + name + ".");
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return refusal(404, "The run has no " + name + ".");
  }
  const auto file = std::make_shared<OpenFile>(descriptor, status.st_size);
  return {.type = type,
          .body = Response::Body::kFile,
          .size_bytes = status.st_size,
          .read = [file](int64_t offset, int64_t most) { return file->read_at(offset, most); }};
}

Response RunResponder::answer(const Request& request) {
  const auto decide = [&]() -> Response {
    if (request.host.empty()) return refusal(400, "The request names no host.");
    if (!is_own_host(request.host, host_, machine_name()))
      return refusal(403,
                     "This server does not answer to that name: use localhost, its address or its own name.");
    if (request.method != "GET" && request.method != "HEAD") {
      Response response = refusal(405, "This server only shows: GET and HEAD.");
      response.headers.emplace_back("Allow", "GET, HEAD");
      return response;
    }
    if (request.path == "/") {
      const std::scoped_lock lock(mutex_);
      return text(200, "text/html; charset=utf-8", live_page(reader_.record()));
    }
    if (request.path == "/report.css") return text(200, "text/css; charset=utf-8", std::string(page_style()));
    if (request.path == "/report.js") return text(200, "text/javascript; charset=utf-8", page_script());
    if (request.path == "/data") return text(200, "application/json", data());
    if (request.path == "/events") return {.type = "text/event-stream", .body = Response::Body::kEvents};
    for (const ServedFile& file : kFiles)
      if (request.path == file.path) return answer_file(file.path + 1, file.type);
    return refusal(404, "There is nothing by that name.");
  };
  Response response = decide();
  add_safety(response, request.path == "/report.html" && response.status == 200);
  return response;
}

}  // namespace espalier::watch
