// First script of the page: counts what goes wrong in all later ones, where a test can read it from the document.
window.__report = { errors: [], drawn: [] };
(function () {
  const publish = () => {
    document.documentElement.dataset.scriptErrors = JSON.stringify(window.__report.errors);
  };
  const note = (message) => {
    window.__report.errors.push(String(message));
    publish();
  };
  window.__report.note = note;
  window.addEventListener("error", (event) => note(event.message || "a resource failed to load"), true);
  window.addEventListener("unhandledrejection", (event) => note(event.reason));
  document.addEventListener("securitypolicyviolation", (event) => note("blocked: " + event.blockedURI));
  publish();
})();
