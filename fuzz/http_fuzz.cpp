// Requests to `espalier watch`, as cpp-httplib hands them on: method, path and host, a line each. Held: only
// a host of ours is answered, only by GET and HEAD, only with what is in the list; every answer says that a
// browser is to load nothing from elsewhere; a file is given as it lies in the run's directory.
#include <algorithm>
#include <array>

#include "espalier/watch/serve/responder.h"
#include "fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace espalier;

constexpr std::string_view kConfig = "{\"batch\": 1}";

// What an answer may be made of, beside the page's own parts.
struct Run {
  support::TemporaryFolder outside;
  support::TemporaryFolder folder;
  Run() {
    outside.write("secret", std::string_view("not for anyone"));
    folder.write("config.json", kConfig);
    folder.write("metrics.jsonl", std::string_view("{\"kind\": \"epoch\", \"epoch\": 1}\n"));
    folder.write("policy.safetensors", std::string_view("weights"));
    std::filesystem::create_symlink(outside / "secret", folder / "trace.json");
  }
};

std::array<std::string, 3> split(std::string_view input) {
  std::array<std::string, 3> lines;
  for (std::string& line : lines) {
    line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(line.size() + 1, input.size()));
  }
  return lines;
}

bool has_header(const watch::Response& response, std::string_view name) {
  return std::any_of(response.headers.begin(), response.headers.end(),
                     [&](const auto& header) { return header.first == name; });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Run run;
  static watch::RunResponder responder(run.folder.path(), "example.org");
  const auto [method, path, host] = split(fuzz::text_of(data, size));
  const watch::Response response = responder.answer({.method = method, .path = path, .host = host});
  fuzz::require(has_header(response, "Content-Security-Policy"), "every answer has a policy");
  if (host.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:[]-") !=
      host.npos)
    fuzz::require(response.status != 200, "a host that is no name is refused");
  if (response.status != 200) {
    fuzz::require(response.body == watch::Response::Body::kText, "a refusal is a sentence");
    return 0;
  }
  fuzz::require(method == "GET" || method == "HEAD", "only what is to be shown is asked for");
  if (response.body != watch::Response::Body::kFile) return 0;
  const std::string content = response.read(0, response.size_bytes);
  fuzz::require(std::ssize(content) == response.size_bytes, "a file has the size that was said");
  fuzz::require(path == "/metrics.jsonl" || (path == "/config.json" && content == kConfig),
                "only files of the list are given");
  fuzz::require(response.read(response.size_bytes, 10).empty(), "nothing lies behind a file's end");
  return 0;
}
