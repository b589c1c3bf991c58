#include "espalier/core/machine/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <thread>

#include "espalier/core/machine/interrupt.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kBetweenLooksMs = 50;
constexpr auto kGrace = std::chrono::milliseconds(500);  // to end in order
constexpr auto kLongestEnd = std::chrono::seconds(2);    // a killed process may still wait for a device

// Processes whose parent ends become this process's children, not init's: so they can be found. Put back at
// the end.
class AdoptsOrphans {
 public:
  AdoptsOrphans() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~AdoptsOrphans() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  AdoptsOrphans(const AdoptsOrphans&) = delete;
  AdoptsOrphans& operator=(const AdoptsOrphans&) = delete;

 private:
  int before_ = 0;
};

// The parent's number is the second field behind the name, which is in brackets and may hold anything.
std::optional<pid_t> parent_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos || text.size() < name_end + 5 || text[name_end + 2] == 'Z') return std::nullopt;
  pid_t parent = 0;
  const std::string_view number = std::string_view(text).substr(name_end + 4);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parent);
  return error == std::errc() ? std::optional(parent) : std::nullopt;
}

// All that descend from this process and still run.
std::set<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::error_code code;
  for (fs::directory_iterator entry("/proc", code), end; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    pid_t process = 0;
    const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || last != name.data() + name.size()) continue;
    if (const auto parent = parent_of(entry->path())) children.emplace(*parent, process);
  }
  std::set<pid_t> found;
  std::vector<pid_t> left{getpid()};
  while (!left.empty()) {
    const auto [first, last] = children.equal_range(left.back());
    left.pop_back();
    for (auto child = first; child != last; ++child)
      if (found.insert(child->second).second) left.push_back(child->second);
  }
  return found;
}

// Between fork and exec only what is safe in a signal handler is done: another thread may have held a lock.
[[noreturn]] void become(const std::vector<char*>& arguments, int output, int errors, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it was killed before that
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

class Child {
 public:
  // output, errors: descriptors that the program writes to.
  Child(const std::vector<std::string>& command, int output, int errors) : before_(descendants()) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) become(arguments, output, errors, parent);
    if (pid_ > 0) setpgid(pid_, pid_);  // in both: whichever comes first
  }
  ~Child() {
    if (is_running()) end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool is_running() {
    if (pid_ <= 0 || has_ended_) return false;
    pid_t ended = 0;
    do {
      ended = waitpid(pid_, &status_, WNOHANG);
    } while (ended < 0 && errno == EINTR);
    has_ended_ = ended != 0;
    return !has_ended_;
  }
  bool succeeded() const { return has_ended_ && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

  // With all that it started, in its group or out of it.
  void end() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGTERM);
    wait_until([&] { return !is_running() && own_descendants().empty(); }, kGrace);
    wait_until(
        [&] {
          kill(-pid_, SIGKILL);
          const std::set<pid_t> left = own_descendants();
          for (const pid_t process : left) kill(process, SIGKILL);
          return !is_running() && left.empty();
        },
        kLongestEnd);
  }

 private:
  std::set<pid_t> own_descendants() const {
    std::set<pid_t> own = descendants();
    std::erase_if(own, [&](pid_t process) { return before_.contains(process); });
    return own;
  }

  template <class Condition>
  static void wait_until(const Condition& condition, Clock::duration most) {
    const auto end = Clock::now() + most;
    while (!condition() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::set<pid_t> before_;  // that are none of its
  pid_t pid_ = -1;
  int status_ = 0;
  bool has_ended_ = false;
};

// One end of a pipe, closed with it.
class PipeEnd {
 public:
  explicit PipeEnd(int number) : number_(number) {}
  ~PipeEnd() { reset(); }
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;
  int get() const { return number_; }
  void reset() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

enum class Piece { kSome, kNothingYet, kEnd };

Piece read_piece(int descriptor, int timeout_ms, std::string& output) {
  pollfd ready{.fd = descriptor, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, timeout_ms) <= 0) return Piece::kNothingYet;
  std::array<char, 4096> buffer{};
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR ? Piece::kNothingYet : Piece::kEnd;
  output.append(buffer.data(), static_cast<size_t>(count));
  return count == 0 ? Piece::kEnd : Piece::kSome;
}

}  // namespace

ProgramOutput run_program(const std::vector<std::string>& command) {
  constexpr size_t kMostErrors = 1 << 14;  // more of them says no more
  std::array<int, 2> ends{}, error_ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const PipeEnd from(ends[0]);
  PipeEnd to(ends[1]);
  if (pipe2(error_ends.data(), O_CLOEXEC) != 0) return {};
  const PipeEnd errors_from(error_ends[0]);
  PipeEnd errors_to(error_ends[1]);
  const AdoptsOrphans adopts;
  Child child(command, to.get(), errors_to.get());
  to.reset();
  errors_to.reset();
  ProgramOutput result;
  bool is_open = true, are_errors_open = true;
  // Both are emptied in turn: a program waits where a pipe is full.
  const auto read_errors = [&](int timeout_ms) {
    const Piece piece = read_piece(errors_from.get(), timeout_ms, result.errors);
    if (result.errors.size() > kMostErrors) result.errors.erase(0, result.errors.size() - kMostErrors);
    are_errors_open = piece != Piece::kEnd;
    return piece;
  };
  while (child.is_running() && pending_interrupt() == 0) {
    while (are_errors_open && read_errors(0) == Piece::kSome) {
    }
    if (is_open)
      is_open = read_piece(from.get(), kBetweenLooksMs, result.output) != Piece::kEnd;
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(kBetweenLooksMs));
  }
  if (pending_interrupt() != 0) child.end();
  throw_if_interrupted();
  // What it left in the pipes; whoever else still holds the other ends is not waited for.
  while (is_open && read_piece(from.get(), 0, result.output) == Piece::kSome) {
  }
  while (are_errors_open && read_errors(0) == Piece::kSome) {
  }
  result.succeeded = child.succeeded();
  return result;
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  ProgramOutput result = run_program(command);
  return result.succeeded ? std::optional(std::move(result.output)) : std::nullopt;
}

}  // namespace espalier
