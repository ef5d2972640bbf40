// The command line of the library. `qx VERB --help` documents each verb.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "quincunx/apps/doctor.h"
#include "quincunx/apps/python_verb.h"
#include "quincunx/base/version.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// The verb's own arguments, `--help` too, are read by its Python side.
CLI::App* add_python_verb(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->prefix_command();
  verb->set_help_flag();
  return verb;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Quincunx: an acceleration suite for PyTorch with one C++ core", "qx");
  app.set_version_flag("--version", std::string("qx ") + qx::version());
  app.require_subcommand(1);
  const CLI::App* doctor = app.add_subcommand("doctor", "Show what this machine offers and which limits are too small");
  const CLI::App* bench = add_python_verb(app, "bench", "Measure a capability against its named peers (needs Python)");

  if (argc > 1 && argv[1][0] != '-' && app.get_subcommand_no_throw(argv[1]) == nullptr) {
    std::cerr << "qx: unknown verb '" << argv[1] << "', expected one of:";
    for (const CLI::App* verb : app.get_subcommands({})) std::cerr << " " << verb->get_name();
    std::cerr << "\n";
    return kWrongUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (doctor->parsed()) {
    qx::apps::print_doctor(std::cout);
    return 0;
  }
  const qx::Status status = qx::apps::run_python_verb(bench->get_name(), bench->remaining());
  std::cerr << "qx bench: " << status.message() << "\n";
  return kFailed;
}
