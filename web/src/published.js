// Events a second of the counted streams, from the stream of changes; without it, from the polls of the pipeline.

import { changes, watchChanges } from "./changes.js";
import { sum, watchPipeline } from "./pipeline_data.js";

const OVER = 5; // seconds, of which the mean is shown
const GAP = 15; // seconds between two numbers, after which the mean begins again: the tab was hidden

/** The lines of the counted streams since the start of pubsub; null if it does not answer. */
function publishedOf(daemons) {
  const statsOf = (name) => daemons.filter((d) => d.name === name).map((d) => d.stats);
  const counted = new Set(statsOf("aggregator").flatMap((stats) => Object.keys(stats?.streams ?? {})));
  const all = statsOf("pubsub");
  if (!all.length || !all.every(Boolean)) return null;
  return sum(all.flatMap(({ streams }) => Object.entries(streams)).filter(([name]) => counted.has(name)).map(([, stream]) => stream), "lines_published");
}

/** Calls show(rate, why) with each new number, and show(null, why) while the rate is not known. Returns a function that stops it. */
export function watchPublished(show) {
  let recent = [];

  function take({ time, published }) {
    const last = recent.at(-1);
    if (published === undefined || published === null) {
      recent = [];
      show(null, published === undefined ? "not for this token" : "pubsub does not answer");
      return;
    }
    const isCut = last && (time <= last.time || time > last.time + GAP || published < last.published); // a clock set, a gap, another pubsub
    if (isCut) recent = [];
    recent.push({ time, published });
    while (recent.length > 2 && recent[1].time <= time - OVER) recent.shift();
    const seconds = time - recent[0].time;
    show(seconds ? (published - recent[0].published) / seconds : null, "");
  }

  const stops = [watchChanges((event) => {
    if (event) return take(event);
    recent = [];
    show(null, "");
  }), watchPipeline(({ time, daemons }) => changes() || take({ time, published: publishedOf(daemons) }))];
  return () => stops.forEach((stop) => stop());
}
