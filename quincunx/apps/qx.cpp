// The command line of the library. `qx VERB --help` documents each verb.
#include <CLI/CLI.hpp>
#include <iostream>
#include <new>
#include <string>

#include "quincunx/apps/doctor.h"
#include "quincunx/apps/doctor_comm.h"
#include "quincunx/apps/inspect.h"
#include "quincunx/apps/plan_comm.h"
#include "quincunx/apps/python_verb.h"
#include "quincunx/apps/run.h"
#include "quincunx/apps/text.h"
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

CLI::App* add_doctor_comm_verb(CLI::App& doctor, qx::apps::DoctorCommArguments& arguments) {
  CLI::App* verb = doctor.add_subcommand("comm", "Try out what ranks need to find each other from this machine");
  verb->add_flag("--json", arguments.json, "Print JSON");
  verb->add_option("--peer", arguments.peers, "Numeric address:port to connect to; may be repeated");
  verb->add_option("--timeout", arguments.timeout_s, "Seconds for each peer (3)");
  return verb;
}

CLI::App* add_plan_comm_verb(CLI::App& plan, qx::apps::PlanCommArguments& arguments) {
  CLI::App* verb = plan.add_subcommand("comm", "Simulate how the ranks of a job connect");
  verb->add_option("--ranks", arguments.num_ranks, "Ranks of the job")->required();
  verb->add_option("--ranks-per-host", arguments.ranks_per_host, "Ranks on each host (8)");
  verb->add_option("--roots", arguments.num_roots, "Roots of the tree; 0: one for each 128 hosts (0)");
  verb->add_option("--algorithm", arguments.algorithm, "tree, or to compare: gloo, gloo-batched (tree)");
  verb->add_option("--fault", arguments.faults,
                   "RANK@never, RANK@PHASE, RANK@stop:PHASE, RANK@late:SECONDS, RANK@claims:OTHER, RANK@world:SIZE; "
                   "phases are listening, greeting, attached, ready")
      ->allow_extra_args(false);
  verb->add_option("--seed", arguments.seed, "The same seed gives the same run (1)");
  verb->add_option("--timeout", arguments.timeout_s, "Seconds after which ranks give up (60)");
  verb->add_option("--skew", arguments.start_skew_s, "Seconds within which ranks start (0.05)");
  verb->add_option("--round-trip-us", arguments.round_trip_us, "Between hosts (100)");
  verb->add_option("--loss", arguments.loss, "Share of segments that are lost (0)");
  verb->add_flag("--one-machine", arguments.one_machine, "All hosts are one machine, as in tests with virtual ranks");
  verb->add_flag("--processes", arguments.processes, "On it, each rank is a process");
  verb->add_option("--cores", arguments.cores, "Of that machine, and threads of --measure (1)");
  verb->add_flag("--measure", arguments.measure, "Connect them here too, as virtual ranks on loopback sockets");
  verb->add_flag("--json", arguments.json, "Print JSON");
  return verb;
}

CLI::App* add_run_verb(CLI::App& app, qx::apps::RunArguments& arguments) {
  CLI::App* verb = app.add_subcommand("run", "Run a converted model on .npy files, or on random numbers");
  verb->add_option("model", arguments.model, "A .qxm file")->required();
  verb->add_option("--method", arguments.method, "Which of the model's methods; needed where there are several");
  verb->add_option("--input", arguments.inputs, "name=file.npy, once an input; others get random numbers");
  verb->add_option("--size", arguments.sizes, "symbol=number, the size of random inputs where it may vary");
  verb->add_option("--output-dir", arguments.output_dir, "Write each output there as NAME.npy");
  verb->add_option("--threads", arguments.num_threads, "Threads to use; 0 is the machine's");
  verb->add_option("--runs", arguments.num_runs, "How often to run");
  verb->add_flag("--profile", arguments.profile, "Print the time of each operator");
  verb->add_option("--trace", arguments.trace, "Write a Chrome trace there");
  return verb;
}

CLI::App* add_inspect_verb(CLI::App& app, qx::apps::InspectArguments& arguments) {
  CLI::App* verb = app.add_subcommand("inspect", "Show what a .qxm file holds, and check it");
  verb->add_option("model", arguments.model, "The .qxm file")->required();
  verb->add_flag("--json", arguments.json, "Print JSON");
  return verb;
}

// What `run` does with a model that reads text.
struct TextOptions {
  qx::apps::GenerateArguments generate;
  qx::apps::EmbedArguments embed;
  const CLI::Option* prompt = nullptr;
  const CLI::Option* prompt_tokens = nullptr;
  const CLI::Option* texts = nullptr;
};

void add_text_options(CLI::App& verb, TextOptions& options) {
  const std::string group = "Text";
  qx::apps::GenerateArguments& generate = options.generate;
  options.prompt = verb.add_option("--prompt", generate.prompt, "Print what the model says after it")->group(group);
  options.prompt_tokens =
      verb.add_option("--prompt-tokens", generate.prompt_tokens, "1,2,3: a prompt without a tokenizer")->group(group);
  verb.add_option("--max-tokens", generate.max_tokens, "Tokens to generate at most (128)")->group(group);
  verb.add_option("--temperature", generate.temperature, "0 takes the most likely token (0)")->group(group);
  verb.add_option("--top-k", generate.top_k, "Draw from that many most likely tokens; 0: all (0)")->group(group);
  verb.add_option("--top-p", generate.top_p, "Draw from the fewest that are as likely together (1)")->group(group);
  verb.add_option("--seed", generate.seed, "The same seed draws the same tokens (0)")->group(group);
  verb.add_option("--timeout", generate.timeout_s, "Seconds after which to give up; 0: never (0)")->group(group);
  verb.add_flag("--json", generate.json, "Print tokens, text, times and mapped files as JSON at the end")->group(group);
  options.texts = verb.add_option("--text", options.embed.texts, "Print the embedding of each as JSON")
                      ->group(group)
                      ->allow_extra_args(false);
}

int finish(const std::string& verb, const qx::Status& status) {
  // A disk that is full or a closed pipe shows when the last characters leave.
  if (status.ok() && std::cout.flush()) return 0;
  std::cerr << "qx " << verb << ": " << (status.ok() ? "standard output cannot be written" : status.message()) << "\n";
  return kFailed;
}

int run_model(const qx::apps::RunArguments& arguments, TextOptions& text) {
  text.generate.model = text.embed.model = arguments.model;
  text.generate.num_threads = text.embed.num_threads = arguments.num_threads;
  if (text.prompt->count() + text.prompt_tokens->count() > 0) {
    return finish("run", qx::apps::generate_text(text.generate, std::cout, std::cerr));
  }
  if (text.texts->count() > 0) return finish("run", qx::apps::embed_texts(text.embed, std::cout));
  return finish("run", qx::apps::run_model(arguments, std::cout));
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
  CLI::App* doctor = app.add_subcommand("doctor", "Show what this machine offers and which limits are too small");
  qx::apps::DoctorCommArguments comm_arguments;
  const CLI::App* comm = add_doctor_comm_verb(*doctor, comm_arguments);
  CLI::App* plan = app.add_subcommand("plan", "Plan a job before it is started");
  plan->require_subcommand(1);
  qx::apps::PlanCommArguments plan_arguments;
  const CLI::App* plan_comm = add_plan_comm_verb(*plan, plan_arguments);
  qx::apps::RunArguments run_arguments;
  CLI::App* run = add_run_verb(app, run_arguments);
  TextOptions text_options;
  add_text_options(*run, text_options);
  qx::apps::InspectArguments inspect_arguments;
  const CLI::App* inspect = add_inspect_verb(app, inspect_arguments);
  const CLI::App* convert = add_python_verb(app, "convert", "Convert a PyTorch model into a .qxm file (needs Python)");
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
  if (comm->parsed()) return finish("doctor comm", qx::apps::print_doctor_comm(comm_arguments, std::cout));
  if (plan_comm->parsed()) return finish("plan comm", qx::apps::plan_comm(plan_arguments, std::cout));
  if (doctor->parsed()) {
    qx::apps::print_doctor(std::cout);
    return finish("doctor", qx::ok_status());
  }
  const char* verb = inspect->parsed() ? "inspect" : "run";
  try {
    if (inspect->parsed()) return finish(verb, qx::apps::inspect_model(inspect_arguments, std::cout));
    if (run->parsed()) return run_model(run_arguments, text_options);
  } catch (const std::bad_alloc&) {
    return finish(verb, qx::resource_exhausted("the system has no memory left for what the model needs"));
  }
  if (convert->parsed()) return finish("convert", qx::apps::run_python_verb("convert", convert->remaining()));
  return finish("bench", qx::apps::run_python_verb(bench->get_name(), bench->remaining()));
}
