"use strict";

// hues are Grafana's named colours of its dark theme.
const hues = {
  "super-light-red": "#FFA6B0", "light-red": "#FF7383", red: "#F2495C", "semi-dark-red": "#E02F44", "dark-red": "#C4162A",
  "super-light-orange": "#FFCB7D", "light-orange": "#FFB357", orange: "#FF9830", "semi-dark-orange": "#FF780A", "dark-orange": "#FA6400",
  "super-light-yellow": "#FFF899", "light-yellow": "#FFEE52", yellow: "#FADE2A", "semi-dark-yellow": "#F2CC0C", "dark-yellow": "#E0B400",
  "super-light-green": "#C8F2C2", "light-green": "#96D98D", green: "#73BF69", "semi-dark-green": "#56A64B", "dark-green": "#37872D",
  "super-light-blue": "#C0D8FF", "light-blue": "#8AB8FF", blue: "#5794F2", "semi-dark-blue": "#3274D9", "dark-blue": "#1F60C4",
  "super-light-purple": "#DEB6F2", "light-purple": "#CA95E5", purple: "#B877D9", "semi-dark-purple": "#A352CC", "dark-purple": "#8F3BB8",
  text: "#CCCCDC", transparent: "rgba(0,0,0,0)",
};

// classic is the palette of series that nothing else colours, in order.
const classic = ["green", "semi-dark-yellow", "light-blue", "semi-dark-orange", "red", "blue", "purple", "#705DA0", "dark-green", "yellow",
  "#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477"];

function colour(where, name) {
  if (name in hues) return hues[name];
  if (/^(#|rgb)/.test(name)) return name;
  problem(where, `colour ${name} is not known here`);
  return hues.text;
}

// schemes are the heat map's, from few to many as on a dark ground.
const schemes = {
  Oranges: ["#7f2704", "#a63603", "#d94801", "#f16913", "#fd8d3c", "#fdae6b", "#fdd0a2", "#fee6ce", "#fff5eb"],
  YlOrRd: ["#800026", "#bd0026", "#e31a1c", "#fc4e2a", "#fd8d3c", "#feb24c", "#fed976", "#ffeda0", "#ffffcc"],
};

// alpha makes a colour translucent.
function alpha(c, a) {
  const m = /^#(..)(..)(..)$/.exec(c);
  return m ? `rgba(${parseInt(m[1], 16)},${parseInt(m[2], 16)},${parseInt(m[3], 16)},${a})` : c;
}

// threshold is the colour of a value by a field's thresholds.
function threshold(where, field, value) {
  const steps = field.thresholds?.steps || [{color: "green", value: null}];
  oneOf(where, field.thresholds?.mode, ["absolute"]);
  let at = steps[0];
  for (const s of steps) if (s.value === null || value >= s.value) at = s;
  return colour(where, at.color);
}
