#include "espalier/watch/serve/http/connection_pool.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace espalier::watch {

ConnectionPool::ConnectionPool(size_t num_threads) {
  for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

ConnectionPool::~ConnectionPool() {
  shutdown();
}

void ConnectionPool::enqueue(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(job));
  make_room();
  changed_.notify_one();
}

void ConnectionPool::shutdown() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
    for (Served& served : served_)
      if (served.waits_since) shut_down(served);
  }
  changed_.notify_all();
  for (std::thread& thread : std::exchange(threads_, {})) thread.join();
}

void ConnectionPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_free_;
    changed_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
    --num_free_;
    if (queue_.empty()) return;
    const std::function<void()> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    job();  // where all is over, it finds its connection shut down
    lock.lock();
  }
}

void ConnectionPool::make_room() {
  while (queue_.size() > num_free_ + num_leaving_) {
    Served* longest = nullptr;
    for (Served& served : served_)
      if (served.waits_since && !served.is_shut_down &&
          (longest == nullptr || *served.waits_since < *longest->waits_since))
        longest = &served;
    if (longest == nullptr) return;
    shut_down(*longest);
  }
}

void ConnectionPool::shut_down(Served& served) {
  if (std::exchange(served.is_shut_down, true)) return;
  ++num_leaving_;
  ::shutdown(served.socket, SHUT_RDWR);  // wakes who waits for it
}

ConnectionPool::Connection::Connection(ConnectionPool& pool, int socket) : pool_(pool) {
  const std::scoped_lock lock(pool_.mutex_);
  served_ = pool_.served_.emplace(pool_.served_.begin());
  served_->socket = socket;
}

ConnectionPool::Connection::~Connection() {
  const std::scoped_lock lock(pool_.mutex_);
  if (served_->is_shut_down) --pool_.num_leaving_;
  pool_.served_.erase(served_);
}

bool ConnectionPool::Connection::wait(short events, Clock::time_point deadline) {
  pollfd ready{.fd = served_->socket, .events = events, .revents = 0};
  if (poll(&ready, 1, 0) > 0) {
    const std::scoped_lock lock(pool_.mutex_);
    return !served_->is_shut_down;
  }
  {
    const std::scoped_lock lock(pool_.mutex_);
    if (served_->is_shut_down || pool_.is_over_) return false;
    served_->waits_since = Clock::now();
    pool_.make_room();  // for those who came before anyone waited
  }
  int count = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
  } while (count < 0 && errno == EINTR);
  const std::scoped_lock lock(pool_.mutex_);
  served_->waits_since.reset();
  return count > 0 && !served_->is_shut_down;
}

}  // namespace espalier::watch
