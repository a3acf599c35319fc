#include "inspect_page/page_html.hpp"

namespace VIGIL_DETAIL {

// Names may come from clients: text reaches the document as textContent only, which the
// policy enforces (require-trusted-types-for).
const constinit std::string_view page_script = R"js(
'use strict';
const $ = (id) => document.getElementById(id);

// The token comes in the fragment, which browsers send nowhere.
const given = new URLSearchParams(location.hash.slice(1)).get('token');
if (given) {
  sessionStorage.setItem('token', given);
  history.replaceState(null, '', location.pathname);
}
const token = sessionStorage.getItem('token') || '';

const make = (tag, text, className) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
};

const duration = (ns) => {
  if (ns === undefined) return '';
  if (ns < 0) return '-' + duration(-ns);
  const units = [['ns', 1e3], ['us', 1e3], ['ms', 1e3], ['s', 60], ['min', 60], ['h', 24],
                 ['d', Infinity]];
  let value = ns;
  for (const [unit, next] of units) {
    if (value < next) return (value < 10 && unit !== 'ns' ? value.toFixed(1) : Math.floor(value)) + ' ' + unit;
    value /= next;
  }
};
const place = (site) => !site ? '' : site.line ? site.file + ':' + site.line : site.file;
const shortPlace = (site) => place(site).split('/').slice(-2).join('/');
const fiber = (f) => 'fiber ' + f.id + (f.name ? ' (' + f.name + ')' : '');
// A fiber or task with all its fields, a line for each, however many there are.
const shown = (key, value) => key.endsWith('nanoseconds') ? duration(value) : String(value);
const fields = (all, before = '') => Object.entries(all).map(([key, value]) =>
    !(value instanceof Object) ? (before + key).replaceAll('_', ' ') + ': ' + shown(key, value) :
    value.file === undefined ? fields(value, before + key + ' ') :
    (before + key).replaceAll('_', ' ') + ': ' + (value.name ? '"' + value.name + '" ' : '') +
        place(value)).join('\n');
const colour = (text) => {
  let h = 0;
  for (const c of text) h = (h * 31 + c.codePointAt(0)) % 360;
  return 'hsl(' + h + ' 65% 55%)';
};

// Words for the object of a wait, those of a dump.
const born = (made) => (made.name ? ' "' + made.name + '"' : '') +
    (made.line ? ' made at ' + shortPlace(made) : ' of ' + made.file);
const holder = (h) => !h ? '' : ', held by ' +
    (h.id ? fiber(h) + (h.has_ended ? ', which has ended' : '') : h);
const channel = (c) => (c.operation === 'send' ? 'to' : 'from') + ' the channel' + born(c.made_at) +
    (c.closed ? ' (closed)' : c.capacity ? ' (' + c.size + ' of ' + c.capacity + ' values)' : '');
const descriptor = (d) => 'of ' + (d.protocol ? 'socket ' : 'descriptor ') + d.number +
    (d.protocol ? ' (' + [d.protocol, d.local, d.peer && 'peer ' + d.peer,
                          d.listening && 'listening'].filter(Boolean).join(', ') + ')' : '');
const object = (wait) => [
  ...(wait.channels || []).map(channel),
  ...(wait.other_cases || []).map((c) => c.reason + ' ' + object(c)),
  wait.made_at ? born(wait.made_at).trim() + holder(wait.held_by) : '',
  wait.fiber ? 'of ' + fiber(wait.fiber) : '', wait.task ? 'of task ' + wait.task.id : '',
  wait.descriptor ? descriptor(wait.descriptor) : '',
  wait.context ? 'or the end of the context' + born(wait.context) : '',
].filter(Boolean).join(', ');
const wait = (g) => !g.waits_for ? '' : [g.waits_for + ' ' + object(g.oldest.waits_for || {}),
    g.other_objects ? 'and others' : ''].filter(Boolean).join(', ').trim();

// A table that is sorted by the head that was clicked last, and filtered. A column has a
// head, a value `of` a thing, by which it sorts, and how that is shown. Rows stay as long
// as their things do, so that a selection in them lasts.
let filter = '';
const tables = [];
class Table {
  constructor(id, columns, key, open) {
    Object.assign(this, {body: $(id), columns, key, open, rows: new Map(), all: []});
    this.heads = columns.map((c) => {
      const cell = make('th', undefined, c.className);
      const button = make('button', c.head);
      button.type = 'button';
      button.onclick = () => this.sortBy(c);
      cell.append(button);
      return cell;
    });
    const head = make('tr');
    head.append(...this.heads);
    this.body.parentNode.tHead.replaceChildren(head);
    tables.push(this);
  }
  // Numbers begin with the largest, and texts in the order of the alphabet.
  sortBy(c) {
    this.down = this.by === c ? !this.down : c.className === 'number';
    this.by = c;
    this.heads.forEach((cell, i) => {
      if (this.columns[i] === c) cell.ariaSort = this.down ? 'descending' : 'ascending';
      else cell.removeAttribute('aria-sort');
    });
    this.draw();
  }
  show(all) {
    this.all = all;
    this.draw();
  }
  draw() {
    const text = (c, x) => String(c.shown ? c.shown(c.of(x)) : c.of(x));
    const things = this.all.map((x) => [x, this.columns.map((c) => text(c, x))])
        .filter(([, texts]) => texts.join(' ').toLowerCase().includes(filter));
    if (this.by) {
      const sign = this.down ? -1 : 1, none = this.by.className === 'number' ? -Infinity : '';
      const value = ([x]) => this.by.of(x) ?? none;
      things.sort((a, b) => value(a) < value(b) ? -sign : value(a) > value(b) ? sign : 0);
    }
    const rows = new Map();
    const shown = things.flatMap(([x, texts], i) => {
      const key = this.key(x, i), row = this.rows.get(key) || this.makeRow(key);
      rows.set(key, row);
      texts.forEach((t, j) => {
        const cell = row.cells[j], c = this.columns[j];
        if (cell.textContent !== t) cell.textContent = t;
        cell.title = c.title ? c.title(x) : '';
      });
      return opened && opened.table === this && opened.key === key ? [row, opened.row] : [row];
    });
    this.rows = rows;
    shown.forEach((row, i) => {
      if (this.body.children[i] !== row) this.body.insertBefore(row, this.body.children[i] || null);
    });
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
  }
  makeRow(key) {
    const row = make('tr');
    for (const c of this.columns) {
      const cell = make('td', '', c.className);
      cell.dataset.head = c.head;
      row.append(cell);
    }
    if (this.open) {
      row.className = 'group';
      row.tabIndex = 0;
      row.onclick = () => this.open(this, key);
      row.onkeydown = (e) => { if (e.key === 'Enter') this.open(this, key); };
    }
    return row;
  }
}

// The counts of each group in the looks of the last two minutes.
const looksKept = 120;
const noteCounts = (history, groups, now) => {
  const counts = new Map(groups.map((g) => [g.key, g.count]));
  for (const key of counts.keys()) if (!history.has(key)) history.set(key, []);
  for (const [key, all] of history) {
    all.push({now, count: counts.get(key) || 0});
    if (all.length > looksKept) all.shift();
    if (all.every((l) => l.count === 0)) history.delete(key);
  }
};
const growth = (all) => {
  if (!all) return 0;
  const last = all[all.length - 1];
  return last.count - all.find((l) => last.now - l.now <= 60000).count;
};
const signed = (n) => n > 0 ? '+' + n : n < 0 ? String(n) : '';

// The group that was clicked: its growth, and its oldest fibers with their frames.
let opened;
const drawGrowth = () => {
  if (!opened) return;
  const all = opened.table.history.get(opened.key) || [];
  const c = opened.canvas.getContext('2d');
  const most = Math.max(1, ...all.map((l) => l.count));
  const step = opened.canvas.width / looksKept, tall = opened.canvas.height;
  c.clearRect(0, 0, opened.canvas.width, tall);
  c.fillStyle = '#3a7bd5';
  all.forEach((l, i) => {
    const h = Math.ceil(l.count / most * tall);
    c.fillRect((looksKept - all.length + i) * step, tall - h, step - 1, h);
  });
  opened.growth.textContent = (signed(growth(all)) || '0') + ' in the last minute, at most ' +
      most + ' in ' + duration((all.length ? performance.now() - all[0].now : 0) * 1e6);
};
const openGroup = async (table, key) => {
  const again = opened && opened.table === table && opened.key === key;
  const before = opened && opened.table;
  opened = undefined;
  if (!again) {
    const row = make('tr', undefined, 'detail'), cell = make('td'), line = make('p');
    opened = {table, key, row, canvas: make('canvas'), growth: make('span'), text: make('pre')};
    opened.canvas.width = looksKept * 3;
    opened.canvas.height = 40;
    cell.colSpan = table.columns.length;
    line.append(opened.canvas, ' ', opened.growth);
    cell.append(line);
    if (table.hasFrames) cell.append(opened.text);
    row.append(cell);
    drawGrowth();
  }
  if (before) before.draw();
  table.draw();
  if (again || !table.hasFrames) return;
  const mine = opened;
  mine.text.textContent = 'reading frames';
  try {
    const answer = await fetch('/group.txt?key=' + key,
                               {method: 'POST', headers: {'X-Vigil-Token': token}});
    mine.text.textContent = await answer.text();
  } catch (e) {
    mine.text.textContent = 'no answer: ' + e.message;
  }
};

const groupTable = (id, name, hasFrames) => {
  const history = new Map();
  const table = new Table(id, [
    {head: 'count', of: (g) => g.count, className: 'number'},
    {head: 'growth', of: (g) => growth(history.get(g.key)), shown: signed, className: 'number',
     title: () => 'in the last minute'},
    {head: 'state', of: (g) => g.state},
    {head: 'waits for', of: wait, className: 'object'},
    {head: 'started at', of: (g) => shortPlace(g.started_at), className: 'place',
     title: (g) => place(g.started_at)},
    ...['oldest', 'mean', 'newest'].map((head) => (
      {head, of: (g) => g[head + '_nanoseconds'], shown: duration, className: 'number'})),
    {head: 'the oldest one', of: (g) => name(g.oldest), className: 'object',
     title: (g) => fields(g.oldest)},
  ], (g) => g.key, openGroup);
  return Object.assign(table, {history, hasFrames});
};
const fibers = groupTable('fibers', fiber, true);
const tasks = groupTable('tasks', (t) => 'task ' + t.id, false);
const showGroups = (table, id, all, now) => {
  noteCounts(table.history, all.groups, now);
  table.show(all.groups);
  $('more-' + id).textContent =
      all.in_no_group ? 'and ' + all.in_no_group + ' others' : '';
};
const birthOf = (d) => d.fiber ? d.fiber.started_at : d.timer.made_at;
const deadlines = new Table('deadlines', [
  {head: 'due in', of: (d) => d.due_in_nanoseconds, shown: duration, className: 'number'},
  {head: 'of', of: (d) => d.fiber ? fiber(d.fiber) : d.timer.repeats ? 'a repeating timer' : 'a timer',
   className: 'object'},
  {head: 'waits for', of: (d) => d.waits_for || ''},
  {head: 'started or made at', of: (d) => shortPlace(birthOf(d)), className: 'place',
   title: (d) => place(birthOf(d))},
], (d, i) => i);

// A strip has a column for each look: as high as the worker was busy, coloured by the
// place where the fiber that it ran was started.
const columns = 120, width = 4, height = 22;
const strips = new Map();
const stripOf = (key) => {
  let s = strips.get(key);
  if (!s) {
    s = {line: make('div', undefined, 'worker'), label: make('span', '', 'label'),
         canvas: make('canvas'), now: make('span', undefined, 'now'), history: []};
    s.canvas.width = columns * width;
    s.canvas.height = height;
    s.line.append(s.label, s.canvas, s.now);
    strips.set(key, s);
  }
  return s;
};
const drawStrip = (s) => {
  const c = s.canvas.getContext('2d');
  c.clearRect(0, 0, s.canvas.width, height);
  s.history.forEach((h, i) => {
    const tall = Math.max(1, Math.round(h.busy * height));
    c.fillStyle = h.colour;
    c.fillRect((columns - s.history.length + i) * width, height - tall, width - 1, tall);
  });
};
const showWorkers = (runtimes, seconds) => {
  const all = [];
  for (const r of runtimes) {
    all.push(make('h3', 'runtime ' + r.runtime + ': ' + r.workers.length + ' workers, ' +
        r.asleep + ' asleep, ' + r.fibers_alive + ' fibers, ' + r.timers_pending +
        ' timers, ' + r.io_pending + ' I/O operations'));
    for (const w of r.workers) {
      const s = stripOf(r.runtime + '/' + w.index);
      const rate = s.switches === undefined ? 0 : (w.switches - s.switches) / seconds;
      s.switches = w.switches;
      const busyFor = (w.busy_nanoseconds - s.busyFor) / seconds / 1e9;
      s.busyFor = w.busy_nanoseconds;
      const busy = !Number.isNaN(busyFor) ? Math.min(1, busyFor) :
          w.runs ? 1 : Math.min(1, Math.log10(1 + Math.max(0, rate)) / 6);
      s.history.push({busy, colour: w.runs ? colour(place(w.runs.started_at)) : '#8888'});
      if (s.history.length > columns) s.history.shift();
      s.label.textContent = 'worker ' + w.index;
      s.now.textContent = (w.runs ? fiber(w.runs) + ' ' + shortPlace(w.runs.started_at) + ' for ' +
          duration(w.runs.ran?.at_least_nanoseconds) + ' or more' : 'idle') + ', ' +
          Math.round(rate) + ' switches/s';
      drawStrip(s);
      all.push(s.line);
    }
  }
  $('workers').replaceChildren(...all);
};

const histogram = (title, h) => {
  const part = make('div');
  const total = h.buckets.reduce((a, b) => a + b, 0);
  part.append(make('h3', title + ': ' + total + ', at most ' + duration(h.max_nanoseconds)));
  const first = h.buckets.findIndex((n) => n);
  if (first < 0) return part;
  const last = h.buckets.length - [...h.buckets].reverse().findIndex((n) => n);
  const most = Math.max(...h.buckets);
  for (let i = first; i < last; ++i) {
    const line = make('div', undefined, 'bar');
    const fill = make('div', undefined, 'fill');
    fill.style.width = Math.ceil(h.buckets[i] / most * 300) + 'px';
    const end = i + 1 < h.buckets.length ? '< ' + duration(2 ** i * 1000) : 'more';
    line.append(make('span', end, 'label'), fill, make('span', h.buckets[i]));
    part.append(line);
  }
  return part;
};
const showLateness = (runtimes) => {
  $('lateness').replaceChildren(...runtimes.flatMap((r) => [
    histogram('runtime ' + r.runtime + ', timers from deadline to firing', r.timers),
    histogram('runtime ' + r.runtime + ', fibers from ready to running (1 in 64)',
              r.ready_fibers)]));
};

let paused = false, before = performance.now();
const look = async () => {
  try {
    const answer = await fetch('/state.json');
    if (!answer.ok) throw new Error(await answer.text());
    const all = await answer.json();
    const now = performance.now();
    showWorkers(all.workers, Math.max(0.05, (now - before) / 1000));
    before = now;
    showGroups(fibers, 'fibers', all.fibers, now);
    showGroups(tasks, 'tasks', all.tasks, now);
    $('tasks-part').hidden = all.tasks.count === 0;
    drawGrowth();
    deadlines.show(all.deadlines);
    showLateness(all.lateness);
    $('summary').textContent = all.fibers.count + ' fibers in ' +
        all.fibers.groups.length + (all.fibers.in_no_group ? ' groups and others' : ' groups') +
        (all.tasks.count ? ', ' + all.tasks.count + ' tasks' : '');
    $('state').textContent = 'live';
  } catch (e) {
    $('state').textContent = 'no answer: ' + e.message;
  }
};
const beat = async () => {
  if (!paused && !document.hidden) await look();
  setTimeout(beat, 1000);
};

let saved = '';
const act = async (path, name, shown) => {
  const buttons = ['dump', 'dump-json', 'stuck', 'record'].map($);
  buttons.forEach((b) => { b.disabled = true; });
  try {
    const answer = await fetch(path, {method: 'POST', headers: {'X-Vigil-Token': token}});
    const data = await answer.blob();
    $('result-part').hidden = false;
    $('result-size').textContent = answer.ok ? data.size + ' bytes' : 'refused: ' + answer.status;
    $('result').textContent =
        shown || !answer.ok ? await data.text() : 'a trace for https://ui.perfetto.dev';
    URL.revokeObjectURL(saved);
    saved = URL.createObjectURL(data);
    $('save').href = saved;
    $('save').download = name;
    $('result-part').scrollIntoView();
  } catch (e) {
    $('state').textContent = 'no answer: ' + e.message;
  }
  buttons.forEach((b) => { b.disabled = false; });
};
$('filter').oninput = () => {
  filter = $('filter').value.toLowerCase();
  tables.forEach((t) => t.draw());
};
$('pause').onclick = () => {
  paused = !paused;
  $('pause').textContent = paused ? 'go on' : 'pause';
  $('state').textContent = paused ? 'paused' : 'live';
};
$('dump').onclick = () => act('/dump.txt', 'vigil-dump.txt', true);
$('dump-json').onclick = () => act('/dump.json', 'vigil-dump.json', true);
$('stuck').onclick = () => act('/stuck.txt', 'vigil-stuck.txt', true);
$('record').onclick = () => act('/record', 'vigil.pftrace', false);
beat();
)js";

}  // namespace VIGIL_DETAIL
