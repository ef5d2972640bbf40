#include "quincunx/lite/quincunx_lite.h"

#include <string>
#include <vector>

#include "quincunx/base/c_edge.h"
#include "quincunx/lite/session.h"

struct qx_session {
  qx::lite::Session session;
};

namespace {

using qx::check_pointer;
using qx::Status;
using qx::TensorView;

qx::Result<const qx::lite::MethodInfo*> find_method(const qx_session* session, const char* method) {
  QX_RETURN_IF_ERROR(check_pointer("session", session));
  QX_RETURN_IF_ERROR(check_pointer("method", method));
  return session->session.method(method);
}

Status name_of(const std::vector<qx::lite::TensorSpec>& specs, int64_t index, const char** name) {
  QX_RETURN_IF_ERROR(check_pointer("name", name));
  if (index < 0 || index >= static_cast<int64_t>(specs.size())) {
    return qx::invalid_argument("index: expected less than " + std::to_string(specs.size()) + ", got " +
                                std::to_string(index));
  }
  *name = specs[static_cast<size_t>(index)].name.c_str();
  return qx::ok_status();
}

qx::Result<std::vector<TensorView>> views_of(const char* name, const DLTensor* tensors, int64_t count) {
  if (count < 0) return qx::invalid_argument(std::string(name) + ": expected a count of 0 and more");
  if (count > 0) QX_RETURN_IF_ERROR(check_pointer(name, tensors));
  std::vector<TensorView> views;
  for (int64_t i = 0; i < count; ++i) {
    QX_ASSIGN_OR_RETURN(const TensorView view, TensorView::from_dlpack(tensors[i]));
    views.push_back(view);
  }
  return views;
}

Status load(const char* path, int num_threads, qx_session** session) {
  QX_RETURN_IF_ERROR(check_pointer("path", path));
  QX_RETURN_IF_ERROR(check_pointer("session", session));
  QX_ASSIGN_OR_RETURN(qx::lite::Session loaded, qx::lite::Session::load(path, {.num_threads = num_threads}));
  *session = new qx_session{std::move(loaded)};
  return qx::ok_status();
}

Status run(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs, const DLTensor* outputs,
           int64_t num_outputs) {
  QX_ASSIGN_OR_RETURN(const auto* info, find_method(session, method));
  QX_ASSIGN_OR_RETURN(const std::vector<TensorView> given, views_of("inputs", inputs, num_inputs));
  QX_ASSIGN_OR_RETURN(const std::vector<TensorView> results, views_of("outputs", outputs, num_outputs));
  if (results.size() != info->outputs.size()) {
    return qx::invalid_argument("outputs: expected " + std::to_string(info->outputs.size()) + ", got " +
                                std::to_string(results.size()));
  }
  qx::lite::RunOptions options;
  options.outputs = results;
  return session->session.run(method, given, options).status();
}

Status output_shape(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs, int64_t output,
                    int64_t* shape, int* num_dims) {
  QX_RETURN_IF_ERROR(find_method(session, method).status());
  QX_RETURN_IF_ERROR(check_pointer("shape", shape));
  QX_RETURN_IF_ERROR(check_pointer("num_dims", num_dims));
  if (num_inputs > 0) QX_RETURN_IF_ERROR(check_pointer("inputs", inputs));
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t i = 0; i < num_inputs; ++i) {
    if (inputs[i].ndim < 0 || (inputs[i].ndim > 0 && inputs[i].shape == nullptr)) {
      return qx::invalid_argument("inputs: number " + std::to_string(i) + " has no shape");
    }
    shapes.emplace_back(inputs[i].shape, inputs[i].shape + inputs[i].ndim);
  }
  QX_ASSIGN_OR_RETURN(const auto results, session->session.output_shapes(method, shapes));
  if (output < 0 || output >= static_cast<int64_t>(results.size())) {
    return qx::invalid_argument("output: expected less than " + std::to_string(results.size()) + ", got " +
                                std::to_string(output));
  }
  const std::vector<int64_t>& result = results[static_cast<size_t>(output)];
  std::copy(result.begin(), result.end(), shape);
  *num_dims = static_cast<int>(result.size());
  return qx::ok_status();
}

Status count_of(const qx_session* session, const char* method, bool inputs, int64_t* count) {
  QX_ASSIGN_OR_RETURN(const auto* info, find_method(session, method));
  QX_RETURN_IF_ERROR(check_pointer("count", count));
  *count = static_cast<int64_t>(inputs ? info->inputs.size() : info->outputs.size());
  return qx::ok_status();
}

Status tensor_name(const qx_session* session, const char* method, bool input, int64_t index, const char** name) {
  QX_ASSIGN_OR_RETURN(const auto* info, find_method(session, method));
  return name_of(input ? info->inputs : info->outputs, index, name);
}

Status method_name(const qx_session* session, int64_t method, const char** name) {
  QX_RETURN_IF_ERROR(check_pointer("session", session));
  QX_RETURN_IF_ERROR(check_pointer("name", name));
  const auto& methods = session->session.methods();
  if (method < 0 || method >= static_cast<int64_t>(methods.size())) {
    return qx::invalid_argument("method: expected less than " + std::to_string(methods.size()) + ", got " +
                                std::to_string(method));
  }
  *name = methods[static_cast<size_t>(method)].name.c_str();
  return qx::ok_status();
}

}  // namespace

extern "C" {

qx_status qx_session_load(const char* path, int num_threads, qx_session** session) {
  return to_c(load(path, num_threads, session));
}

void qx_session_free(qx_session* session) { delete session; }

int64_t qx_session_num_methods(const qx_session* session) {
  return session == nullptr ? 0 : static_cast<int64_t>(session->session.methods().size());
}

qx_status qx_session_method_name(const qx_session* session, int64_t method, const char** name) {
  return to_c(method_name(session, method, name));
}

qx_status qx_session_num_inputs(const qx_session* session, const char* method, int64_t* count) {
  return to_c(count_of(session, method, true, count));
}

qx_status qx_session_num_outputs(const qx_session* session, const char* method, int64_t* count) {
  return to_c(count_of(session, method, false, count));
}

qx_status qx_session_input_name(const qx_session* session, const char* method, int64_t input, const char** name) {
  return to_c(tensor_name(session, method, true, input, name));
}

qx_status qx_session_output_name(const qx_session* session, const char* method, int64_t output, const char** name) {
  return to_c(tensor_name(session, method, false, output, name));
}

qx_status qx_session_output_shape(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs,
                                  int64_t output, int64_t* shape, int* num_dims) {
  return to_c(output_shape(session, method, inputs, num_inputs, output, shape, num_dims));
}

qx_status qx_session_run(qx_session* session, const char* method, const DLTensor* inputs, int64_t num_inputs,
                         const DLTensor* outputs, int64_t num_outputs) {
  return to_c(run(session, method, inputs, num_inputs, outputs, num_outputs));
}

qx_status qx_session_reset_states(qx_session* session) {
  const Status status = check_pointer("session", session);
  if (status.ok()) session->session.reset_states();
  return to_c(status);
}

}  // extern "C"
