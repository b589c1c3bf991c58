// The program's commands and flags as plain values, read from the parser that program.cpp builds: what manual
// pages and completions are made from, so that neither has a list of its own.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace espalier::cli {

struct FlagText {
  std::vector<std::string>
      names;          // "--lanes", "--envs": the one to show first; "-h" stands before its long form
  std::string value;  // "INT", "own|split"; empty where it takes none
  std::vector<std::string> choices;  // "own", "split"; empty where anything goes
  std::string place;                 // "SRC": what it is called where it may be given by its place
  std::string help;
  std::string group;

  // Whether the value is a path.
  bool takes_file() const;
};

struct CommandText {
  std::string name;  // "ppo"
  std::string path;  // "espalier train ppo"
  std::string summary;
  std::string examples;             // whole lines
  bool is_job = false;              // does something by itself
  std::vector<std::string> groups;  // those of its flags, in the order of --help
  std::vector<FlagText> flags;
  std::vector<CommandText> commands;
};

CommandText command_tree(const CLI::App& app);

// The command itself and all below it, a command before what is below it.
std::vector<const CommandText*> all_commands(const CommandText& root);

}  // namespace espalier::cli
