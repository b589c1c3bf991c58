#include "espalier/watch/serve/responder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEpoch = "{\"kind\":\"epoch\",\"epoch\":1,\"validation_accuracy\":0.5}\n";

class RunResponderTest : public ::testing::Test {
 protected:
  RunResponderTest() {
    outside_.write("secret", "secret");
    folder_.write("metrics.jsonl", kEpoch);
    folder_.write("config.json", "{\"batch\":7}");
    folder_.write("best.safetensors", "weights");
  }

  Response ask(const std::string& path, const std::string& method = "GET",
               const std::string& host = "127.0.0.1:8080") {
    if (!responder_) responder_.emplace(folder_.path(), "127.0.0.1");
    return responder_->answer({.method = method, .path = path, .host = host});
  }

  support::TemporaryFolder outside_, folder_;
  std::optional<RunResponder> responder_;
};

std::string header(const Response& response, const std::string& name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return {};
}

TEST_F(RunResponderTest, ServesThePageItsPartsAndItsData) {
  EXPECT_NE(ask("/").text.find("src=\"report.js\""), std::string::npos);
  EXPECT_NE(ask("/report.js").text.find("EventSource"), std::string::npos);
  EXPECT_NE(ask("/report.css").text.find("prefers-color-scheme"), std::string::npos);
  const nlohmann::json data = nlohmann::json::parse(ask("/data").text);
  EXPECT_EQ(data["config"]["batch"], 7);
  EXPECT_EQ(data["epochs"]["values"]["validation_accuracy"][0], 0.5);
  EXPECT_EQ(ask("/events").body, Response::Body::kEvents);
}

TEST_F(RunResponderTest, ServesTheFilesOfTheListAsTheyAre) {
  const Response response = ask("/metrics.jsonl");
  ASSERT_EQ(response.body, Response::Body::kFile);
  EXPECT_EQ(response.size_bytes, static_cast<int64_t>(std::string(kEpoch).size()));
  EXPECT_EQ(response.read(0, 1000), kEpoch);
  EXPECT_EQ(response.read(2, 4), std::string(kEpoch).substr(2, 4));
  EXPECT_EQ(response.read(1000, 4), "");
}

TEST_F(RunResponderTest, AnswersNothingThatIsNotInTheList) {
  for (const char* path :
       {"", "*", "//", "/.", "/..", "/../secret", "/..//metrics.jsonl", "/./metrics.jsonl", "//metrics.jsonl",
        "/metrics.jsonl/",

        "/best.safetensors", "/checkpoints", "/lock", "/%2e%2e/secret", "/report.html/../config.json",
        "/etc/passwd", "metrics.jsonl", "/METRICS.JSONL", "http://elsewhere/data"}) {
    const Response response = ask(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(response.body, Response::Body::kText) << path;
  }
  EXPECT_EQ(ask(std::string("/metrics.jsonl\0x", 16)).status, 404);
}

TEST_F(RunResponderTest, FollowsNoLinkAndOpensNoDirectory) {
  fs::create_symlink(outside_ / "secret", folder_ / "environment.json");
  fs::create_directory(folder_ / "trace.json");
  EXPECT_EQ(ask("/environment.json").status, 404);
  EXPECT_EQ(ask("/trace.json").status, 404);
  EXPECT_EQ(ask("/report.html").status, 404);  // not made yet
}

TEST_F(RunResponderTest, OnlyShows) {
  EXPECT_EQ(ask("/", "HEAD").status, 200);
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", ""}) {
    const Response response = ask("/", method);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(header(response, "Allow"), "GET, HEAD");
  }
}

TEST_F(RunResponderTest, RefusesOtherNamesForThisMachine) {
  EXPECT_EQ(ask("/data", "GET", "").status, 400);
  for (const char* host :
       {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
        "127.0.0.1:80:80", "localhost:", "localhost:x", "[::1", "::1", ":8080", ".", "user@localhost"})
    EXPECT_EQ(ask("/data", "GET", host).status, 403) << host;
  for (const char* host :
       {"localhost", "LOCALHOST:9000", "localhost.", "127.0.0.1", "192.168.1.7:8080", "[::1]", "[::1]:8080"})
    EXPECT_EQ(ask("/data", "GET", host).status, 200) << host;
}

TEST_F(RunResponderTest, ANameThatItWasGivenOrTheMachinesOwnIsItsOwn) {
  EXPECT_TRUE(is_own_host("node7.lab:8080", "node7.lab", "node7"));
  EXPECT_TRUE(is_own_host("node7:8080", "0.0.0.0", "node7"));
  EXPECT_FALSE(is_own_host("node8:8080", "0.0.0.0", "node7"));
}

// Found by fuzzing: an address was read up to a zero byte, whatever followed.
TEST_F(RunResponderTest, RefusesAnAddressWithAZeroByte) {
  EXPECT_FALSE(is_own_host(std::string("127.0.0.1\0.example.net", 22), "", ""));
  EXPECT_FALSE(is_own_host(std::string("[::1\0]:80", 9), "", ""));
  EXPECT_TRUE(is_own_host("[::1]:80", "", ""));
}

TEST_F(RunResponderTest, EveryAnswerForbidsWhatThePageDoesNotNeed) {
  folder_.write("report.html", "<script>1</script>");
  for (const char* path : {"/", "/data", "/events", "/metrics.jsonl", "/nothing"}) {
    const Response response = ask(path);
    EXPECT_NE(header(response, "Content-Security-Policy").find("default-src 'none'"), std::string::npos)
        << path;
    EXPECT_EQ(header(response, "Content-Security-Policy").find("unsafe"), std::string::npos) << path;
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff") << path;
    EXPECT_EQ(header(response, "Access-Control-Allow-Origin"), "") << path;
  }
  EXPECT_NE(header(ask("/report.html"), "Content-Security-Policy").find("sandbox allow-scripts;"),
            std::string::npos);
}

TEST_F(RunResponderTest, TellsWhoWaitsThatTheRunChanged) {
  ask("/");
  const uint64_t before = responder_->version();
  EXPECT_EQ(responder_->wait_for_change(before), before);
  responder_->refresh();
  EXPECT_EQ(responder_->version(), before);  // nothing is new
  std::thread writer([&] {
    folder_.write("metrics.jsonl", std::string(kEpoch) + "{\"kind\":\"epoch\",\"epoch\":2}\n");
    responder_->refresh();
  });
  uint64_t now = before;
  for (int i = 0; i < 20 && now == before; ++i) now = responder_->wait_for_change(before);
  writer.join();
  EXPECT_GT(now, before);
  EXPECT_EQ(nlohmann::json::parse(ask("/data").text)["last_epoch"], 2);
}

}  // namespace
}  // namespace espalier::watch
