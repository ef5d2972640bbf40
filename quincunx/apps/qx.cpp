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

// Says which verbs there are where `name` is none of them.
bool has_verb(const CLI::App& app, const std::string& name) {
  std::string known;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->check_name(name)) return true;
    known += " " + verb->get_name();
  }
  std::cerr << "qx: unknown verb '" << name << "', expected one of:" << known << "\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Quincunx: an acceleration suite for PyTorch with one C++ core", "qx");
  app.set_version_flag("--version", std::string("qx ") + qx::version());
  app.require_subcommand(0, 1);
  const CLI::App* doctor = app.add_subcommand("doctor", "Show what this machine offers and which limits are too small");
  const CLI::App* bench = add_python_verb(app, "bench", "Measure a capability against its named peers (needs Python)");

  if (argc > 1 && argv[1][0] != '-' && !has_verb(app, argv[1])) return kWrongUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return kWrongUsage;
  }
  if (doctor->parsed()) {
    qx::apps::print_doctor(std::cout);
    return 0;
  }
  const qx::Status status = qx::apps::run_python_verb(bench->get_name(), bench->remaining());
  std::cerr << "qx bench: " << status.message() << "\n";
  return kFailed;
}
