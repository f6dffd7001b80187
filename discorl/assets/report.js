// Draws the page's charts, in the reader's colours, and keeps a served page up to date.
"use strict";

// Buttons are named, because plotly's own choice has one that sends the chart away.
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover",
                 modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const line = style.getPropertyValue("--line").trim();
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  return {
    ...layout,
    uirevision: "kept",
    autosize: true,
    showlegend: false,
    margin: { l: 60, r: 12, t: 8, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12,
            color: style.getPropertyValue("--front").trim() },
    hoverlabel: { bgcolor: style.getPropertyValue("--box").trim(), bordercolor: line,
                  font: { color: style.getPropertyValue("--front").trim() }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: line,
               activecolor: style.getPropertyValue("--accent").trim() },
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

function hiddenGroups(figure) {
  const keyed = figure.closest(".keyed");
  if (!keyed) return new Set();
  const off = keyed.querySelectorAll(':scope > .key button[aria-pressed="false"]');
  return new Set([...off].map((button) => button.dataset.group));
}

function draw(figure) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const hidden = hiddenGroups(figure);
  for (const trace of chart.data) trace.visible = !hidden.has(trace.legendgroup);
  const plot = figure.querySelector(".plot");
  if (chart.layout.height) plot.style.height = chart.layout.height + "px";
  return Plotly.react(plot, chart.data, themed(chart.layout), CONFIG);
}

function drawAll() {
  const figures = [...document.querySelectorAll("figure.chart")];
  return Promise.all(figures.map(draw)).then(() => {
    document.documentElement.dataset.drawn = String(figures.length);
  });
}

function tellTimes() {
  for (const time of document.querySelectorAll("time")) {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dateTime)) / 1000));
    const [count, unit] = seconds < 120 ? [seconds, "s"] : seconds < 7200
      ? [Math.round(seconds / 60), "min"] : seconds < 172800
      ? [Math.round(seconds / 3600), "h"] : [Math.round(seconds / 86400), "days"];
    time.textContent = `${count} ${unit} ago`;
  }
}

// Replaces what has changed; charts keep their zoom and what is hidden.
function update(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const shape = (page) => [...page.querySelectorAll(".words, figure.chart")]
    .map((part) => part.id || "words").join();
  if (shape(fresh) !== shape(document)) {
    location.reload();
    return;
  }
  const parts = document.querySelectorAll(".words"), news = fresh.querySelectorAll(".words");
  parts.forEach((part, place) => {
    if (part.innerHTML !== news[place].innerHTML) part.innerHTML = news[place].innerHTML;
  });
  for (const figure of document.querySelectorAll("figure.chart")) {
    const script = figure.querySelector("script");
    const data = fresh.getElementById(figure.id).querySelector("script").textContent;
    if (script.textContent !== data) {
      script.textContent = data;
      draw(figure);
    }
  }
  tellTimes();
}

function keepUpToDate(seconds) {
  let known = null;
  const status = document.querySelector("#live");
  setInterval(async () => {
    try {
      const answer = await fetch(location.href, { cache: "no-cache" });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (text !== known) update(text);
      known = text;
      status.textContent = `Looks for news every ${seconds} s.`;
    } catch {
      status.textContent = "The server does not answer: this page is as it was.";
    }
    tellTimes();
  }, 1000 * seconds);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".key button");
  if (!button) return;
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
  const keyed = button.closest(".keyed");
  const figures = keyed.matches("figure") ? [keyed] : keyed.querySelectorAll("figure.chart:not(.keyed)");
  figures.forEach(draw);
});
dark.addEventListener("change", drawAll);
tellTimes();
drawAll();
if (document.body.dataset.every) keepUpToDate(Number(document.body.dataset.every));
