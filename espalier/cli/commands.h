// The commands, one file or folder each; program.cpp calls them in the order in which --help lists them.
#pragma once

#include "espalier/cli/command.h"

namespace espalier::cli {

void add_data_command(CLI::App& app, Context& context);
void add_train_command(CLI::App& app, Context& context);
void add_train_linet(CLI::App& train, Context& context);  // below the train command
void add_train_ppo(CLI::App& train, Context& context);    // below the train command
void add_demo_command(CLI::App& app, Context& context);
void add_evaluate_command(CLI::App& app, Context& context);
void add_export_command(CLI::App& app, Context& context);
void add_predict_command(CLI::App& app, Context& context);
void add_inspect_command(CLI::App& app, Context& context);
void add_linet_command(CLI::App& app, Context& context);
void add_runs_command(CLI::App& app, Context& context);
void add_runs_prune(CLI::App& runs, Context& context);  // below the runs command
void add_runs_pack(CLI::App& runs, Context& context);   // below the runs command
void add_report_command(CLI::App& app, Context& context);
void add_compare_command(CLI::App& app, Context& context);
void add_watch_command(CLI::App& app, Context& context);
void add_plan_command(CLI::App& app, Context& context);
void add_profile_command(CLI::App& app, Context& context);
void add_bench_command(CLI::App& app, Context& context);
void add_doctor_command(CLI::App& app, Context& context);
void add_man_command(CLI::App& app, Context& context);
void add_completion_command(CLI::App& app, Context& context);

}  // namespace espalier::cli
