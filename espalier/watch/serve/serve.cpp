#include "espalier/watch/serve/serve.h"

#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/watch/serve/http_server.h"
#include "espalier/watch/serve/responder.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "libespalier_http.so";
constexpr auto kBetweenLooks = std::chrono::milliseconds(250);

using MakeServer = decltype(&espalier_make_http_server);

// The module lies beside the program.
MakeServer load_server() {
  std::error_code code;
  const fs::path module = fs::read_symlink("/proc/self/exe", code).parent_path() / kModule;
  if (!fs::exists(module, code))
    fail(
        "watch: this program was built without cpp-httplib: install libcpp-httplib-dev (scripts/install-deps "
        "does), "
        "and build again; espalier report makes the same page as a file");
  // RTLD_DEEPBIND: libtorch_cpu.so exports an httplib of its own, of another version. Mixed with ours it
  // accepts connections and never answers.
  void* const handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr)
    fail("watch: {}: install libcpp-httplib-dev, or use espalier report, which makes the same page as a file",
         dlerror());
  void* const symbol = dlsym(handle, "espalier_make_http_server");
  if (symbol == nullptr) fail("watch: '{}' is of another version: build again", module.string());
  return reinterpret_cast<MakeServer>(symbol);
}

// Why the address cannot be had: the server itself only says that it cannot.
void check_address(const ServeOptions& options) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string port = std::to_string(options.port);
  if (const int code = getaddrinfo(options.host.c_str(), port.c_str(), &hints, &found); code != 0)
    fail("watch --host {}: {}: want a name or an address of this machine, such as 127.0.0.1", options.host,
         gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  int problem = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int descriptor = socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (descriptor < 0) continue;
    const int yes = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    problem = bind(descriptor, each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    close(descriptor);
    if (problem == 0) return;
  }
  if (problem == EADDRINUSE)
    fail("watch: port {} of {} is taken: give another --port, or 0 for any that is free", options.port,
         options.host);
  fail("watch: cannot listen on port {} of {}: {}", options.port, options.host, std::strerror(problem));
}

std::string url_of(const std::string& host, int port) {
  const bool is_everywhere = host == "0.0.0.0" || host == "::";
  const bool is_ipv6 = host.find(':') != std::string::npos;
  const std::string shown = is_everywhere ? "localhost" : is_ipv6 ? fmt::format("[{}]", host) : host;
  return fmt::format("http://{}:{}/", shown, port);
}

}  // namespace

void serve(const ServeOptions& options, const std::function<void(const std::string&)>& started) {
  const MakeServer make_server = load_server();
  RunResponder responder(options.run, options.host);
  check_address(options);
  const std::unique_ptr<HttpServer> server(
      make_server({.answer = [&](const Request& request) { return responder.answer(request); },
                   .wait_for_change = [&](uint64_t seen) { return responder.wait_for_change(seen); }}));
  const int port = server->bind(options.host, static_cast<int>(options.port));
  if (port < 0) fail("watch: cannot listen on port {} of {}", options.port, options.host);
  std::thread running([&] { server->run(); });
  started(url_of(options.host, port));
  while (pending_interrupt() == 0) {
    std::this_thread::sleep_for(kBetweenLooks);
    responder.refresh();
  }
  server->stop();
  running.join();
  throw_if_interrupted();
}

}  // namespace espalier::watch
