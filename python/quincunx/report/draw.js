// Draws every chart of the page from the JSON beside it, and looks whether every picture can be shown. What fails says
// so and leaves the others alone.
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
  for (const image of document.querySelectorAll("img[data-picture]")) {
    try {
      await image.decode();
      image.dataset.drawnWidth = image.naturalWidth;
    } catch (error) {
      window.__report.note(`picture ${image.dataset.picture}: ${error}`);
    }
  }
  document.documentElement.dataset.drawn = JSON.stringify(window.__report.drawn);
})();
