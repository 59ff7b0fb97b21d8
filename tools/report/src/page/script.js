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

  // Choice of operation: the others are away, and the one chosen is open.
  var choice = document.getElementById('operation');
  function operation() {
    all('[data-operation]').forEach(function (part) {
      part.hidden = choice.value !== '' && part.id !== choice.value;
      if (part.id === choice.value) part.open = true;
    });
  }
  if (choice) {
    choice.addEventListener('change', operation);
    operation();
  }

  // A picture or a line of the contents opens what it leads to, also one that a choice has put away.
  function open(id) {
    var part = id && document.getElementById(id);
    if (!part) return;
    if (part.hidden && choice) {
      choice.value = '';
      operation();
    }
    if (part.tagName === 'DETAILS') part.open = true;
    part.scrollIntoView();
  }
  function opened() { open(decodeURIComponent(location.hash.slice(1))); }
  all('a[href^="#"]').forEach(function (link) {
    link.addEventListener('click', function () { open(link.getAttribute('href').slice(1)); });
  });
  window.addEventListener('hashchange', opened);
  if (location.hash) opened();
  function every(state) { all('details[data-operation]').forEach(function (part) { part.open = state; }); }
  var button = document.getElementById('open');
  if (button) {
    button.addEventListener('click', function () {
      var state = all('details[data-operation]').some(function (part) { return !part.open; });
      every(state);
      button.textContent = state ? 'close all' : 'open all';
    });
  }
  window.addEventListener('beforeprint', function () { every(true); });

  // Choice of the level of contention, in each operation.
  all('select.level').forEach(function (select) {
    function show() {
      all('[data-level]', select.closest('[data-operation]')).forEach(function (part) {
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
  // What keys go through: several marks may tell the same.
  function steps(figure) {
    if (!figure.steps) {
      var told = {};
      figure.steps = points(figure).filter(function (point) {
        var first = !told['#' + point.text];
        told['#' + point.text] = true;
        return first;
      });
    }
    return figure.steps;
  }
  // The drawing on the screen: where its upper left corner is and how large its unit is.
  function drawn(figure) {
    var svg = figure.querySelector('svg'), box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    var unit = box.width / view.width;
    return { svg: svg, unit: unit, left: box.left - view.x * unit, top: box.top - view.y * unit };
  }
  function show(figure, point) {
    var at = drawn(figure);
    lit.setAttribute('cx', point.x);
    lit.setAttribute('cy', point.y);
    at.svg.appendChild(lit);
    tip.textContent = point.text;
    tip.hidden = false;
    var x = at.left + point.x * at.unit, y = at.top + point.y * at.unit;
    var left = Math.min(Math.max(4, x + 12), window.innerWidth - tip.offsetWidth - 4);
    var top = y + 14 + tip.offsetHeight > window.innerHeight ? y - 14 - tip.offsetHeight : y + 14;
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = Math.max(4, top) + 'px';
  }
  function hide() {
    tip.hidden = true;
    if (lit.parentNode) lit.parentNode.removeChild(lit);
  }
  all('figure').forEach(function (figure) {
    function near(event) {
      var at = drawn(figure);
      var x = (event.clientX - at.left) / at.unit, y = (event.clientY - at.top) / at.unit;
      var best = null, least = 30 * 30;
      points(figure).forEach(function (point) {
        var d = (point.x - x) * (point.x - x) + (point.y - y) * (point.y - y);
        if (d < least) { least = d; best = point; }
      });
      if (best) show(figure, best); else hide();
    }
    figure.addEventListener('pointermove', near);
    figure.addEventListener('pointerdown', near);
    // A finger leaves with every tap: what it asked for stays until the next one.
    figure.addEventListener('pointerleave', function (event) { if (event.pointerType !== 'touch') hide(); });
    figure.addEventListener('blur', hide);
    figure.addEventListener('keydown', function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === 'Escape') hide();
      var list = steps(figure);
      if (!step || !list.length) return;
      event.preventDefault();
      figure.at = figure.at === undefined ? (step > 0 ? 0 : list.length - 1) : (figure.at + step + list.length) % list.length;
      show(figure, list[figure.at]);
    });
  });
  window.addEventListener('scroll', hide, { passive: true });
})();
