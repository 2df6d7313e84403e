// Draws a subject on the canvas. Where many marks fall on one point, the most important is drawn: that
// of the last kind, then the longest.
const TITLE = 20;
const AXIS = 40;
const LANE = 15;
const canvas = $("canvas");
const context = canvas.getContext("2d");
let colours = {};
let patterns = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["blue", "sky", "green", "red", "pink", "amber", "grey", "ground", "ink", "muted", "grid", "shade"];
  colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  patterns = {};
}

// Stripes, so that a kind is known without its colour.
function stripes(colour) {
  if (!patterns[colour]) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const on = tile.getContext("2d");
    on.fillStyle = colours[colour];
    on.fillRect(0, 0, 6, 6);
    on.strokeStyle = colours.ground;
    on.lineWidth = 1.4;
    on.beginPath();
    for (const shift of [-6, 0, 6]) {
      on.moveTo(shift - 1, 7);
      on.lineTo(shift + 7, -1);
    }
    on.stroke();
    patterns[colour] = context.createPattern(tile, "repeat");
  }
  return patterns[colour];
}

// A mark from a point on. `small` is for many: only its colour and size are seen.
function drawMark(on, kind, x, y, width, heights, small) {
  const colour = colours[kind.colour];
  const bar = (height, least) => [x, y - height / 2, Math.max(width, least), height];
  on.fillStyle = on.strokeStyle = colour;
  on.lineWidth = 1;
  switch (kind.mark) {
    case "plain":
      on.fillRect(...bar(heights[0], 1.5));
      break;
    case "hatched":
      if (width >= 5 && heights[1] >= 5) {
        on.fillStyle = stripes(kind.colour);
        on.fillRect(...bar(heights[1], 2));
        on.strokeRect(...bar(heights[1], 2));
      } else on.fillRect(...bar(heights[1], 2));
      break;
    case "outline":
      if (width >= 3 && heights[1] >= 4) on.strokeRect(...bar((heights[0] + heights[1]) / 2, 2));
      else on.fillRect(...bar((heights[0] + heights[1]) / 2, 1));
      break;
    default:
      if (small) on.fillRect(x - 1, y - 1.5, 2, 3);
      else {
        on.beginPath();
        if (kind.mark === "dot") on.arc(x, y, 3.4, 0, 7);
        else {
          const up = kind.mark === "up" ? 1 : -1;
          on.moveTo(x, y - 4 * up);
          on.lineTo(x + 3.8, y + 3.4 * up);
          on.lineTo(x - 3.8, y + 3.4 * up);
        }
        on.fill();
      }
  }
}

// Room for the names of lanes at the left, and for those of bands at the right.
function margins(panels) {
  state.gutter = panels.some((panel) => panel.y.lanes) ? 220 : 96;
  state.margin = panels.some((panel) => panel.bands.some((band) => band.name)) ? 150 : 28;
}

function lanesOf(panel) {
  return panel.y.lanes && picture.frames[panel.y.lanes.frame].columns[panel.y.lanes.column].labels;
}

// The rooms of panels in this height, from top to bottom.
function layOut(panels, height) {
  const wants = panels.map((panel) => {
    const lanes = lanesOf(panel);
    if (lanes) return { least: Math.min(lanes.length * LANE, 60) + 8, share: Math.min(lanes.length, 40), most: lanes.length * 24 };
    return panel.marks ? { least: 160, share: 40, most: Infinity } : { least: 80, share: 12, most: 220 };
  });
  const least = wants.reduce((sum, want) => sum + want.least + TITLE, AXIS);
  let room = Math.max(height - least, 0);
  let shares = wants.reduce((sum, want) => sum + want.share, 0);
  let top = 0;
  // Panels without lanes have no share.
  const part = ({ most, share }) => most / Math.max(share, 1);
  const order = wants.map((_, i) => i).sort((a, b) => part(wants[a]) - part(wants[b]));
  for (const i of order) {
    const want = wants[i];
    want.height = Math.min(want.least + (want.share && room * want.share / shares), Math.max(want.most, want.least));
    room -= want.height - want.least;
    shares -= want.share;
  }
  return wants.map(({ height }) => {
    const place = { top: top + TITLE, bottom: top + TITLE + height };
    top = place.bottom;
    return place;
  });
}

function barHeights(panel, place, scale) {
  if (!panel.y.lanes) return [3, 7];
  const lane = Math.abs(scale.each);
  return [Math.min(Math.max(lane * 0.5, 1.2), 9), Math.min(Math.max(lane * 0.8, 2), 14)];
}

// So few rows are all drawn, also where one hides another.
const FEW = 3000;

// Finds what to draw of a panel: for each point of the plot the most important row.
function bin(chosen, x, y, place, lanes) {
  const width = Math.ceil(x.end) - Math.floor(x.start) + 1;
  const height = Math.ceil((place.bottom - place.top) / 2) + 1;
  const cells = new Int32Array(width * height).fill(-1);
  const used = [];
  const all = [];
  const few = chosen.count <= FEW;
  const left = x.start;
  const half = lanes ? 0.5 : 0;
  const rowOf = (i) => (chosen.rows ? chosen.rows[i] : i);
  let inView = 0;
  for (let i = 0; i < chosen.count; i++) {
    const row = rowOf(i);
    const at = chosen.x ? chosen.x[row] * chosen.xScale : i;
    const long = chosen.length ? chosen.length[row] * chosen.lengthScale : 0;
    if (at > x.high || at + long < x.low) continue;
    const up = chosen.y[row] * chosen.yScale + half;
    if (up < y.low || up > y.high) continue;
    inView++;
    const from = at <= x.low ? left : x.log ? x.pixel(at) : left + (at - x.from) * x.each;
    const level = y.log ? y.pixel(up) : y.start + (up - y.from) * y.each;
    const cell = ((level - place.top) >> 1) * width + ((from - left) | 0);
    if (few) {
      all.push(i);
      continue;
    }
    const other = cells[cell];
    if (other < 0) used.push(cell);
    else {
      const before = rowOf(other);
      const more = chosen.kind[row] - chosen.kind[before];
      if (more < 0 || more === 0 && (!chosen.length || chosen.length[row] <= chosen.length[before])) continue;
    }
    cells[cell] = i;
  }
  const byKind = picture.kinds.map(() => []);
  for (const cell of used) all.push(cells[cell]);
  for (const i of all) byKind[chosen.kind[rowOf(i)]].push(i);
  const drawn = { row: new Uint32Array(all.length), x: new Float32Array(all.length), y: new Float32Array(all.length), width: new Float32Array(all.length), inView };
  let next = 0;
  for (const i of byKind.flat()) {
    const row = rowOf(i);
    const at = chosen.x ? chosen.x[row] * chosen.xScale : i;
    const long = chosen.length ? chosen.length[row] * chosen.lengthScale : 0;
    const from = Math.max(x.pixel(Math.max(at, x.low)), left);
    drawn.row[next] = row;
    drawn.x[next] = from;
    drawn.y[next] = y.pixel(chosen.y[row] * chosen.yScale + half);
    drawn.width[next] = long ? Math.min(x.pixel(Math.min(at + long, x.high)), x.end) - from : 0;
    next++;
  }
  return drawn;
}

function drawMarks(panel, place, x, y) {
  const chosen = selection(panel.marks);
  const drawn = bin(chosen, x, y, place, Boolean(panel.y.lanes));
  const heights = barHeights(panel, place, y);
  const small = drawn.row.length > 12000;
  for (let i = 0; i < drawn.row.length; i++) {
    drawMark(context, picture.kinds[chosen.kind[drawn.row[i]]], drawn.x[i], drawn.y[i], drawn.width[i], heights, small);
  }
  return { ...drawn, frame: chosen.frame, heights };
}

function drawFlow(flow, place, x, y) {
  const count = Math.max(0, ...flow.series.map((series) => series.values.length));
  const at = (interval) => x.pixel(flow.from + flow.width * interval);
  const first = Math.max(0, Math.floor((x.low - flow.from) / flow.width));
  const last = Math.min(count, Math.ceil((x.high - flow.from) / flow.width));
  const joined = Math.max(1, Math.ceil((last - first) * 1.2 / (x.end - x.start)));
  const below = new Float64Array(Math.ceil((last - first) / joined) || 0);
  for (const series of flow.series) {
    const kind = picture.kinds[series.kind];
    context.fillStyle = flow.stacked && kind.mark === "hatched" ? stripes(kind.colour) : colours[kind.colour];
    context.strokeStyle = colours[kind.colour];
    context.lineWidth = 2;
    context.setLineDash(kind.mark === "outline" ? [6, 4] : []);
    context.beginPath();
    for (let i = first, part = 0; i < last; i += joined, part++) {
      const end = Math.min(i + joined, last, series.values.length);
      const left = Math.max(at(i), x.start);
      const right = Math.min(Math.max(at(end), left + 1), x.end);
      if (!flow.stacked) {
        const value = y.pixel(series.values[end - 1] ?? 0);
        if (part) context.lineTo(left, value);
        else context.moveTo(left, value);
        context.lineTo(right, value);
        continue;
      }
      let sum = 0;
      for (let j = i; j < end; j++) sum += series.values[j];
      if (sum <= 0) continue;
      const from = y.pixel(below[part]);
      below[part] += sum / (end - i);
      const to = Math.min(y.pixel(below[part]), from - 1);
      // On whole pixels, so that there are no lines between intervals.
      const edge = Math.round(left);
      context.fillRect(edge, to, Math.max(Math.round(right) - edge, 1), from - to);
    }
    if (!flow.stacked) context.stroke();
    context.setLineDash([]);
  }
}

function label(words, x, y, colour = "muted", align = "left") {
  context.fillStyle = colours[colour];
  context.textAlign = align;
  context.fillText(words, x, y);
}

// The characters that have room: the last ones of a path, the first ones of other names.
function fitting(words, width) {
  if (context.measureText(words).width <= width) return words;
  const cut = (count) => (words.startsWith("/") ? "…" + words.slice(words.length - count) : words.slice(0, count) + "…");
  let [few, many] = [0, words.length];
  while (few < many) {
    const middle = (few + many + 1) >> 1;
    if (context.measureText(cut(middle)).width <= width) few = middle;
    else many = middle - 1;
  }
  return cut(few);
}

function drawBands(panel, place, x, y) {
  let last = Infinity;
  panel.bands.forEach((band, number) => {
    const bottom = Math.min(y.pixel(band.from), place.bottom);
    const top = Math.max(y.pixel(band.to), place.top);
    if (bottom <= place.top || top >= place.bottom) return;
    const kind = band.kind === undefined ? null : picture.kinds[band.kind];
    if (kind || number % 2 === 0) {
      context.globalAlpha = kind ? 0.15 : 0.1;
      context.fillStyle = colours[kind ? kind.colour : "muted"];
      context.fillRect(x.start, top, x.end - x.start, Math.max(bottom - top, 0.5));
      context.globalAlpha = 1;
    }
    const middle = (top + bottom) / 2 + 4;
    if (last - middle >= 12 && bottom - top >= 3) {
      label(fitting(band.name, state.margin - 12), x.end + 6, middle);
      last = middle;
    }
  });
}

function drawGround(panel, place, x, y) {
  context.fillStyle = colours.shade;
  context.fillRect(x.start, place.top, x.end - x.start, place.bottom - place.top);
  context.fillStyle = colours.grid;
  for (const tick of ticksOf(x, (x.end - x.start) / 110)) context.fillRect(Math.round(x.pixel(tick.value)), place.top, 1, place.bottom - place.top);
  const lanes = lanesOf(panel);
  if (!lanes) {
    for (const tick of ticksOf(y, (place.bottom - place.top) / 36)) {
      const level = Math.round(y.pixel(tick.value));
      context.fillStyle = colours.grid;
      context.fillRect(x.start, level, x.end - x.start, 1);
      label(tick.label, x.start - 8, level + 4, "muted", "right");
    }
  } else drawNames(lanes, place, x, y);
  for (const span of panel.spans) {
    if (span.to < x.low || span.from > x.high) continue;
    const left = Math.max(x.pixel(span.from), x.start);
    const right = Math.min(x.pixel(span.to), x.end);
    context.globalAlpha = 0.16;
    context.fillStyle = colours.muted;
    context.fillRect(left, place.top, Math.max(right - left, 0.5), place.bottom - place.top);
    context.globalAlpha = 1;
    if (right - left > context.measureText(span.name).width + 8) label(span.name, (left + right) / 2, place.top + 13, "muted", "center");
  }
}

function drawNames(lanes, place, x, y) {
  const each = Math.abs(y.each);
  const every = Math.max(1, Math.ceil((LANE - 2) / each));
  const first = Math.max(0, Math.floor(y.low));
  for (let lane = first; lane < Math.min(lanes.length, Math.ceil(y.high)); lane++) {
    const level = y.pixel(lane + 0.5);
    const found = state.wanted && lanes[lane].toLowerCase().includes(state.wanted);
    if (found) {
      context.globalAlpha = 0.25;
      context.fillStyle = colours.amber;
      context.fillRect(x.start, level - Math.max(each, 3) / 2, x.end - x.start, Math.max(each, 3));
      context.globalAlpha = 1;
    }
    if ((found || lane % every === 0) && level >= place.top + 4 && level <= place.bottom - 2) {
      label(fitting(lanes[lane], state.gutter - 14), x.start - 8, level + 4, found ? "ink" : "muted", "right");
    }
  }
  if (y.high - y.low < lanes.length - 1e-6) {
    const room = place.bottom - place.top;
    context.fillStyle = colours.muted;
    context.fillRect(x.end + 4, place.top + room * y.low / lanes.length, 4, Math.max(room * (y.high - y.low) / lanes.length, 6));
  }
}

// Draws all of it, and keeps what a pointer can be over.
function draw() {
  const { panels } = state.subject;
  state.drawn = [];
  state.places = [];
  $("stage").hidden = !panels.length;
  if (!panels.length) return;
  const width = canvas.clientWidth;
  const room = Math.max(400, window.innerHeight - $("stage").offsetTop - 14);
  margins(panels);
  state.places = layOut(panels, room);
  const height = state.places[state.places.length - 1].bottom + AXIS;
  const dense = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.font = '12px system-ui,"Segoe UI","DejaVu Sans",sans-serif';
  const right = Math.max(width - state.margin, state.gutter + 50);
  const x = scaleOf(state.view.x, state.x[0], state.x[1], state.gutter, right);
  state.drawn = panels.map((panel, number) => {
    const place = state.places[number];
    const [low, high] = yRange(number);
    const lanes = panel.y.lanes;
    const y = scaleOf(lanes ? { unit: "label" } : panel.y.value, low, high, lanes ? place.top : place.bottom, lanes ? place.bottom : place.top);
    label(panel.title || (panel.y.value ? panel.y.value.title : ""), state.gutter, place.top - 6, "ink");
    drawGround(panel, place, x, y);
    context.save();
    context.beginPath();
    context.rect(x.start, place.top, width - x.start, place.bottom - place.top);
    context.clip();
    drawBands(panel, place, x, y);
    context.beginPath();
    context.rect(x.start, place.top, x.end - x.start + 1, place.bottom - place.top);
    context.clip();
    if (panel.flow) drawFlow(panel.flow, place, x, y);
    const marks = panel.marks ? drawMarks(panel, place, x, y) : null;
    context.restore();
    return { place, x, y, panel, marks };
  });
  const bottom = state.places[state.places.length - 1].bottom;
  for (const tick of ticksOf(x, (x.end - x.start) / 110)) label(tick.label, x.pixel(tick.value), bottom + 16, "muted", "center");
  label(state.view.x.title, (x.start + x.end) / 2, bottom + 33, "muted", "center");
  tellCounts();
}

function tellCounts() {
  const panels = state.drawn.filter((one) => one.marks);
  const words = panels.map(({ marks, panel }) => {
    const [all, points] = [marks.inView, marks.row.length].map((n) => number(n, 0));
    const of = panels.length > 1 ? `${panel.title}: ` : "";
    return of + (all === points ? `${all} marks in view.`
      : `${all} marks in view, at ${points} points: where several fall on one, the most important shows.`);
  });
  $("counted").textContent = words.join(" ");
}
