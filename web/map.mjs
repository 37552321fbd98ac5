// The map of the world, from the borders of the package world-atlas: a path in SVG for each country, by its two letters.

import fs from "node:fs";
import { createRequire } from "node:module";

const WIDTH = 720; // of the map; two units are a degree
const SOUTH = -58; // without Antarctica
const NORTH = 84;
const AREA_MIN = 1.5; // of an island, in square units

/** The letters of a country by its number of ISO 3166; undefined: it has none. */
const lettersOf = (number) => {
  const { region } = new Intl.Locale(`und-${number}`);
  return /^[A-Z]{2}$/.test(region ?? "") ? region : undefined;
};

/** Numbers of a topology are differences, and arcs are shared by neighbours. */
function arcsOf({ arcs, transform: { scale, translate } }) {
  return arcs.map((arc) => {
    let x = 0;
    let y = 0;
    return arc.map(([dx, dy]) => {
      x += dx;
      y += dy;
      const [east, north] = [x * scale[0] + translate[0], Math.min(NORTH, Math.max(SOUTH, y * scale[1] + translate[1]))];
      return [Math.round(((east + 180) * WIDTH) / 360), Math.round(((NORTH - north) * WIDTH) / 360)];
    });
  });
}

/** A ring is a list of arcs; ~n is arc n backwards. A ring that crosses the edge of the map goes on beyond it. */
function ringOf(arcs, ring) {
  const points = ring.flatMap((n) => (n < 0 ? arcs[~n].toReversed() : arcs[n]));
  let turns = 0;
  return points.map(([x, y], i) => {
    const step = i ? x - points[i - 1][0] : 0;
    turns -= Math.abs(step) > WIDTH / 2 ? Math.sign(step) : 0;
    return [x + turns * WIDTH, y];
  }).filter(([x, y], i, all) => !i || x !== all[i - 1][0] || y !== all[i - 1][1]);
}

/** The ring, and what of it is beyond the edge on the other side of the map. */
function withOtherSide(ring) {
  const shift = Math.max(...ring.map(([x]) => x)) > WIDTH ? -WIDTH : Math.min(...ring.map(([x]) => x)) < 0 ? WIDTH : 0;
  return shift ? [ring, ring.map(([x, y]) => [x + shift, y])] : [ring];
}

const areaOf = (points) => Math.abs(points.reduce((sum, [x, y], i) => {
  const [nextX, nextY] = points[(i + 1) % points.length];
  return sum + x * nextY - nextX * y;
}, 0)) / 2;

/** Whether a point lies on the line between its neighbours. */
const isBetween = ([x, y], i, all) => {
  const [beforeX, beforeY] = all[i - 1] ?? all.at(-1);
  const [afterX, afterY] = all[(i + 1) % all.length];
  return (x - beforeX) * (afterY - y) === (y - beforeY) * (afterX - x);
};

const pathOf = (ring) => {
  const points = ring.filter((point, i, all) => !isBetween(point, i, all));
  const steps = points.slice(1).map(([x, y], i) => `${x - points[i][0]} ${y - points[i][1]}`);
  return points.length < 3 ? "" : `M${points[0].join(" ")}l${steps.join(" ")}z`.replaceAll(" -", "-");
};

/** {width, height, countries: {"US": PATH, ...}, license} */
export function worldMap() {
  const read = (name) => fs.readFileSync(createRequire(import.meta.url).resolve(`world-atlas/${name}`), "utf8");
  const topology = JSON.parse(read("countries-110m.json"));
  const arcs = arcsOf(topology);
  const countries = {};
  for (const { id, type, arcs: own } of topology.objects.countries.geometries) {
    const letters = id && lettersOf(id);
    if (!letters || letters === "AQ") continue;
    const rings = (type === "Polygon" ? [own] : own).flat().map((ring) => ringOf(arcs, ring));
    const largest = Math.max(...rings.map(areaOf));
    const path = rings.filter((ring) => areaOf(ring) >= Math.min(largest, AREA_MIN) && ring.length > 2).flatMap(withOtherSide).map(pathOf).join("");
    if (path) countries[letters] = (countries[letters] ?? "") + path;
  }
  return { width: WIDTH, height: Math.round(((NORTH - SOUTH) * WIDTH) / 360), countries, license: `world-atlas: ${read("LICENSE")}` };
}
