"""How a page looks, as a browser tells it: contrast, what is cut off, what has no name; for `Page.script`."""

SHADE = """((c) => { const x = document.createElement('canvas').getContext('2d');
    x.fillStyle = c; x.fillRect(0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data]; })"""
OUTSIDE = """(() => {
  const scrolls = (e) => { for (e = e.parentElement; e && !e.dataset.page; e = e.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)) return true; return false; };
  const edge = (e) => { const part = e.parentElement.closest('[data-page] section');
    return part ? Math.min(innerWidth, part.getBoundingClientRect().right) : innerWidth; };
  return [...document.querySelectorAll('[data-page] *')].filter(e => !e.closest('svg svg, option') && !scrolls(e))
    .filter(e => { const r = e.getBoundingClientRect(); return r.width && (r.right > edge(e) + 1 || r.left < 0); })
    .map(e => e.tagName + ' ' + (e.innerText || '').slice(0, 40)).slice(0, 5);
})()"""
"""What reaches beyond the window, or the panel that it is in, and cannot be scrolled into it."""
NAMELESS = """[...document.querySelectorAll(':is(input, select, button, table, svg[tabindex], [role=region])')]
  .filter(e => e.closest('[data-page]'))
  .filter(e => !(e.getAttribute('aria-label') || e.innerText || (e.labels && e.labels.length)))
  .map(e => e.outerHTML.slice(0, 80))"""
"""Fields, buttons, tables and parts that the Tab key reaches, and that have no name to be read out."""
CONTRAST = """(() => {
  const shade = SHADE;
  const bent = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => bent(v / 255))
    .reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = shade(getComputedStyle(e).backgroundColor);
    if (c[3] > 200) return c; } return [255, 255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('[data-page] *')) {
    const says = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!says || e.closest('svg, [disabled]')) continue;
    const [a, b] = [light(shade(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found.push(e.innerText.slice(0, 40) + ' ' + ratio.toFixed(1));
  }
  for (const e of document.querySelectorAll('[data-chart] path, [data-chart] circle')) {
    const drawn = getComputedStyle(e);
    const colour = drawn.stroke === 'none' ? drawn.fill : drawn.stroke;
    const [a, b] = [light(shade(colour)), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 3) found.push('line ' + colour);
  }
  for (const e of document.querySelectorAll('[data-node]')) {
    const box = getComputedStyle(e.querySelector('rect'));
    const [fill, page] = [shade(box.fill), behind(e)];
    const mixed = fill.map((v, n) => v * box.fillOpacity + page[n] * (1 - box.fillOpacity));
    for (const word of e.querySelectorAll('bdi')) {
      const [a, b] = [light(shade(getComputedStyle(word).color)), light(mixed)].sort((x, y) => y - x);
      if ((a + .05) / (b + .05) < 4.5) found.push('node ' + word.innerText + ' ' + ((a + .05) / (b + .05)).toFixed(1));
    }
  }
  return [...new Set(found)];
})()""".replace("SHADE", SHADE)
"""Texts whose contrast to what is behind them is below 4.5, and lines of charts below 3 (WCAG AA)."""
