// Threads that serve connections, one each, and the connections that are being served. Free of any server.
//
// Kept true: a connection that waits for its peer holds up nobody. While more are queued than threads are
// free, the one that has waited for its peer the longest is shut down, and its thread takes the next. All
// calls may come from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace espalier::watch {

class ConnectionPool {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ConnectionPool(size_t num_threads);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // A job serves one connection, and makes a Connection of it.
  void enqueue(std::function<void()> job);
  // Shuts connections down that wait, and returns when all jobs have ended.
  void shutdown();

 private:
  struct Served {
    int socket = -1;
    std::optional<Clock::time_point> waits_since;  // for its peer
    bool is_shut_down = false;
  };

 public:
  // A connection while it is served; gone before its socket is closed.
  class Connection {
   public:
    Connection(ConnectionPool& pool, int socket);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Until the socket is ready for one of these events of poll(); false at the deadline, or where others
    // were given its room.
    bool wait(short events, Clock::time_point deadline);
    int socket() const { return served_->socket; }

   private:
    ConnectionPool& pool_;
    std::list<Served>::iterator served_;
  };

 private:
  void work();
  void make_room();  // the lock is held
  void shut_down(Served& served);

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::list<Served> served_;
  size_t num_free_ = 0;     // threads without a job
  size_t num_leaving_ = 0;  // connections that were shut down, and whose threads are not free yet
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace espalier::watch
