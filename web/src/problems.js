// What is wrong in the pipeline, each with the command that mends it: the rules of `millrace status`.

import { bytes, count, duration, plural } from "./format.js";
import { nameOf } from "./pipeline_data.js";

const LATE = 60; // seconds
const DISK_LOW = 0.05; // of its size
const DISK = /^free disk space; /; // the remedy of each problem of a disk
const DISK_FULL_MEND = "free disk space; it resumes by itself";
const DISK_LOW_MEND = "free disk space; to need less, set retain_bytes or retain_age of the streams";
const DAYS_MIN = 3; // until the disk is full
const DISK_SPAN_MIN = 3600; // seconds over which the growth is measured
const RESTARTED = 3600; // seconds since the last restart

const REJECTED = /rejected in the last minute/;
const UNREACHABLE = "see its log; if it hangs: kill -9 its process; millrace up restarts it";

/** Bytes of disk left, and days until it is full at the rate of the last day; null: not known. */
export function diskOf(p, stats) {
  const past = p.run?.disk;
  const seconds = past ? p.time - past.at : 0;
  const used = past ? past.free - stats.disk_free_bytes : 0;
  return { left: stats.disk_free_bytes, days: seconds >= DISK_SPAN_MIN && used > 0 ? stats.disk_free_bytes / (used / seconds) / 86400 : null };
}

/** A daemon words its problems and remedies itself, also those of its queues. Without its token, only /health is known. */
function said(d) {
  if (d.state === "unreachable") return [[`${nameOf(d)} is unreachable.`, UNREACHABLE]];
  const notices = [d.stats?.health, ...Object.values(d.stats?.queues ?? {})].flatMap((of) => of?.notices ?? []);
  if (d.state !== "not ready" || notices.length) return notices.map(({ text, remedy }) => [`${nameOf(d)}: ${text}`, remedy]);
  return [[`${nameOf(d)} is not ready: ${d.detail}`, "millrace status names the remedy"]];
}

/** Unless the aggregator itself warns, because it rejects most lines. */
function rejects({ cell, detail, stats }) {
  const { rejected, reasons } = stats?.last_minute ?? {};
  const total = stats?.lines_rejected_total;
  if (!total || REJECTED.test(detail)) return [];
  const where = cell ? `In cell ${cell}, ` : "";
  return rejected > 0
    ? [[`${where}${plural(rejected, "line was", "lines were")} rejected in the last minute: ${reasons.map((r) => `${count(r.lines)} × ${r.reason}`).join(", ")}.`, "correct [input] or the sender; then millrace rejects --put-back"]]
    : [[`${where}${plural(total, "line was", "lines were")} rejected since the aggregator's start.`, "millrace rejects"]];
}

/** The last error of a process in run.json, with its age. */
const lastError = (p, { error, error_at }) => `last error${error_at ? ` ${duration(p.time - error_at)} ago` : ""}: ${error ?? "unknown"}`;

/** Each rule returns [words, mend] of its problems. */
const RULES = [
  (p) => p.daemons.flatMap(said),
  (p) => p.daemons.filter((d) => d.name === "aggregator").flatMap(rejects),
  (p) => p.daemons.filter((d) => d.name === "aggregator").flatMap((d) => {
    const { complete_age_seconds: age, held_by: by } = d.stats ?? {};
    return age > LATE ? [[`${d.cell ? `In cell ${d.cell}, counts` : "Counts"} are complete only until ${duration(age)} ago${by ? `, held back by ${by}` : ""}.`, by ? "millrace producers" : "millrace status"]] : [];
  }),
  (p) => Object.entries(p.run?.daemons ?? {}).filter(([, d]) => d.restarted_at > p.time - RESTARTED).map(([name, d]) =>
    [`${name} was restarted ${plural(d.restarts, "time", "times")}, the last ${duration(p.time - d.restarted_at)} ago; ${lastError(p, d)}`, "see the log of millrace up"]),
  (p) => {
    const c = p.run?.daemons.compactor;
    return /failed/.test(c?.said) ? [[`Compaction: ${c.said}${c.error ? `; ${lastError(p, c)}` : "."}`, `${c.remedy ?? "correct the cause"}, then run millrace compact`]] : [];
  },
];

/** One problem for each disk, over the problems that more space on it ends. Two daemons whose disks have one size share the disk. */
function diskProblems(p, found) {
  const daemons = p.daemons.filter((d) => d.stats?.disk_size_bytes);
  if (!daemons.length) return found; // without a token
  const sizes = [...new Set(daemons.map((d) => d.stats.disk_size_bytes))];
  return sizes.flatMap((size, i) => {
    const own = daemons.filter((d) => d.stats.disk_size_bytes === size);
    const { left, days } = diskOf(p, own[0].stats);
    const folded = found.filter(([words]) => (i ? own.some((d) => words.startsWith(nameOf(d))) : !daemons.some((d) => !own.includes(d) && words.startsWith(nameOf(d)))));
    const fills = sizes.length === 1 && days !== null && days < DAYS_MIN;
    const of = sizes.length === 1 && p.run?.data_dir ? p.run.data_dir : own.map(nameOf).join(", ");
    return folded.length || fills || left < DISK_LOW * size
      ? [[`The disk of ${of} has ${bytes(left)} of ${bytes(size)} free${fills ? ` and is full in ${duration(days * 86400)}` : ""}.`,
        folded.some(([, mend]) => mend !== DISK_LOW_MEND) ? DISK_FULL_MEND : DISK_LOW_MEND, folded.map(([words]) => words)]] : [];
  });
}

/** [[words, mend, folded]] of a pipeline that is watched. `folded`: the words of problems that this one causes. */
export function problems(p) {
  const found = RULES.flatMap((rule) => rule(p));
  const ofDisk = found.filter(([, mend]) => DISK.test(mend));
  return [...diskProblems(p, ofDisk), ...found.filter((one) => !ofDisk.includes(one))];
}
