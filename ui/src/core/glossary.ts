// The glossary: definition and unit of each figure, and the section of the documentation that defines it. One
// list, so that a term means the same in every view.

export interface Entry {
  title: string;
  text: string;
  unit?: string;
  /** File and heading under docs/. */
  where: string;
}

export const GLOSSARY = {
  energy: {
    title: 'Energy, gross',
    text: 'What the sensors counted from the start to the end of the run, loading the model included.',
    unit: 'mJ, J, kJ or Wh',
    where: 'measurement.md, Idle, gross, net',
  },
  net: {
    title: 'Energy, net of idle',
    text: 'Gross energy less the power of the idle machine times the duration.',
    unit: 'mJ, J, kJ or Wh',
    where: 'measurement.md, Idle, gross, net',
  },
  idle: {
    title: 'Idle energy',
    text: 'Power of the idle machine, measured before the run, times its duration.',
    unit: 'mJ, J, kJ or Wh',
    where: 'measurement.md, Idle, gross, net',
  },
  request: {
    title: 'Energy of the request',
    text: 'Gross energy of the run without loading the model and without idle gaps between its phases. Figures per token rest on it.',
    unit: 'mJ, J, kJ or Wh',
    where: 'measurement.md, The request',
  },
  per_token: {
    title: 'Mean energy per token',
    text: 'Energy of the request over its output tokens.',
    unit: 'joules per token',
    where: 'measurement.md, The request',
  },
  typical: {
    title: 'Typical token',
    text: 'Median energy of the undisturbed decode tokens, by which runs are listed and compared. Its 95 % interval holds the errors of the sensor and the scatter of the tokens.',
    unit: 'joules per token',
    where: 'measurement.md, The typical token',
  },
  load: {
    title: 'Model load',
    text: 'Energy of reading the model before the first token. It belongs to the run, not to its tokens; none where the model was already loaded.',
    unit: 'mJ, J or kJ',
    where: 'measurement.md, The request',
  },
  phase: {
    title: 'Phases',
    text: 'A run is divided into pre-inference (loading, tokenizing), prefill (the prompt, up to the first token), decode (the other tokens) and post-inference.',
    where: 'measurement.md, Attribution: from windows to parts',
  },
  attribution: {
    title: 'Attribution',
    text: "Divides what the sensors saw among the parts of the model that were running: a fit over all of the run's windows, with an interval for each part.",
    unit: 'mJ',
    where: 'measurement.md, Attribution: from windows to parts',
  },
  uncertainty: {
    title: '95 % interval',
    text: 'The figure behind ±: 1.96 standard deviations. It holds the resolution and timing of the sensor, its gain where known, and how well parts can be told apart.',
    where: 'measurement.md, Uncertainty',
  },
  samples: {
    title: 'Samples per token',
    text: 'Power samples that fall into a typical token. Below one, single tokens are told apart by the model of the run and not by the sensor alone.',
    where: 'measurement.md, Uncertainty',
  },
  source: {
    title: 'Measured, modelled, unavailable',
    text: 'Measured: read from a sensor. Modelled: an estimate or a simulated sensor. Unavailable: nothing was read; never zero.',
    where: 'measurement.md, Measurement',
  },
  partial: {
    title: 'Partial',
    text: 'Rails that count are missing from the total: the machine used more than is shown.',
    where: 'measurement.md, Rails that contain each other',
  },
  disturbed: {
    title: 'Disturbances',
    text: 'What a step, the prompt, loading or a gap took beyond what is expected of it, where that is less than a third of it: other work ran, a clock was lowered, or the run waited. A block of its own in every sum; one switch leaves it out.',
    unit: 'share of the energy of the request',
    where: 'measurement.md, Disturbances',
  },
  thinking: {
    title: 'Thinking',
    text: 'Tokens between the reasoning marks of a model, the marks included: what it wrote for itself before it answered. Their share is of the energy of the request.',
    unit: 'share of the energy of the request',
    where: 'measurement.md, Thinking',
  },
  anomaly: {
    title: 'Anomaly',
    text: 'Tokens or power that stand out from what is around them by at least 20 %, and disturbances: with begin, end, extra energy and the likely cause.',
    where: 'api.md, GET …/run/{id}/summary',
  },
  power: {
    title: 'Mean power',
    text: 'Energy over time.',
    unit: 'mW, W or kW',
    where: 'measurement.md, Energy curves',
  },
  duration: {
    title: 'Duration',
    text: 'From the start of the run, or of the part of it, to its end.',
    unit: 'ns, µs, ms, s or min',
    where: 'measurement.md, The request',
  },
  speed: {
    title: 'Tokens per second',
    text: 'Output tokens after the first, over the time of decode; for prefill, prompt tokens over the time of prefill.',
    unit: 'tokens per second',
    where: 'measurement.md, Ratios',
  },
  share: {
    title: 'Share of the run',
    text: 'Energy of the part over the energy of the whole run.',
    unit: '%',
    where: 'measurement.md, Ratios',
  },
  delay: {
    title: 'Energy-delay product',
    text: 'Energy times duration: low where a run is both frugal and fast.',
    unit: 'J·s',
    where: 'measurement.md, Ratios',
  },
  ratio: {
    title: 'Ratios',
    text: 'Tokens per joule, energy per input or output token, per parameter, and of prefill to decode.',
    where: 'measurement.md, Ratios',
  },
  test: {
    title: 'Tests of a difference',
    text: 'Whether a difference is more than chance: Welch compares means of logarithms, a permutation test exchanges the runs of small groups; p is the chance of such a difference between equals, corrected for the number of pairs. Hedges g is the difference in standard deviations.',
    where: 'api.md, GET /api/profiling/compare',
  },
  physics: {
    title: 'Energy per FLOP and per byte',
    text: "What an arithmetic operation and a byte from memory cost on this machine, by a fit over the run's components. An interval that reaches zero is not identifiable.",
    unit: 'pJ',
    where: 'measurement.md, FLOPs and bytes',
  },
  cost: {
    title: 'Cost and CO₂',
    text: 'Energy of the run at the price and the carbon intensity of the server (0.12 USD and 400 g per kWh unless set).',
    unit: 'USD, g',
    where: 'api.md, Run summary',
  },
  recording: {
    title: 'Cost of profiling',
    text: "The profiler's own processor time as a share of the run.",
    unit: '%',
    where: 'measurement.md, Cost of recording',
  },
  machine: {
    title: 'Machines',
    text: 'All machines that store in this database: when each last wrote, its sensors, whether its hardware was slowed down by heat or power, and how far its clock is from that of the database.',
    where: 'api.md, GET /api/profiling/machines',
  },
  predicted: {
    title: 'Predicted',
    text: "What this machine's earlier runs predicted for this one, with a 95 % interval, beside what it took.",
    unit: 'J, s',
    where: 'api.md, GET …/run/{id}/summary',
  },
  published: {
    title: 'Published figures',
    text: 'What others measured for the nearest models. Hardware, batch and scope differ as stated: read them as orders of magnitude.',
    unit: 'joules per token',
    where: 'api.md, GET …/run/{id}/summary',
  },
} as const satisfies Record<string, Entry>;

export type Term = keyof typeof GLOSSARY;
