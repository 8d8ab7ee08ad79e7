// Names of strategies beside their curves, wherever there is room: no label covers a point or another label.
function label(u, series) {
  const {ctx, bbox} = u, scale = devicePixelRatio, high = 14 * scale;
  ctx.font = `${12 * scale}px system-ui, "DejaVu Sans", sans-serif`;
  Object.assign(ctx, {textAlign: "left", textBaseline: "middle"});
  const boxes = [], occupied = new Set(), cell = 9 * scale;
  const cells = box => {
    const list = [];
    for (let x = Math.floor(box.x / cell); x <= (box.x + box.w) / cell; ++x) {
      for (let y = Math.floor(box.y / cell); y <= (box.y + box.h) / cell; ++y) list.push(`${x} ${y}`);
    }
    return list;
  };
  for (const list of series.values()) {
    for (const d of list) occupied.add(`${Math.floor(d.left / cell)} ${Math.floor(d.top / cell)}`);
  }
  const isFree = box => box.x >= bbox.left && box.x + box.w <= bbox.left + bbox.width && box.y >= bbox.top && box.y + box.h <= bbox.top + bbox.height &&
    !boxes.some(b => b.x < box.x + box.w && box.x < b.x + b.w && b.y < box.y + box.h && box.y < b.y + b.h) && !cells(box).some(c => occupied.has(c));
  for (const [i, list] of series) {
    const name = list[0].series.name, w = ctx.measureText(name).width + 6 * scale, gap = 9 * scale;
    const best = list.filter(d => !d.dominated), among = best.length ? best : list;
    const anchors = [among[0], among[among.length - 1], ...among.filter((_, k) => k % Math.ceil(among.length / 12) === 0)];
    const places = anchors.flatMap(d => [[gap, -high - gap / 2], [gap, -high / 2], [gap, gap / 2], [-w - gap, -high / 2],
      [-w / 2, -high - gap], [-w / 2, gap], [-w - gap, gap / 2], [-w - gap, -high - gap / 2]].map(([dx, dy]) => ({x: d.left + dx, y: d.top + dy, w, h: high})));
    const box = places.find(isFree);
    if (!box) continue;  // the buttons below name it
    boxes.push(box);
    ctx.fillStyle = css("--paper");
    ctx.globalAlpha = .6;
    ctx.fillRect(box.x, box.y, box.w, box.h);
    ctx.globalAlpha = 1;
    ctx.fillStyle = best.length ? textColour(i) : css("--grey");  // what all others beat: pale would be hard to read
    ctx.fillText(name, box.x + 3 * scale, box.y + high / 2);
  }
  u.labels = boxes.length;
}
