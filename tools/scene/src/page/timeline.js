(function () {
  'use strict';
  var holder = document.getElementById('data'), canvas = document.getElementById('spacetime');
  if (!holder || !canvas) return;
  var data = JSON.parse(holder.textContent), tip = document.getElementById('tip'), told = document.getElementById('window');
  var BAR = 4, ARROW = 6, LEFT = 64, TOP = 22, from = 0, to = Math.max(data.end, 1), drag = null, first = 0, rowsShown = data.rows;
  var least = Math.max(10, data.end / 1e7);

  function time(ns) {
    var units = [[1e9, 's'], [1e6, 'ms'], [1e3, '\u00b5s'], [1, 'ns']];
    for (var i = 0; i < units.length; i++) if (Math.abs(ns) >= units[i][0] || i === 3) return +(ns / units[i][0]).toPrecision(5) + ' ' + units[i][1];
  }
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); }
  function width() { return canvas.clientWidth - LEFT; }
  function height() { return (canvas.clientHeight - TOP) / Math.max(1, rowsShown); }
  function x(ns) { return LEFT + (ns - from) / (to - from) * width(); }
  function y(row) { return TOP + (row - first) * height(); }

  // The first bar of a row that ends behind a time.
  function seek(bars, ns) {
    var low = 0, high = bars.length / BAR;
    while (low < high) {
      var middle = (low + high) >> 1, at = middle * BAR;
      if (bars[at] + bars[at + 1] <= ns) low = middle + 1; else high = middle;
    }
    return low * BAR;
  }

  function axis(draw, ink, rule) {
    var rough = (to - from) / Math.max(2, width() / 110), power = Math.pow(10, Math.floor(Math.log10(rough)));
    var step = [1, 2, 5, 10].map(function (m) { return m * power; }).filter(function (s) { return s >= rough * 0.999; })[0];
    draw.font = '11px system-ui, sans-serif'; draw.textAlign = 'center';
    for (var t = Math.ceil(from / step) * step; t <= to; t += step) {
      draw.fillStyle = rule; draw.fillRect(x(t), TOP, 1, canvas.clientHeight);
      draw.fillStyle = ink; draw.fillText(time(t), Math.min(x(t), canvas.clientWidth - 26), 14);
    }
  }

  function rows(draw, colours, ink) {
    var tall = height(), room = Math.max(1, Math.ceil(14 / tall)), thick = Math.max(1, Math.min(tall * 0.6, 26));
    draw.textAlign = 'right';
    for (var row = Math.floor(first); row < Math.min(data.rows, first + rowsShown); row++) {
      if (row % room === 0) { draw.fillStyle = ink; draw.fillText('rank ' + row, LEFT - 6, y(row) + tall / 2 + 4); }
      var bars = data.bars[row], top = y(row) + (tall - thick) / 2, edge = -1, kind = -1;
      for (var i = seek(bars, from); i < bars.length && bars[i] < to; i += BAR) {
        var left = Math.max(LEFT, x(bars[i])), right = Math.min(canvas.clientWidth, x(bars[i] + bars[i + 1]));
        // Many bars on one pixel are drawn as one.
        if (right - edge < 0.5 && bars[i + 2] === kind) continue;
        draw.fillStyle = colours[bars[i + 2]];
        draw.fillRect(left, top, Math.max(0.7, right - left), thick);
        edge = right; kind = bars[i + 2];
      }
    }
  }

  function seen() {
    var out = [], most = 4000;
    for (var i = 0; i < data.arrows.length; i += ARROW) {
      if (data.arrows[i + 3] < from || data.arrows[i + 2] > to) continue;
      out.push(i);
      if (out.length > most) return null;
    }
    return out;
  }

  function arrows(draw) {
    var all = seen(), tall = height();
    if (!all || all.length > width() * 2) return all;
    draw.strokeStyle = draw.fillStyle = colour('message'); draw.lineWidth = 1;
    all.forEach(function (i) {
      var a = data.arrows, x0 = x(a[i + 2]), y0 = y(a[i]) + tall / 2, x1 = x(a[i + 3]), y1 = y(a[i + 1]) + tall / 2;
      draw.beginPath(); draw.moveTo(x0, y0); draw.lineTo(x1, y1); draw.stroke();
      if (all.length < 400) {
        var turn = Math.atan2(y1 - y0, x1 - x0);
        draw.beginPath(); draw.moveTo(x1, y1);
        draw.lineTo(x1 - 7 * Math.cos(turn - 0.4), y1 - 7 * Math.sin(turn - 0.4));
        draw.lineTo(x1 - 7 * Math.cos(turn + 0.4), y1 - 7 * Math.sin(turn + 0.4)); draw.fill();
      }
    });
    return all;
  }

  function paint() {
    var ratio = window.devicePixelRatio || 1, draw = canvas.getContext('2d');
    canvas.width = Math.round(canvas.clientWidth * ratio); canvas.height = Math.round(canvas.clientHeight * ratio);
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    axis(draw, colour('muted'), colour('rule'));
    rows(draw, data.doing.map(colour), colour('ink'));
    draw.save(); draw.beginPath(); draw.rect(LEFT, TOP, width(), canvas.clientHeight); draw.clip();
    var shown = arrows(draw);
    draw.restore();
    told.textContent = time(from) + ' to ' + time(to) + (shown && shown.length <= width() * 2 ? ', ' + shown.length + ' messages' : '');
  }

  function move(start, span) {
    span = Math.min(Math.max(span, least), Math.max(data.end, 1));
    from = Math.min(Math.max(start, 0), Math.max(data.end, 1) - span); to = from + span;
    paint();
  }
  function zoom(factor, at) { var middle = from + (to - from) * at; move(middle - (to - from) * factor * at, (to - from) * factor); }
  function whole() { first = 0; rowsShown = data.rows; move(0, data.end); }
  function part(event) { return Math.min(1, Math.max(0, (event.clientX - canvas.getBoundingClientRect().left - LEFT) / width())); }

  function under(event) {
    var box = canvas.getBoundingClientRect(), row = Math.floor(first + (event.clientY - box.top - TOP) / height());
    if (row < 0 || row >= data.rows || event.clientX - box.left < LEFT) return '';
    var ns = from + part(event) * (to - from), bars = data.bars[row], i = seek(bars, ns), said = '';
    if (i < bars.length && bars[i] <= ns) {
      said = 'rank ' + row + ': ' + data.doing[bars[i + 2]] + ' ' + time(bars[i + 1]) + ', from ' + time(bars[i]) + ', ' + (data.places[bars[i + 3]] || '');
    }
    return said;
  }

  canvas.addEventListener('wheel', function (event) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, part(event)); }, { passive: false });
  canvas.addEventListener('pointerdown', function (event) { drag = { x: event.clientX, from: from }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener('pointerup', function () { drag = null; });
  canvas.addEventListener('pointermove', function (event) {
    if (drag) { move(drag.from - (event.clientX - drag.x) / width() * (to - from), to - from); return; }
    var said = under(event);
    tip.hidden = said === ''; tip.textContent = said;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 300) + 'px'; tip.style.top = event.clientY + 14 + 'px';
  });
  canvas.addEventListener('pointerleave', function () { tip.hidden = true; });
  canvas.addEventListener('dblclick', whole);
  document.getElementById('whole').addEventListener('click', whole);
  canvas.addEventListener('keydown', function (event) {
    var span = to - from, keys = {
      '+': function () { zoom(0.5, 0.5); }, '=': function () { zoom(0.5, 0.5); }, '-': function () { zoom(2, 0.5); }, '0': whole,
      ArrowLeft: function () { move(from - span / 5, span); }, ArrowRight: function () { move(from + span / 5, span); }
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });
  if (window.ResizeObserver) new ResizeObserver(paint).observe(canvas);
  window.matchMedia('(prefers-color-scheme:dark)').addEventListener('change', paint);
  whole();
})();
