"use strict";

// The grid's measures are Grafana's, in pixels.
const cell = {height: 30, gap: 8, columns: 24};
const wide = 1600 - 32;
const unit = (wide + cell.gap) / cell.columns;
const headHeight = 48;

// heightOf is what so many rows of the grid take, with the head; 0 = all.
const heightOf = (rows) => headHeight + Math.max(0, (rows || depth()) * (cell.height + cell.gap)) + cell.gap;

const depth = () => Math.max(...paper.dashboard.panels.map((p) => p.gridPos.y + p.gridPos.h));

// begin makes a chart in a panel; its legend comes after.
function begin(place) {
  const chart = document.createElement("div");
  chart.className = "chart";
  place.append(chart);
  return echarts.init(chart, null, {renderer: "canvas", devicePixelRatio: 1});
}

// nothing is what a panel without an answer shows.
function nothing(panel, place) {
  const text = document.createElement("div");
  text.className = "none";
  text.textContent = panel.fieldConfig?.defaults?.noValue || "No data";
  place.append(text);
}

const kinds = {timeseries: drawLines, "state-timeline": drawStates, heatmap: drawHeat, stat: drawStat, row: () => {}};

function drawPanel(panel) {
  const place = document.createElement("section"), title = document.createElement("h2"), g = panel.gridPos;
  place.className = panel.type;
  place.style.cssText = `left: ${g.x * unit}px; top: ${g.y * (cell.height + cell.gap)}px; width: ${g.w * unit - cell.gap}px; height: ${g.h * (cell.height + cell.gap) - cell.gap}px`;
  title.textContent = panel.title;
  if (panel.description) {
    const info = document.createElement("span");
    info.className = "info";
    info.textContent = "i";
    title.append(info);
  }
  place.append(title);
  document.querySelector("main").append(place);
  if (!kinds[panel.type]) return problem(panel.title, `panels of type ${panel.type} are not drawn here`);
  kinds[panel.type](panel, place);
}

function drawHead() {
  document.querySelector("h1").textContent = paper.dashboard.title;
  document.querySelector(".range").textContent = `${timeWithSeconds.format(paper.from)} to ${timeWithSeconds.format(paper.to)}`;
  for (const a of paper.dashboard.annotations.list.filter((a) => a.enable)) {
    const item = document.createElement("span"), dot = document.createElement("i");
    dot.style.background = colour(a.name, a.iconColor);
    item.append(dot, a.name);
    document.querySelector(".events").append(item);
  }
}

drawHead();
for (const panel of paper.dashboard.panels) {
  drawPanel(panel);
  if (panel.type === "row" && panel.collapsed) problem(panel.title, "folded rows are not drawn here");
}
document.querySelector("main").style.height = `${depth() * (cell.height + cell.gap)}px`;
document.body.classList.add("drawn");
