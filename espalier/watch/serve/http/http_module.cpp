// cpp-httplib, kept to itself: carries requests to the hooks, and their answers back.
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "espalier/watch/serve/http_server.h"

namespace espalier::watch {
namespace {

constexpr size_t kThreads = 32;
constexpr int kMostStreams = 24;  // each keeps a thread
constexpr int64_t kPieceBytes = 1 << 18;
constexpr int kQuietWaits = 20;  // half seconds, until a line that only says we are here

class HttplibServer final : public HttpServer {
 public:
  explicit HttplibServer(HttpHooks hooks) : hooks_(std::move(hooks)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // httplib's own choice lets two servers share one port.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_read_timeout(5);
    server_.set_keep_alive_max_count(1);  // a body that nobody read is never taken for the next request
    // Before any routing: every request, whatever its method, is answered here.
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      carry(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  int bind(const std::string& host, int port) override {
    if (port == 0) return server_.bind_to_any_port(host);
    return server_.bind_to_port(host, port) ? port : -1;
  }
  void run() override { server_.listen_after_bind(); }
  void stop() override {
    is_stopping_ = true;
    server_.stop();
  }

 private:
  void carry(const httplib::Request& request, httplib::Response& response) {
    const Response answer = hooks_.answer(
        {.method = request.method, .path = request.path, .host = request.get_header_value("Host")});
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    switch (answer.body) {
      case Response::Body::kText:
        response.set_content(answer.text, answer.type);
        break;
      case Response::Body::kFile:
        send_file(answer, response);
        break;
      case Response::Body::kEvents:
        send_events(answer.type, response);
        break;
    }
  }

  static void send_file(const Response& answer, httplib::Response& response) {
    if (answer.size_bytes == 0) return response.set_content("", answer.type);
    response.set_content_provider(
        static_cast<size_t>(answer.size_bytes), answer.type,
        [read = answer.read](size_t offset, size_t length, httplib::DataSink& sink) {
          const std::string piece = read(static_cast<int64_t>(offset),
                                         std::min<int64_t>(static_cast<int64_t>(length), kPieceBytes));
          return !piece.empty() && sink.write(piece.data(), piece.size());
        });
  }

  // The number of the version is enough: who sees it asks for the data.
  void send_events(const std::string& type, httplib::Response& response) {
    if (num_streams_.fetch_add(1) >= kMostStreams) {
      --num_streams_;
      response.status = 503;
      return response.set_content("Too many pages are open.\n", "text/plain");
    }
    struct Stream {
      uint64_t seen = 0;
      int num_quiet = 0;
    };
    const auto stream = std::make_shared<Stream>();
    response.set_chunked_content_provider(
        type,
        [this, stream](size_t, httplib::DataSink& sink) {
          if (is_stopping_) return false;
          const uint64_t version = hooks_.wait_for_change(stream->seen);
          std::string text;
          if (version != stream->seen) text = "event: change\ndata: " + std::to_string(version) + "\n\n";
          if (text.empty() && ++stream->num_quiet >= kQuietWaits) text = ":\n\n";
          if (text.empty()) return true;
          *stream = {.seen = version};
          return sink.write(text.data(), text.size());
        },
        [this](bool) { --num_streams_; });
  }

  HttpHooks hooks_;
  httplib::Server server_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int> num_streams_{0};
};

}  // namespace
}  // namespace espalier::watch

espalier::watch::HttpServer* espalier_make_http_server(const espalier::watch::HttpHooks& hooks) {
  return new espalier::watch::HttplibServer(hooks);
}
