(function () {
  'use strict';
  var root = document.documentElement;
  root.classList.add('js');
  function all(selector, from) { return Array.prototype.slice.call((from || document).querySelectorAll(selector)); }

  // Choice of scale: both drawings are in the page, one is shown.
  function scale(kind) {
    all('[data-scale]').forEach(function (figure) { figure.hidden = figure.dataset.scale !== kind; });
  }
  all('input[name=scale]').forEach(function (input) {
    input.addEventListener('change', function () { if (input.checked) scale(input.value); });
    if (input.checked) scale(input.value);
  });

  // Choice of operation.
  var choice = document.getElementById('operation');
  function operation() {
    all('section[data-operation]').forEach(function (section) {
      section.hidden = choice.value !== '' && section.id !== choice.value;
    });
  }
  if (choice) {
    choice.addEventListener('change', operation);
    operation();
  }

  // Choice of the level of contention, in each operation.
  all('select.level').forEach(function (select) {
    function show() {
      all('[data-level]', select.closest('section')).forEach(function (part) {
        part.classList.toggle('vanish', part.dataset.level !== select.value);
      });
    }
    select.addEventListener('change', show);
    show();
  });

  // Values: the point nearest to the pointer, or the one the arrow keys have come to.
  var tip = document.getElementById('tip');
  var lit = document.createElementNS('http://www.w3.org/2000/svg', 'circle');
  lit.setAttribute('class', 'lit');
  lit.setAttribute('r', '6');
  function points(figure) {
    if (!figure.points) {
      figure.points = all('.hit', figure).map(function (hit) {
        var title = hit.querySelector('title');
        var text = title ? title.textContent : '';
        // The page's own label takes the place of the browser's.
        if (title) hit.removeChild(title);
        return { x: +hit.getAttribute('cx'), y: +hit.getAttribute('cy'), text: text, hit: hit };
      });
    }
    return figure.points;
  }
  function show(figure, point) {
    var svg = figure.querySelector('svg');
    var box = svg.getBoundingClientRect();
    var unit = box.width / svg.viewBox.baseVal.width;
    lit.setAttribute('cx', point.x);
    lit.setAttribute('cy', point.y);
    svg.appendChild(lit);
    tip.textContent = point.text;
    tip.hidden = false;
    var x = box.left + point.x * unit, y = box.top + point.y * unit;
    var left = Math.min(Math.max(4, x + 12), window.innerWidth - tip.offsetWidth - 4);
    var top = y + 14 + tip.offsetHeight > window.innerHeight ? y - 14 - tip.offsetHeight : y + 14;
    tip.style.left = left + 'px';
    tip.style.top = Math.max(4, top) + 'px';
  }
  function hide() {
    tip.hidden = true;
    if (lit.parentNode) lit.parentNode.removeChild(lit);
  }
  all('figure').forEach(function (figure) {
    figure.addEventListener('pointermove', function (event) {
      var svg = figure.querySelector('svg');
      var box = svg.getBoundingClientRect();
      var unit = box.width / svg.viewBox.baseVal.width;
      var x = (event.clientX - box.left) / unit, y = (event.clientY - box.top) / unit;
      var best = null, least = 30 * 30;
      points(figure).forEach(function (point) {
        var d = (point.x - x) * (point.x - x) + (point.y - y) * (point.y - y);
        if (d < least) { least = d; best = point; }
      });
      if (best) show(figure, best); else hide();
    });
    figure.addEventListener('pointerleave', hide);
    figure.addEventListener('blur', hide);
    figure.addEventListener('keydown', function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === 'Escape') hide();
      var list = points(figure);
      if (!step || !list.length) return;
      event.preventDefault();
      figure.at = figure.at === undefined ? (step > 0 ? 0 : list.length - 1) : (figure.at + step + list.length) % list.length;
      show(figure, list[figure.at]);
    });
  });
  window.addEventListener('scroll', hide, { passive: true });
})();
