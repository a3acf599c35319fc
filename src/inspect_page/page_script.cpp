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
const placeCell = (site) => [shortPlace(site), 'place', place(site)];
const fiber = (f) => 'fiber ' + f.id + (f.name ? ' (' + f.name + ')' : '');
// A fiber or task with all its fields, a line for each, however many there are.
const shown = (key, value) => key.endsWith('nanoseconds') ? duration(value) :
    value.file !== undefined ? place(value) : value.toString();
const fields = (all, before = '') => Object.entries(all).map(([key, value]) =>
    value instanceof Object && value.file === undefined ? fields(value, before + key + ' ') :
    (before + key).replaceAll('_', ' ') + ': ' + shown(key, value)).join('\n');
const colour = (text) => {
  let h = 0;
  for (const c of text) h = (h * 31 + c.codePointAt(0)) % 360;
  return 'hsl(' + h + ' 65% 55%)';
};

const rows = (body, all) => {
  body.replaceChildren(...all.map((cells) => {
    const row = make('tr');
    for (const [text, className, title] of cells) {
      const cell = make('td', text, className);
      if (title) cell.title = title;
      row.append(cell);
    }
    return row;
  }));
};

const showGroups = (id, all, name) => {
  rows($(id), all.groups.map((g) => [
    [g.count, 'number'], [g.state], [g.waits_for || ''], placeCell(g.started_at),
    [duration(g.oldest_nanoseconds), 'number'], [duration(g.mean_nanoseconds), 'number'],
    [duration(g.newest_nanoseconds), 'number'], [name(g.oldest), '', fields(g.oldest)]]));
  $('more-' + id).textContent =
      all.in_no_group ? 'and ' + all.in_no_group + ' others' : '';
};
const showTasks = (tasks) => {
  $('tasks-part').hidden = tasks.count === 0;
  showGroups('tasks', tasks, (t) => 'task ' + t.id);
};

const showDeadlines = (deadlines) => {
  rows($('deadlines'), deadlines.map((d) => [
    [duration(d.due_in_nanoseconds), 'number'],
    [d.fiber ? fiber(d.fiber) : d.timer.repeats ? 'a repeating timer' : 'a timer'],
    [d.waits_for || ''],
    placeCell(d.fiber ? d.fiber.started_at : d.timer.made_at)]));
};

// A strip has a column for each look: as high as the worker was busy, coloured by the
// place where the fiber that it ran was started.
const columns = 120, width = 4, height = 22;
const strips = new Map();
const stripOf = (key) => {
  let s = strips.get(key);
  if (!s) {
    s = {line: make('div', undefined, 'worker'), label: make('span', '', 'label'),
         canvas: make('canvas'), now: make('span'), history: [], switches: undefined};
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
      const busy = w.runs ? 1 : Math.min(1, Math.log10(1 + Math.max(0, rate)) / 6);
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
    showGroups('fibers', all.fibers, fiber);
    showTasks(all.tasks);
    showDeadlines(all.deadlines);
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
