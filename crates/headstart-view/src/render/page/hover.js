// What the pointer is over, in words. Nothing is counted from 0 on, and what has no length needs no words.
const REACH = 12;

function wordsOf(frame, row, panel) {
  const lines = [];
  const value = panel.y.value && panel.marks ? valuesOf(frame, panel.marks.y)[row] * picture.frames[frame].columns[panel.marks.y].scale : null;
  const band = value === null ? null : panel.bands.find((band) => band.kind === undefined && value >= band.from && value < band.to);
  const kind = picture.kinds[valuesOf(frame, panel.marks.kind)[row]];
  lines.push(kind.name + (band ? `, in ${band.name}` : ""));
  picture.frames[frame].columns.forEach((column, number) => {
    if (column.unit === "kind") return;
    const raw = valuesOf(frame, number)[row];
    if (column.unit === "label") lines.push(`${column.title}: ${column.labels[raw]}`);
    else if (raw || column.unit === "bytes" || column.unit === "ns" && number === 0) {
      const exact = column.unit === "bytes" ? ` (0x${(raw * column.scale).toString(16)})` : "";
      lines.push(`${column.title} ${amount(column.unit, raw * column.scale)}${exact}`);
    }
  });
  return lines.join("\n");
}

// The panel at a point of the canvas, if any.
function panelAt(y) {
  return state.drawn.findIndex((one) => y >= one.place.top - TITLE && y <= one.place.bottom);
}

// The mark that is nearest to a point.
function markAt(one, x, y) {
  const { marks } = one;
  let best = -1;
  let least = REACH * REACH + 1;
  for (let i = 0; i < marks.row.length; i++) {
    const dy = y - marks.y[i];
    if (dy > REACH || dy < -REACH) continue;
    const from = marks.x[i];
    const dx = x < from ? from - x : x > from + marks.width[i] ? x - from - marks.width[i] : 0;
    const distance = dx * dx + dy * dy;
    if (distance <= least) {
      least = distance;
      best = i;
    }
  }
  return best;
}

function flowAt(one, x) {
  const { flow } = one.panel;
  const at = one.x.value(x);
  const interval = Math.floor((at - flow.from) / flow.width);
  const unit = one.panel.y.value.unit;
  const lines = flow.series.filter((series) => interval >= 0 && interval < series.values.length)
    .map((series) => `${picture.kinds[series.kind].name} ${amount(unit, series.values[interval])}`);
  return lines.length ? [`at ${amount(one.x.unit, at)}`, ...lines].join("\n") : "";
}

function at(x, y) {
  const one = state.drawn[panelAt(y)];
  if (!one) return null;
  const lanes = lanesOf(one.panel);
  if (x < state.gutter) {
    const lane = lanes && lanes[Math.floor(one.y.value(y))];
    return lane ? { words: lane } : null;
  }
  if (one.marks) {
    const found = markAt(one, x, y);
    if (found >= 0) {
      const { marks } = one;
      const high = Math.max(...marks.heights, 6) + 4;
      const ring = [marks.x[found] - 4, marks.y[found] - high / 2, Math.max(marks.width[found], 2) + 8, high];
      return { words: wordsOf(marks.frame, marks.row[found], one.panel), ring };
    }
  }
  const value = one.x.value(x);
  const span = one.panel.spans.find((span) => value >= span.from && value <= span.to);
  const words = [one.panel.flow ? flowAt(one, x) : "", span ? span.name : ""].filter(Boolean);
  if (!words.length && lanes) words.push(lanes[Math.floor(one.y.value(y))] || "");
  if (!words.length) {
    const level = one.y.value(y);
    const band = one.panel.bands.find((band) => level >= band.from && level < band.to);
    if (band && band.name) words.push(band.name);
  }
  return words.join("") ? { words: words.join("\n") } : null;
}

function show(found, x, y) {
  const tip = $("tip");
  const ring = $("ring");
  tip.hidden = !found;
  ring.hidden = !found || !found.ring;
  if (!found) return;
  tip.textContent = found.words;
  const stage = $("stage");
  const left = x + 16 + tip.offsetWidth > stage.clientWidth ? x - 16 - tip.offsetWidth : x + 16;
  const top = Math.min(y + 14, stage.clientHeight - tip.offsetHeight - 2);
  tip.style.transform = `translate(${Math.max(left, 0)}px,${Math.max(top, 0)}px)`;
  if (found.ring) {
    const [x, y, width, height] = found.ring;
    ring.style.transform = `translate(${x}px,${y}px)`;
    ring.style.width = width + "px";
    ring.style.height = height + "px";
  }
}
