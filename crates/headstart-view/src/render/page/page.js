// Views, subjects, zoom, keys and search.
const state = { view: null, subject: null, x: [0, 1], ys: [], places: [], drawn: [], gutter: 0, margin: 0, wanted: "", nth: -1 };
let waits = false;

function redraw() {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => {
    waits = false;
    draw();
  });
}

function wholeX() {
  return [state.view.x.low, state.subject.x_high ?? state.view.x.high];
}

function wholeY(number) {
  const panel = state.subject.panels[number];
  const lanes = lanesOf(panel);
  return lanes ? [0, Math.max(lanes.length, 1)] : [panel.y.value.low, panel.y.value.high];
}

// The vertical range of a panel. Lanes begin with as many as have room for their names.
function yRange(number) {
  if (!state.ys[number]) {
    const [low, high] = wholeY(number);
    const panel = state.subject.panels[number];
    const room = state.places[number].bottom - state.places[number].top;
    state.ys[number] = panel.y.lanes && !panel.y.lanes.all ? [low, Math.min(high, Math.max(room / LANE, 1))] : [low, high];
  }
  return state.ys[number];
}

// A range within its bounds, of some width.
function kept([low, high], [least, most], narrowest) {
  const width = Math.min(Math.max(high - low, narrowest), most - least);
  const from = Math.min(Math.max((low + high - width) / 2, least), most - width);
  return [from, from + width];
}

function zoomed([low, high], factor, share, log) {
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const middle = from + (to - from) * share;
  const ends = [middle - (middle - from) * factor, middle + (to - middle) * factor];
  return log ? ends.map(Math.exp) : ends;
}

function zoomX(factor, share = 0.5) {
  const whole = wholeX();
  const least = state.view.x.unit === "count" ? 4 : Math.max((whole[1] - whole[0]) / 1e8, 1);
  state.x = kept(zoomed(state.x, factor, share, state.view.x.log), whole, least);
  changed();
}

function zoomY(number, factor, share = 0.5) {
  const panel = state.subject.panels[number];
  const whole = wholeY(number);
  const least = panel.y.lanes ? Math.min(3, whole[1]) : (whole[1] - whole[0]) / 1e6;
  const ends = zoomed(yRange(number), factor, share, panel.y.value && panel.y.value.log);
  state.ys[number] = kept(ends, whole, least);
  changed();
}

function moveX(share) {
  const by = (state.x[1] - state.x[0]) * share;
  state.x = kept(state.x.map((end) => end + by), wholeX(), 0);
  changed();
}

function moveY(number, share) {
  const [low, high] = yRange(number);
  const by = (high - low) * share;
  state.ys[number] = kept([low + by, high + by], wholeY(number), 0);
  changed();
}

// The panel that keys move up and down: the largest.
function mainPanel() {
  const height = (place) => place.bottom - place.top;
  return state.places.reduce((best, place, i) => (height(place) > height(state.places[best]) ? i : best), 0);
}

function changed() {
  show(null);
  redraw();
}

function showAll() {
  state.x = wholeX();
  state.ys = [];
  changed();
}

// What the kinds of a subject look like, and what they are in all.
function legend() {
  const kinds = new Map();
  for (const panel of state.subject.panels) {
    if (panel.marks) kindsOf(panel.marks).forEach((kind) => kinds.set(kind, ""));
    if (panel.flow) for (const series of panel.flow.series) kinds.set(series.kind, series.total || kinds.get(series.kind) || "");
  }
  $("legend").replaceChildren(...[...kinds].sort((a, b) => a[0] - b[0]).map(([number, total]) => {
    const kind = picture.kinds[number];
    const item = document.createElement("span");
    const sample = document.createElement("canvas");
    sample.width = 36;
    sample.height = 24;
    const on = sample.getContext("2d");
    on.scale(2, 2);
    const bar = ["plain", "hatched", "outline"].includes(kind.mark);
    drawMark(on, kind, bar ? 1 : 9, 6, bar ? 16 : 0, [5, 10], false);
    item.append(sample, kind.name + (total ? `: ${total}` : ""));
    return item;
  }));
}

function choose(view, subject) {
  state.view = picture.views[view];
  state.subject = state.view.subjects[subject] || { name: "", summary: "There is nothing to draw.", panels: [] };
  state.nth = -1;
  [...$("views").children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === view)));
  const select = $("subject");
  if (select.dataset.view !== String(view)) {
    select.dataset.view = String(view);
    select.replaceChildren(...state.view.subjects.map((one, i) => new Option(one.name, String(i))));
  }
  select.value = String(subject);
  select.hidden = state.view.subjects.length < 2;
  $("help").textContent = state.view.help;
  const words = [state.subject.name, state.subject.summary].filter(Boolean).join(": ");
  $("about").textContent = words;
  canvas.setAttribute("aria-label", `${state.view.title}. ${words}. ${state.view.help}`);
  $("live").textContent = "";
  legend();
  showAll();
}

function viewNumber() {
  return picture.views.indexOf(state.view);
}

function chooseSubject(step) {
  const count = state.view.subjects.length;
  if (count > 1) choose(viewNumber(), (state.view.subjects.indexOf(state.subject) + step + count) % count);
}

// Subjects of all views whose names have these words, then lanes of this one: a subject is more than a lane.
function named(wanted) {
  const found = [];
  const add = (name, where, go) => {
    if (name.toLowerCase().includes(wanted)) found.push({ name, where, go });
  };
  picture.views.forEach((view, v) => view.subjects.forEach((subject, s) => subject.name && add(subject.name, view.title, () => choose(v, s))));
  state.subject.panels.forEach((panel, number) => (lanesOf(panel) || []).forEach((name, lane) => add(name, "lane", () => {
    const [, high] = wholeY(number);
    state.ys[number] = kept([lane - 8, lane + 9], [0, high], Math.min(17, high));
    changed();
  })));
  return found;
}

const MOST_FOUND = 40;

function search(words) {
  const wanted = words.toLowerCase();
  state.wanted = wanted;
  const found = wanted ? named(wanted) : [];
  const items = found.slice(0, MOST_FOUND).map((one) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.textContent = `${one.where}: ${one.name}`;
    button.addEventListener("click", () => {
      $("found").hidden = true;
      one.go();
      canvas.focus({ preventScroll: true });
    });
    item.append(button);
    return item;
  });
  const rest = found.length - items.length;
  const more = document.createElement("li");
  more.textContent = rest ? `and ${number(rest, 0)} more` : found.length ? "" : "Nothing has this name.";
  $("found").hidden = !wanted;
  $("found").replaceChildren(...items, more);
  redraw();
}

// The longest mark, then the next: what a pointer would find.
function step(by) {
  const one = state.drawn.find((one) => one.marks && one.marks.row.length);
  if (!one) return;
  const { marks, panel } = one;
  const order = [...marks.row.keys()].sort((a, b) => {
    const kind = (i) => valuesOf(marks.frame, panel.marks.kind)[marks.row[i]];
    return marks.width[b] - marks.width[a] || kind(b) - kind(a) || a - b;
  });
  state.nth = (state.nth + by + order.length) % order.length;
  const i = order[state.nth];
  const words = wordsOf(marks.frame, marks.row[i], panel);
  const high = Math.max(...marks.heights, 6) + 4;
  show({ words, ring: [marks.x[i] - 4, marks.y[i] - high / 2, Math.max(marks.width[i], 2) + 8, high] }, marks.x[i], marks.y[i] + 6);
  $("live").textContent = words.replaceAll("\n", "; ");
}

function close() {
  $("found").hidden = true;
  $("search").value = "";
  search("");
  show(null);
  $("live").textContent = "";
  canvas.focus({ preventScroll: true });
}

const keys = {
  "+": () => zoomX(0.6), "=": () => zoomX(0.6), "-": () => zoomX(1 / 0.6), "−": () => zoomX(1 / 0.6),
  ArrowLeft: () => moveX(-0.15), ArrowRight: () => moveX(0.15),
  ArrowUp: (event) => upDown(event, 1), ArrowDown: (event) => upDown(event, -1),
  0: showAll, Home: showAll, "[": () => chooseSubject(-1), "]": () => chooseSubject(1),
  n: () => step(1), p: () => step(-1),
  "/": () => $("search").focus(), Escape: close,
};

function upDown(event, up) {
  const number = mainPanel();
  if (event.shiftKey) zoomY(number, up > 0 ? 0.6 : 1 / 0.6);
  else moveY(number, state.subject.panels[number].y.lanes ? -0.15 * up : 0.15 * up);
}

function listen() {
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    const [x, y] = point(event);
    const number = panelAt(y);
    const one = state.drawn[number];
    if (!one || event.ctrlKey && event.altKey) return;
    event.preventDefault();
    const by = event.deltaY || event.deltaX;
    const factor = Math.exp(Math.max(-240, Math.min(240, by)) / 300);
    if (event.shiftKey || x < state.gutter) {
      const share = (one.y.value(y) - one.y.low) / (one.y.high - one.y.low);
      zoomY(number, factor, Math.min(Math.max(share, 0), 1));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) moveX(event.deltaX / 800);
    else zoomX(factor, Math.min(Math.max((x - one.x.start) / (one.x.end - one.x.start), 0), 1));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = point(event);
    drag = { x, y, number: panelAt(y) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => (drag = null));
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event);
    if (!drag) return show(at(x, y), x, y);
    const one = state.drawn[drag.number];
    if (!one) return;
    const width = one.x.end - one.x.start;
    if (x !== drag.x) moveX((drag.x - x) / width);
    if (y !== drag.y) moveY(drag.number, (one.panel.y.lanes ? drag.y - y : y - drag.y) / (one.place.bottom - one.place.top));
    Object.assign(drag, { x, y });
  });
  canvas.addEventListener("pointerleave", () => show(null));
  canvas.addEventListener("dblclick", showAll);
  $("closer").addEventListener("click", () => zoomX(0.6));
  $("wider").addEventListener("click", () => zoomX(1 / 0.6));
  $("whole").addEventListener("click", showAll);
  $("subject").addEventListener("change", (event) => choose(viewNumber(), Number(event.target.value)));
  $("search").addEventListener("input", (event) => search(event.target.value.trim()));
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") $("found").querySelector("button")?.click();
    if (event.key === "Escape") close();
    event.stopPropagation();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
    const digit = Number(event.key);
    const key = keys[event.key] || (digit >= 1 && digit <= picture.views.length ? () => choose(digit - 1, 0) : null);
    if (!key || event.target.tagName === "BUTTON" && event.key === "Enter") return;
    event.preventDefault();
    key(event);
  });
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme:dark)").addEventListener("change", () => {
    readColours();
    legend();
    redraw();
  });
}

// One column at a time, so that the first names under the pointer do not wait for all of them.
function decode(columns) {
  const next = columns.pop();
  if (!next) return;
  valuesOf(...next);
  setTimeout(() => decode(columns));
}

function begin() {
  if (!picture.views.some((view) => view.subjects.length)) return;
  $("app").hidden = false;
  readColours();
  $("views").replaceChildren(...picture.views.map((view, i) => {
    const button = document.createElement("button");
    button.textContent = view.title;
    button.addEventListener("click", () => choose(i, 0));
    return button;
  }));
  listen();
  choose(Math.max(0, picture.views.findIndex((view) => view.subjects.length)), 0);
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.body.dataset.drawn = String(Math.round(performance.now()));
    decode(picture.frames.flatMap((of, frame) => of.columns.map((_, number) => [frame, number])));
  }));
}
begin();
