// Draws every chart of the page from the JSON beside it, and looks whether every picture can be shown. What fails says
// so and leaves the others alone.
function lookAtPictures() {
  for (const image of document.querySelectorAll("img[data-picture]")) {
    if (image.complete && image.naturalWidth > 0) {
      image.dataset.drawnWidth = image.naturalWidth;
    } else {
      window.__report.note(`picture ${image.dataset.picture}: the browser cannot decode it`);
    }
  }
}
// The load event comes after the last picture. A headless browser waits for it, but not for decode()'s promise.
if (document.readyState === "complete") {
  lookAtPictures();
} else {
  window.addEventListener("load", lookAtPictures);
}
(async function () {
  const options = { responsive: true, displaylogo: false, displayModeBar: false };
  for (const place of document.querySelectorAll("div[data-chart]")) {
    const name = place.dataset.chart;
    try {
      const source = document.querySelector(`script[data-chart-of="${name}"]`);
      const figure = JSON.parse(source.textContent);
      await Plotly.newPlot(place, figure.data, figure.layout, options);
      window.__report.drawn.push(name);
    } catch (error) {
      window.__report.note(`chart ${name}: ${error}`);
      place.textContent = `This chart could not be drawn: ${error}`;
    }
  }
  document.documentElement.dataset.drawn = JSON.stringify(window.__report.drawn);
})();
