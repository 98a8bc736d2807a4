"use strict";

// fieldsOf are a panel's series, each with what the panel says of it: name,
// values on every step of the window (null = none), unit, colour and the rest.
function fieldsOf(panel) {
  const all = [];
  const defaults = panel.fieldConfig?.defaults || {};
  only(panel.title, defaults, ["unit", "min", "max", "decimals", "thresholds", "color", "custom", "mappings", "noValue", "displayName"]);
  for (const reply of paper.answers[panel.id] || []) {
    reply.series.forEach((s, i) => {
      const field = structuredClone({...defaults, custom: defaults.custom || {}});
      field.name = reply.names[i] || field.displayName || panel.title;
      field.labels = s.labels;
      field.points = reply.step ? dense(s.points, reply.step) : s.points;
      field.step = reply.step;
      for (const o of panel.fieldConfig.overrides || []) {
        if (matches(panel, o.matcher, field, reply)) override(panel, o.properties, field);
      }
      all.push(field);
    });
  }
  all.forEach((f, i) => { f.colour = colourOf(panel, f, i); });
  return all;
}

// dense puts a null where a series has no value on a step.
function dense(points, step) {
  const at = new Map(points.map(([t, v]) => [Math.round(t / step), v]));
  const all = [];
  for (let n = Math.floor(paper.from / step); n * step <= paper.to; n++) all.push([n * step, at.has(n) ? at.get(n) : null]);
  return all;
}

function matches(panel, matcher, field, reply) {
  switch (matcher.id) {
    case "byName": return field.name === matcher.options;
    case "byRegexp": {
      const m = /^\/(.*)\/$/.exec(matcher.options);
      return new RegExp(m ? m[1] : `^${matcher.options}$`).test(field.name);
    }
    case "byFrameRefID": return reply.refId === matcher.options;
  }
  problem(panel.title, `overrides by ${matcher.id} are not drawn here`);
  return false;
}

function override(panel, properties, field) {
  for (const {id, value} of properties) {
    if (id.startsWith("custom.")) field.custom[id.slice(7)] = value;
    else if (["color", "unit", "min", "max", "decimals", "thresholds", "mappings"].includes(id)) field[id] = value;
    else if (id === "displayName") field.name = value;
    else problem(panel.title, `override of ${id} is not drawn here`);
  }
}

// colourOf is a series' colour, or null if each value has its own.
function colourOf(panel, field, i) {
  switch (field.color?.mode || (panel.type === "stat" ? "thresholds" : "palette-classic")) {
    case "palette-classic": return colour(panel.title, classic[i % classic.length]);
    case "fixed": return colour(panel.title, field.color.fixedColor || "green");
    case "thresholds": return null;
  }
  problem(panel.title, `colours by ${field.color.mode} are not drawn here`);
  return hues.text;
}

const calculations = {
  lastNotNull: ["Last *", (vs) => vs.at(-1)],
  max: ["Max", (vs) => Math.max(...vs)],
  min: ["Min", (vs) => Math.min(...vs)],
  mean: ["Mean", (vs) => vs.reduce((a, b) => a + b, 0) / vs.length],
  sum: ["Total", (vs) => vs.reduce((a, b) => a + b, 0)],
};

// calculate reduces a series to one number.
function calculate(panel, name, field) {
  if (!calculations[name]) { problem(panel.title, `calculation ${name} is not known here`); return null; }
  const values = field.points.map((p) => p[1]).filter((v) => v !== null);
  return values.length ? calculations[name][1](values) : null;
}

// legendOf lists the series below a chart.
function legendOf(panel, fields) {
  const legend = document.createElement("div");
  const o = panel.options?.legend || {};
  only(panel.title + ", legend", o, ["displayMode", "placement", "showLegend", "calcs"]);
  oneOf(panel.title, o.displayMode, ["list"]);
  oneOf(panel.title, o.placement, ["bottom"]);
  if (o.showLegend === false) return null;
  legend.className = "legend";
  for (const f of fields) {
    const item = document.createElement("span"), line = document.createElement("i");
    line.style.background = f.colour || hues.text;
    item.append(line, f.name);
    for (const c of o.calcs || []) {
      const b = document.createElement("b");
      b.textContent = `${calculations[c]?.[0] ?? c}: ${united(panel.title, f, calculate(panel, c, f) ?? 0)}`;
      item.append(b);
    }
    legend.append(item);
  }
  return legend;
}
