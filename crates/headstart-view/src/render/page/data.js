// The data: columns are decoded when they are first needed, or after the first frame, and rows are grouped
// by a column's value when a view first shows some of them only.
const $ = (id) => document.getElementById(id);
const picture = JSON.parse($("data").textContent);

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

function unpacked(bytes, bits, out) {
  const most = 2 ** bits - 1;
  for (let row = 0, bit = 0; row < out.length; row++, bit += bits) {
    const at = bit >> 3;
    const four = bytes[at] | bytes[at + 1] << 8 | bytes[at + 2] << 16 | bytes[at + 3] << 24;
    out[row] = four >>> (bit & 7) & most;
  }
}

function readVarints(bytes, out, signed) {
  let at = 0;
  let last = 0;
  for (let row = 0; row < out.length; row++) {
    let byte = bytes[at++];
    let value = byte & 127;
    for (let times = 128; byte > 127; times *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * times;
    }
    if (signed) value = last += value % 2 ? -(value + 1) / 2 : value / 2;
    out[row] = value;
  }
}

// The values of a column, not scaled.
function valuesOf(frame, number) {
  const of = picture.frames[frame];
  const column = of.columns[number];
  if (!column.values) {
    const bytes = bytesOf(column.data);
    column.values = column.bits <= 32 ? new Uint32Array(of.rows) : new Float64Array(of.rows);
    if (column.form === "bits") unpacked(bytes, column.bits, column.values);
    else readVarints(bytes, column.values, column.form === "delta");
    column.data = "";
  }
  return column.values;
}

// The numbers of the rows with a value in a column, in their order.
function rowsWith(frame, number, value) {
  const column = picture.frames[frame].columns[number];
  const values = valuesOf(frame, number);
  if (!column.groups) {
    let most = 0;
    for (const one of values) if (one > most) most = one;
    const begins = new Uint32Array(most + 2);
    for (const one of values) begins[one + 1]++;
    for (let i = 1; i < begins.length; i++) begins[i] += begins[i - 1];
    const next = begins.slice();
    const rows = new Uint32Array(values.length);
    for (let row = 0; row < values.length; row++) rows[next[values[row]]++] = row;
    column.groups = { begins, rows };
  }
  const { begins, rows } = column.groups;
  return value + 1 < begins.length ? rows.subarray(begins[value], begins[value + 1]) : rows.subarray(0, 0);
}

// What a panel draws: its rows (null: all), and the columns that it needs.
function selection(marks) {
  const frame = marks.frame;
  const column = (number) => (number === null ? null : valuesOf(frame, number));
  const scale = (number) => (number === null ? 1 : picture.frames[frame].columns[number].scale);
  const rows = marks.only ? rowsWith(frame, marks.only[0], marks.only[1]) : null;
  return {
    frame, rows, count: rows ? rows.length : picture.frames[frame].rows,
    x: column(marks.x), xScale: scale(marks.x),
    length: column(marks.length), lengthScale: scale(marks.length),
    y: column(marks.y), yScale: scale(marks.y),
    kind: column(marks.kind),
  };
}

// The kinds of what a panel draws.
function kindsOf(marks) {
  const { rows, count, kind } = selection(marks);
  const there = picture.kinds.map(() => false);
  for (let i = 0; i < count; i++) there[kind[rows ? rows[i] : i]] = true;
  return [...there.keys()].filter((number) => there[number]);
}
