// cpp-httplib, kept to itself: carries requests to the hooks, and their answers back.
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "espalier/watch/serve/http/connection_pool.h"
#include "espalier/watch/serve/http_server.h"

namespace espalier::watch {
namespace {

constexpr size_t kThreads = 32;
constexpr int kMostStreams = 24;  // each keeps a thread
constexpr int64_t kPieceBytes = 1 << 18;
constexpr int kQuietWaits = 20;  // half seconds, until a line that only says we are here
constexpr auto kTimeForHeaders =
    std::chrono::seconds(2);  // for all of them: a byte now and then gains no time
constexpr auto kTimeForAWrite = std::chrono::seconds(5);
constexpr int kBacklog =
    128;  // httplib's own 5 lets a burst of connections wait a second for the next attempt

using Clock = ConnectionPool::Clock;

// A connection as httplib reads and writes it. Some of its calls are those of one version of httplib, so that
// none says `override`.
class PeerStream final : public httplib::Stream {
 public:
  explicit PeerStream(ConnectionPool::Connection& connection) : connection_(connection) {}

  bool is_readable() const { return next_ < end_ || connection_.wait(POLLIN, headers_end_); }
  bool wait_readable() const { return is_readable(); }
  bool is_writable() const { return wait_for_room() && is_peer_there(); }
  bool wait_writable() const { return is_writable(); }
  bool is_peer_alive() const { return is_writable(); }

  // Bodies are never read (the answer is given before): all that comes are headers.
  ssize_t read(char* ptr, size_t size) {
    if (next_ == end_) {
      if (!connection_.wait(POLLIN, headers_end_)) return -1;
      const ssize_t count = recv(connection_.socket(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (count <= 0) return count;
      next_ = 0;
      end_ = static_cast<size_t>(count);
    }
    const size_t count = std::min(size, end_ - next_);
    std::memcpy(ptr, buffer_.data() + next_, count);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* ptr, size_t size) {
    for (;;) {
      if (!wait_for_room()) return -1;
      const ssize_t count = send(connection_.socket(), ptr, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return count;
    }
  }

  // Nobody asks who it is.
  void get_remote_ip_and_port(std::string&, int&) const {}
  void get_local_ip_and_port(std::string&, int&) const {}
  socket_t socket() const { return connection_.socket(); }
  time_t duration() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_).count();
  }

 private:
  bool wait_for_room() const { return connection_.wait(POLLOUT, Clock::now() + kTimeForAWrite); }
  bool is_peer_there() const {
    char byte = 0;
    const ssize_t count = recv(connection_.socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  }

  ConnectionPool::Connection& connection_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point headers_end_ = began_ + kTimeForHeaders;
  std::array<char, 4096> buffer_{};
  size_t next_ = 0, end_ = 0;  // what is left in the buffer
};

// httplib's server on our connections.
class PooledServer final : public httplib::Server {
 public:
  PooledServer() {
    new_task_queue = [this] { return new Queue(pool_); };
  }

  int bind(const std::string& host, int port) {
    const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
    if (bound >= 0) ::listen(svr_sock_, kBacklog);
    return bound;
  }

 private:
  class Queue final : public httplib::TaskQueue {
   public:
    explicit Queue(ConnectionPool& pool) : pool_(pool) {}
    // Whether it was taken, or nothing, by the version of httplib.
    using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
    Taken enqueue(std::function<void()> job) override {
      pool_.enqueue(std::move(job));
      return static_cast<Taken>(true);
    }
    void shutdown() override { pool_.shutdown(); }

   private:
    ConnectionPool& pool_;
  };

  // One request a connection: a body that nobody read is never taken for the next request.
  template <class Self>
  static bool serve(Self& self, PeerStream& stream) {
    bool is_closed = false;
    if constexpr (requires { self.process_request(stream, true, is_closed, nullptr); })
      return self.process_request(stream, true, is_closed, nullptr);
    else
      return self.process_request(stream, "", 0, "", 0, true, is_closed, nullptr);
  }

  bool process_and_close_socket(socket_t socket) override {
    bool is_served = false;
    {
      ConnectionPool::Connection connection(pool_, socket);
      PeerStream stream(connection);
      is_served = serve(*this, stream);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return is_served;
  }

  ConnectionPool pool_{kThreads};
};

class HttplibServer final : public HttpServer {
 public:
  explicit HttplibServer(HttpHooks hooks) : hooks_(std::move(hooks)) {
    // httplib's own choice lets two servers share one port.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    // Before any routing: every request, whatever its method, is answered here.
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      carry(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  int bind(const std::string& host, int port) override { return server_.bind(host, port); }
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
  PooledServer server_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int> num_streams_{0};
};

}  // namespace
}  // namespace espalier::watch

espalier::watch::HttpServer* espalier_make_http_server(const espalier::watch::HttpHooks& hooks) {
  return new espalier::watch::HttplibServer(hooks);
}
